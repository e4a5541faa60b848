//! [`Links`]: a folder in which libraries and headers have the names and places that are asked for.

use std::env::{join_paths, split_paths};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Library;
use crate::common::text::hex;

/// What the loader and CubeCL do not find by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    pub libraries: Vec<(Library, PathBuf)>,
    /// Folders with headers.
    pub headers: Vec<PathBuf>,
}

impl Links {
    pub fn is_empty(&self) -> bool {
        self.libraries.is_empty() && self.headers.is_empty()
    }

    /// The folder with these links, below `cache`: the same for the same links.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn folder(&self, cache: &Path) -> io::Result<PathBuf> {
        let links = self.links();
        let mut digest = Sha256::new();
        for part in links.iter().flat_map(|(name, target)| [name, target]) {
            digest.update(part.as_os_str().as_bytes());
            digest.update([0]);
        }
        let folder = cache.join(hex(&digest.finalize()[..8]));
        if folder.is_dir() {
            return Ok(folder);
        }
        fs::create_dir_all(cache)?;
        let unfinished = tempfile::tempdir_in(cache)?;
        for (name, target) in links {
            let link = unfinished.path().join(name);
            fs::create_dir_all(link.parent().unwrap_or(cache))?;
            // Of two headers with one name the first counts.
            let _ = symlink(target, link);
        }
        match fs::rename(unfinished.path(), &folder) {
            // Another process has just made it.
            Err(_) if folder.is_dir() => Ok(folder),
            made => made.map(|()| folder),
        }
    }

    /// Names within the folder, and where they lead.
    fn links(&self) -> Vec<(PathBuf, PathBuf)> {
        let mut links = Vec::new();
        let lib = Path::new("lib");
        for (library, file) in &self.libraries {
            let real = file.canonicalize().unwrap_or_else(|_| file.clone());
            links.push((lib.join(format!("lib{}.so", library.stem())), real.clone()));
            let beside = [file, &real].into_iter().filter_map(|file| file.parent()).flat_map(inside);
            let family = beside.filter(|(name, _)| is_of_family(name, *library));
            links.extend(family.map(|(name, path)| (lib.join(name), path)));
        }
        match &self.headers[..] {
            [one] => links.push(("include".into(), one.clone())),
            several => {
                let files = several.iter().flat_map(|folder| inside(folder));
                links.extend(files.map(|(name, path)| (Path::new("include").join(name), path)));
            }
        }
        links
    }

    /// The variables with which a program finds what is in the folder before anything else.
    pub fn variables(&self, folder: &Path, search: Option<&OsStr>) -> Vec<(&'static str, OsString)> {
        let mut variables = Vec::new();
        if !self.libraries.is_empty() {
            let own = folder.join("lib");
            let others = search.into_iter().flat_map(split_paths).filter(|path| *path != own);
            let paths: Vec<PathBuf> = others.filter(|path| !path.as_os_str().is_empty()).collect();
            let joined = join_paths([own.clone()].iter().chain(&paths));
            variables.push(("LD_LIBRARY_PATH", joined.unwrap_or_else(|_| own.into())));
        }
        if !self.headers.is_empty() {
            variables.push(("CUDA_PATH", folder.into()));
        }
        variables
    }
}

fn is_of_family(name: &OsStr, library: Library) -> bool {
    let name = name.to_string_lossy();
    name.contains(".so") && library.family().iter().any(|prefix| name.starts_with(prefix))
}

/// Names and paths of what is in a folder, in order.
fn inside(folder: &Path) -> Vec<(OsString, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut inside: Vec<_> = entries.map(|entry| (entry.file_name(), entry.path())).collect();
    inside.sort();
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_have_the_name_that_is_asked_for_and_what_they_load_beside_them() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            path
        };
        let nvrtc = make("wheel/libnvrtc.so.12");
        make("wheel/libnvrtc-builtins.so.12.9");
        make("wheel/libother.so.1");
        let nccl = make("system/libnccl.so.2");
        let headers = [make("runtime/cuda_fp16.h"), make("nvcc/crt/mma.h")];
        let links = Links {
            libraries: vec![(Library::Nvrtc, nvrtc), (Library::Nccl, nccl)],
            headers: vec![
                headers[0].parent().unwrap().into(),
                headers[1].parent().unwrap().parent().unwrap().into(),
            ],
        };
        let cache = root.path().join("cache");
        let folder = links.folder(&cache).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        assert_eq!(read("lib/libnvrtc.so"), Some("wheel/libnvrtc.so.12".into()));
        assert_eq!(read("lib/libnvrtc.so.12"), Some("wheel/libnvrtc.so.12".into()));
        assert_eq!(read("lib/libnvrtc-builtins.so.12.9"), Some("wheel/libnvrtc-builtins.so.12.9".into()));
        assert_eq!(read("lib/libnccl.so"), Some("system/libnccl.so.2".into()));
        assert_eq!(read("lib/libother.so.1"), None);
        assert_eq!(read("include/cuda_fp16.h"), Some("runtime/cuda_fp16.h".into()));
        assert_eq!(read("include/crt/mma.h"), Some("nvcc/crt/mma.h".into()));
        assert_eq!(links.folder(&cache).unwrap(), folder, "made once");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
        let one = Links { libraries: Vec::new(), headers: links.headers[..1].to_vec() };
        let other = one.folder(&cache).unwrap();
        assert_ne!(other, folder);
        assert!(other.join("include/cuda_fp16.h").exists() && !other.join("include/crt").exists());
    }

    #[test]
    fn only_what_is_linked_is_searched_for_there() {
        let folder = Path::new("/links");
        let headers = Links { libraries: Vec::new(), headers: vec!["/include".into()] };
        assert_eq!(headers.variables(folder, None), [("CUDA_PATH", "/links".into())]);
        let libraries =
            Links { libraries: vec![(Library::Nccl, "/a/libnccl.so.2".into())], headers: Vec::new() };
        let search = |before: Option<&str>| libraries.variables(folder, before.map(OsStr::new)).remove(0).1;
        assert_eq!(search(None), "/links/lib");
        assert_eq!(search(Some("/mine:/yours")), "/links/lib:/mine:/yours");
        assert_eq!(search(Some("/links/lib:/mine")), "/links/lib:/mine", "not twice");
        assert!(Links::default().is_empty() && !libraries.is_empty());
    }
}

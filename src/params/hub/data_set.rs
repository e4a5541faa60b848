//! [`Records`]: which files of a data set are fetched: those of one configuration, which is a folder of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::{HubName, cache};
use crate::common::text::few;

/// Folders that are no configuration: all files, or those of a split, lie in them.
const COMMON: [&str; 9] = ["data", "train", "training", "test", "validation", "valid", "val", "dev", "eval"];
/// Files and folders that an error names.
const MOST_NAMED: usize = 12;

/// What is read of a data set.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    /// Its configuration; `None`: the only one.
    pub subset: Option<&'a str>,
    /// Whether a file of this name has records.
    pub is_read: fn(&Path) -> bool,
}

impl Records<'_> {
    /// Whether a file of the repository is one of the folder's.
    pub fn has(&self, folder: &str, name: &str) -> bool {
        let within = folder.is_empty() || name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        within && !name.split('/').any(|part| part.starts_with('.')) && (self.is_read)(Path::new(name))
    }

    /// The folder of the configuration among all files; empty where that is the whole repository.
    ///
    /// # Errors
    /// A repository without files that are read, one that has several configurations, and another one than it has.
    pub fn folder(&self, name: &HubName, files: &[&str]) -> Result<String, String> {
        let read: Vec<&str> = files.iter().copied().filter(|file| self.has("", file)).collect();
        if read.is_empty() {
            let all = few(files.iter().filter(|file| !file.starts_with('.')), MOST_NAMED);
            return Err(format!("{name} has no files that are read; it has {all}"));
        }
        let folders: BTreeSet<&str> =
            read.iter().filter_map(|file| file.split_once('/')).map(|(first, _)| first).collect();
        let own: Vec<&str> = folders.into_iter().filter(|folder| !COMMON.contains(folder)).collect();
        if let Some(subset) = self.subset {
            let subset = subset.trim_end_matches('/');
            return match read.iter().any(|file| self.has(subset, file)) {
                true => Ok(subset.into()),
                false if own.is_empty() => {
                    Err(format!("{name} has no configurations, which are folders: remove data.subset"))
                }
                false => {
                    Err(format!("{name} has no configuration \"{subset}\"; it has {}", few(own, MOST_NAMED)))
                }
            };
        }
        let is_in_one = |folder: &&str| read.iter().all(|file| self.has(folder, file));
        match &own[..] {
            [folder] if is_in_one(folder) => Ok((*folder).into()),
            [_, _, ..] if read.iter().all(|file| file.contains('/')) => Err(format!(
                "{name} has several configurations: name one in data.subset. It has {}",
                few(own, MOST_NAMED)
            )),
            _ => Ok(String::new()),
        }
    }

    /// The folder in a snapshot with the files of the configuration, where they are all there. `fetched`: whether it counts
    /// only if this program has fetched all of them; of what others have fetched nobody knows if it is all.
    pub fn cached(&self, name: &HubName, snapshot: &Path, fetched: bool) -> Option<PathBuf> {
        let entries =
            WalkDir::new(snapshot).into_iter().flatten().filter(|entry| !entry.file_type().is_dir());
        let names: Vec<String> = entries
            .filter_map(|entry| Some(entry.path().strip_prefix(snapshot).ok()?.to_str()?.to_string()))
            .collect();
        let files: Vec<&str> = names.iter().map(String::as_str).collect();
        let folder = self.folder(name, &files).ok()?;
        let is_whole =
            files.iter().filter(|file| self.has(&folder, file)).all(|file| snapshot.join(file).is_file());
        (is_whole && (!fetched || mark(snapshot, &folder)?.exists())).then(|| snapshot.join(folder))
    }
}

/// The file that says that all files of a configuration are there.
fn mark(snapshot: &Path, folder: &str) -> Option<PathBuf> {
    let commit = snapshot.file_name()?;
    let repository = snapshot.parent()?.parent()?;
    let name = if folder.is_empty() { "all".into() } else { format!("of-{}", folder.replace('/', "--")) };
    Some(repository.join(".complete").join(commit).join(name))
}

/// Remembers that all files of a configuration are there.
///
/// # Errors
/// When the folder cannot be written.
pub fn remember(snapshot: &Path, folder: &str) -> Result<(), String> {
    let Some(mark) = mark(snapshot, folder) else { return Ok(()) };
    let write = || {
        fs::create_dir_all(mark.parent().expect("of a file"))?;
        fs::write(&mark, "")
    };
    write().map_err(|e| cache::unwritable(&mark, &e))
}

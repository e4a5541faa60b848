//! [`Place`]: where libraries and headers of CUDA lie in a toolkit, in conda's packages and in pip's wheels.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder with all that is installed into it: a toolkit, an environment of Python or of conda.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Folders with libraries.
    pub libraries: Vec<PathBuf>,
    /// Folders with headers. Those of one group belong together: pip's wheels of CUDA 12 have several.
    pub headers: Vec<Vec<PathBuf>>,
}

/// The folders that the user's variables name, then the one that this program is installed into.
pub fn prefixes(variable: impl Fn(&str) -> Option<OsString>, program: Option<&Path>) -> Vec<PathBuf> {
    let names = ["CUDA_PATH", "CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX"];
    let named = names.into_iter().filter_map(|name| variable(name).filter(|value| !value.is_empty()));
    let own = program.and_then(|program| program.parent().filter(|folder| folder.ends_with("bin"))?.parent());
    let mut prefixes = Vec::new();
    for prefix in named.map(PathBuf::from).chain(own.map(Path::to_path_buf)) {
        if !prefixes.contains(&prefix) {
            prefixes.push(prefix);
        }
    }
    prefixes
}

impl Place {
    pub fn under(prefix: &Path) -> Self {
        let packages = packages(prefix);
        let mut libraries: Vec<PathBuf> = packages.iter().map(|package| package.join("lib")).collect();
        // conda and toolkits have these.
        let targets = entries(&prefix.join("targets"));
        libraries.extend(targets.iter().map(|target| target.join("lib")));
        libraries.extend(["lib", "lib64"].map(|name| prefix.join(name)));
        let mut groups = BTreeMap::<String, Vec<PathBuf>>::new();
        for package in &packages {
            groups.entry(group(package)).or_default().push(package.join("include"));
        }
        // The later version first.
        let groups = groups.into_values().rev();
        let whole =
            targets.iter().map(PathBuf::as_path).chain([prefix]).map(|root| vec![root.join("include")]);
        let headers = groups.chain(whole).map(present).filter(|group| !group.is_empty()).collect();
        Self { libraries: present(libraries), headers }
    }

    /// The files of the library `stem` by the names that a loader looks for: `libnccl.so`, `libnccl.so.2`.
    pub fn files(&self, stem: &str) -> Vec<PathBuf> {
        let is_one = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let rest = name.strip_prefix("lib").and_then(|name| name.strip_prefix(stem)?.strip_prefix(".so"));
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix('.').is_some_and(|rest| rest.parse::<u32>().is_ok())
            })
        };
        self.libraries.iter().flat_map(|folder| entries(folder)).filter(is_one).collect()
    }
}

/// pip's wheels of NVIDIA: `nvidia/cublas`, `nvidia/cu13` and so on.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let python = |folder: &PathBuf| {
        folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python3"))
    };
    let pythons = ["lib", "lib64"].into_iter().flat_map(|name| entries(&prefix.join(name))).filter(python);
    let sites = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    sites.flat_map(|site| entries(&site.join("nvidia"))).collect()
}

/// `cu13` has a folder of its own; what CUDA 12 consists of lies side by side.
fn group(package: &Path) -> String {
    let name = package.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix("cu").filter(|rest| rest.parse::<u32>().is_ok());
    number.map_or_else(String::new, str::to_string)
}

/// Those that are there, each once.
fn present(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let (mut seen, mut present) = (Vec::new(), Vec::new());
    for folder in folders.into_iter().filter(|folder| folder.is_dir()) {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        if !seen.contains(&real) {
            seen.push(real);
            present.push(folder);
        }
    }
    present
}

/// What is in a folder, by name; nothing where it is not there.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    fn relative(root: &tempfile::TempDir, paths: &[PathBuf]) -> Vec<String> {
        paths.iter().map(|path| path.strip_prefix(root.path()).unwrap().display().to_string()).collect()
    }

    #[test]
    fn wheels_of_cuda_12_lie_side_by_side() {
        let site = |path: &str| format!("lib/python3.12/site-packages/nvidia/{path}");
        let files = [
            "cuda_nvrtc/lib/libnvrtc.so.12",
            "cuda_nvrtc/lib/libnvrtc.alt.so.12",
            "cuda_nvrtc/lib/libnvrtc-builtins.so.12.9",
            "cuda_nvrtc/include/nvrtc.h",
            "cuda_runtime/include/cuda_fp16.h",
            "nccl/lib/libnccl.so.2",
        ]
        .map(site);
        let root = made(&files.each_ref().map(String::as_str));
        std::os::unix::fs::symlink("lib", root.path().join("lib64")).unwrap();
        let place = Place::under(root.path());
        assert_eq!(relative(&root, &place.files("nvrtc")), [files[0].as_str()]);
        assert_eq!(relative(&root, &place.files("nccl")), [files[5].as_str()]);
        assert!(place.files("cupti").is_empty());
        let includes = [site("cuda_nvrtc/include"), site("cuda_runtime/include")];
        assert_eq!(relative(&root, &place.headers[0]), includes);
    }

    #[test]
    fn wheels_of_cuda_13_have_one_folder_apart_from_those_of_cuda_12() {
        let site = |path: &str| format!("lib/python3.13/site-packages/nvidia/{path}");
        let files =
            ["cu13/lib/libnvrtc.so.13", "cu13/include/cuda_fp16.h", "cuda_runtime/include/cuda_fp16.h"]
                .map(site);
        let root = made(&files.each_ref().map(String::as_str));
        let place = Place::under(root.path());
        assert_eq!(relative(&root, &place.files("nvrtc")), [files[0].as_str()]);
        let groups: Vec<_> = place.headers.iter().map(|group| relative(&root, group)).collect();
        assert_eq!(groups[..2], [[site("cu13/include")], [site("cuda_runtime/include")]]);
    }

    #[test]
    fn conda_and_toolkits_have_their_own_folders() {
        let root = made(&[
            "lib/libcublasLt.so.12",
            "targets/x86_64-linux/lib/libnvrtc.so",
            "targets/x86_64-linux/lib/libnvrtc.so.12.4.127",
            "targets/x86_64-linux/include/cuda_fp16.h",
            "lib64/libcupti.so.13",
            "include/python.h",
        ]);
        let place = Place::under(root.path());
        assert_eq!(relative(&root, &place.files("nvrtc")), ["targets/x86_64-linux/lib/libnvrtc.so"]);
        assert_eq!(relative(&root, &place.files("cublasLt")), ["lib/libcublasLt.so.12"]);
        assert_eq!(relative(&root, &place.files("cupti")), ["lib64/libcupti.so.13"]);
        let groups: Vec<_> = place.headers.iter().map(|group| relative(&root, group)).collect();
        assert_eq!(groups, [["targets/x86_64-linux/include"], ["include"]]);
    }

    #[test]
    fn what_the_user_names_comes_before_where_the_program_lies() {
        let set = [("VIRTUAL_ENV", "/venv"), ("CONDA_PREFIX", ""), ("CUDA_HOME", "/toolkit")];
        let variable = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let of = |program: &str| prefixes(variable, Some(Path::new(program)));
        assert_eq!(of("/env/bin/runner"), ["/toolkit", "/venv", "/env"].map(PathBuf::from));
        assert_eq!(of("/venv/bin/runner"), ["/toolkit", "/venv"].map(PathBuf::from));
        assert_eq!(of("/src/target/release/runner"), ["/toolkit", "/venv"].map(PathBuf::from));
        assert!(prefixes(|_| None, None).is_empty());
    }
}

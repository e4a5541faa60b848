//! Records what the binary is built from, so that every row can name it: the git commit for people, and a hash
//! of the sources by which two builds are told apart, also without git.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// What decides the program, relative to the package's root.
const SOURCES: [&str; 5] = ["src", "crates", "Cargo.toml", "Cargo.lock", "build.rs"];

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let profile = std::env::var("PROFILE").expect("cargo sets it");
    // In a worktree `.git` is a file, and git knows where HEAD lies. A missing path would run this again, and
    // so build everything again, each time.
    let of_git = ["HEAD", "logs/HEAD"].into_iter().filter_map(|name| {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        path.exists().then_some(path)
    });
    for path in SOURCES.iter().map(|name| root.join(name)).filter(|path| path.exists()).chain(of_git) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!("cargo:rustc-env=RUNNER_COMMIT={}", commit(&root));
    println!("cargo:rustc-env=RUNNER_BUILD={}", identity(&root, &profile));
}

/// The commit the sources are of, with `-dirty` where they have changed since; empty where git does not know
/// them, as in a source archive.
pub fn commit(root: &Path) -> String {
    // An archive may lie unpacked in a repository of something else.
    if git(root, &["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        return String::new();
    }
    let Some(commit) = git(root, &["rev-parse", "--short=12", "HEAD"]) else { return String::new() };
    let changed = git(root, &[&["status", "--porcelain", "--"], &SOURCES[..]].concat());
    if changed.is_some_and(|changed| changed.is_empty()) { commit } else { commit + "-dirty" }
}

/// The first 12 hex digits of a SHA-256 over the sources and the profile they are built with: a debug build's
/// times are not those of a release.
pub fn identity(root: &Path, profile: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(profile);
    for path in SOURCES.iter().flat_map(|name| files(&root.join(name))) {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
        let content = fs::read(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
        // Lengths keep a name and its content apart.
        hash.update(format!("{} {name} {} ", name.len(), content.len()));
        hash.update(content);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// A file, or all files below a folder, in the order of their names.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return if path.is_file() { vec![path.into()] } else { Vec::new() };
    };
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    entries.iter().flat_map(|entry| files(entry)).collect()
}

/// What git says; `None` when it refuses or is not there.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // A hook of another repository may have started the build.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    let output = command.args(args).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

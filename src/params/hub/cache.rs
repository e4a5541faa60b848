//! The layout of the Hub's cache.
//!
//! ```text
//! models--owner--name/
//!   refs/main                    the commit of a branch
//!   snapshots/COMMIT/config.json → ../../blobs/OID
//!   blobs/OID                    SHA-256 of a large file, Git's hash of a small one
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use itertools::Itertools;

use super::{HubName, MAIN, Needs};
use crate::params::weights;

/// The folder of a model or data set in the cache.
pub fn repository(cache: &Path, name: &HubName) -> PathBuf {
    let kind: &str = name.kind.into();
    cache.join(format!("{kind}--{}", name.id.replace('/', "--")))
}

/// The folder with the files of a revision: a branch, a tag or a commit.
pub fn snapshot(repository: &Path, revision: &str) -> Option<PathBuf> {
    let commit = fs::read_to_string(repository.join("refs").join(revision));
    let commit = commit.map_or(revision.to_string(), |text| text.trim().to_string());
    Some(repository.join("snapshots").join(commit)).filter(|folder| !revision.is_empty() && folder.is_dir())
}

/// The folder with the files of a model in its folder of the cache, or in the `snapshots` there: that of the main branch, else
/// the last by its name.
pub fn any_snapshot(folder: &Path) -> Option<PathBuf> {
    let model = if folder.ends_with("snapshots") { folder.parent()? } else { folder };
    let all = || fs::read_dir(model.join("snapshots")).into_iter().flatten().flatten();
    let last = || all().map(|entry| entry.path()).filter(|path| path.is_dir()).sorted().next_back();
    snapshot(model, MAIN).or_else(last)
}

/// Whether a snapshot has what is needed of a model. A tokenizer cannot be missed: not every model has one.
pub fn has(snapshot: &Path, needs: Needs) -> bool {
    snapshot.join("config.json").exists()
        && (matches!(needs, Needs::Description) || weights::files(snapshot).is_ok())
}

/// Makes a blob the file of this name in a commit's snapshot.
///
/// # Errors
/// When the folder cannot be written.
pub fn place(repository: &Path, commit: &str, name: &str, oid: &str) -> Result<(), String> {
    let file = repository.join("snapshots").join(commit).join(name);
    let blob = "../".repeat(2 + name.matches('/').count());
    let target = format!("{blob}blobs/{oid}");
    let place = || {
        fs::create_dir_all(file.parent().expect("of a file"))?;
        // Also in the place of a link to a blob that is gone.
        if file.symlink_metadata().is_ok() {
            fs::remove_file(&file)?;
        }
        symlink(target, &file)
    };
    place().map_err(|e| unwritable(&file, &e))
}

/// Remembers the commit of a revision.
///
/// # Errors
/// When the folder cannot be written.
pub fn remember(repository: &Path, revision: &str, commit: &str) -> Result<(), String> {
    if revision == commit {
        return Ok(());
    }
    let file = repository.join("refs").join(revision);
    let write = || {
        fs::create_dir_all(file.parent().expect("of a file"))?;
        fs::write(&file, commit)
    };
    write().map_err(|e| unwritable(&file, &e))
}

pub fn unwritable(path: &Path, e: &std::io::Error) -> String {
    format!(
        "cannot write {}: {e}; HF_HOME names another place for models and data sets of the Hub",
        path.display()
    )
}

/// Whether a name of the Hub's list stays within the snapshot.
pub fn is_within(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

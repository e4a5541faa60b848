//! Tokens that cells and runs share: what one has tokenised the next ones map from the disk.
//!
//! Each file is of one text, by the content of its files, and of all that makes tokens of it. It is there whole or not at all.
//! Of several processes that want the same tokens one makes them, and the others wait. Without a folder, or without room in it,
//! a process has tokens of its own. What nobody has used for a month goes.

mod key;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

pub use key::{Key, TOKENIZERS};

use super::DataError;
use super::samples::Store;
use crate::common::{cache, files};

/// Fewer tokens are made again in less time than it takes to look for them.
const LEAST: usize = 1 << 16;

/// The tokens under a key, or without one; `make` makes those that are not there.
///
/// # Errors
/// Those of `make`.
pub fn tokens(
    key: Option<&Key>,
    make: impl FnOnce() -> Result<Store, DataError>,
) -> Result<Arc<Store>, DataError> {
    let folder = cache::folder("tokens");
    let store = match folder.zip(key).map(|(folder, key)| (folder, key.name())) {
        Some((folder, name)) => remembered(&folder, &name, make)?,
        None => make()?,
    };
    Ok(Arc::new(store))
}

fn remembered(
    folder: &Path,
    name: &str,
    make: impl FnOnce() -> Result<Store, DataError>,
) -> Result<Store, DataError> {
    let path = folder.join(format!("{name}.tokens"));
    if let Some(store) = used(&path) {
        return Ok(store);
    }
    // Held until the tokens are there. Who cannot have it makes tokens of its own.
    let _turn = turn(folder, &path);
    if let Some(store) = used(&path) {
        return Ok(store);
    }
    let store = make()?;
    if store.tokens().len() < LEAST || write(folder, &path, &store).is_err() {
        return Ok(store);
    }
    // Mapped, its memory is the one of all processes. It is not read for that: tokens would be in memory twice.
    Ok(Store::map(&path).unwrap_or(store))
}

/// The tokens of a file, which is noted as used.
fn used(path: &Path) -> Option<Store> {
    let store = Store::open(path)?;
    // Only tidiness: one that cannot be noted is made again after a month.
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    Some(store)
}

/// Waits for other processes that make the same tokens. Its file ends their turn when it is closed.
fn turn(folder: &Path, path: &Path) -> io::Result<File> {
    cache::make(folder)?;
    let file = File::options().create(true).append(true).open(path.with_extension("lock"))?;
    file.lock()?;
    Ok(file)
}

fn write(folder: &Path, path: &Path, store: &Store) -> io::Result<()> {
    files::remove_older(folder, 30 * files::STALE, |name| {
        name.ends_with(".tokens") || name.ends_with(".lock")
    });
    let name = path.file_name().and_then(|name| name.to_str());
    files::write_whole_by(folder, name, |file| store.write(file))
}

#[cfg(test)]
mod tests;

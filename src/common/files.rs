//! Files and folders that are there whole or not at all, whatever happens to the runner: written under another
//! name, then renamed.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tempfile::{Builder, TempDir};

use super::text::hex;

/// How the name of a file begins and ends that is still being written. Files of others may end so, too.
const UNFINISHED: [&str; 2] = [".writing-", ".tmp"];
/// How the name of a process's temporary folder begins.
const SCRATCH: &str = "runner-cell-";
/// A file still unfinished after this long belongs to a run that is dead.
pub const STALE: Duration = Duration::from_secs(24 * 3600);

/// What is known of a file; an error of a folder, and of a pipe or a device, whose content may never end.
pub fn regular(path: &Path) -> io::Result<Metadata> {
    let found = fs::metadata(path)?;
    match found.is_file() {
        true => Ok(found),
        false => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is no regular file")),
    }
}

/// SHA-256 of a file, in hex digits.
pub fn sha256(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            bytes => hash.update(&buffer[..bytes]),
        }
    }
}

/// Names a file or folder as unfinished.
fn unfinished() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(UNFINISHED[0]).suffix(UNFINISHED[1]);
    builder
}

/// A temporary folder for a process that this one starts and outlives: what that one leaves there when it is killed goes
/// with this. Those of runs that were killed together with their processes go after a month.
pub fn scratch() -> io::Result<TempDir> {
    remove_older(&std::env::temp_dir(), 30 * STALE, |name| name.starts_with(SCRATCH));
    Builder::new().prefix(SCRATCH).tempdir()
}

/// Removes this process's temporary folder, if it is one that [`scratch`] made for it.
pub fn remove_scratch() {
    let folder = std::env::temp_dir();
    if folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(SCRATCH.as_bytes())) {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Writes a file that is there whole or not at all; without a name, only proves that it can.
pub fn write_whole(folder: &Path, name: Option<&str>, bytes: &[u8]) -> io::Result<()> {
    write_whole_by(folder, name, |file| file.write_all(bytes))
}

/// As [`write_whole`], of what `write` writes.
pub fn write_whole_by(
    folder: &Path,
    name: Option<&str>,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = unfinished()
        // Less the umask: as readable as any other file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    let Some(name) = name else { return file.close() };
    file.persist(folder.join(name)).map_err(|e| e.error)?;
    // The rename itself must survive a power cut too.
    File::open(folder)?.sync_all()
}

/// Writes a folder that is there whole or not at all, in the place of one that may be there. `fill` gets the path
/// of an empty one.
///
/// # Errors
/// When it cannot be written.
pub fn write_folder(folder: &Path, fill: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    remove_stale(parent);
    let mut builder = unfinished();
    let unfinished = builder.permissions(Permissions::from_mode(0o777)).tempdir_in(parent)?;
    fill(unfinished.path())?;
    // safetensors writes files for their owner alone. The folder has the umask's mode.
    let mode = fs::metadata(unfinished.path())?.permissions().mode() & 0o666;
    settle(unfinished.path(), mode)?;
    let before = builder.tempdir_in(parent)?;
    let aside = before.path().join("before");
    if folder.exists() {
        fs::rename(folder, &aside)?;
    }
    if let Err(e) = fs::rename(unfinished.path(), folder) {
        // With nothing aside there is nothing to put back.
        let _ = fs::rename(&aside, folder);
        return Err(e);
    }
    File::open(parent)?.sync_all()
}

/// Gives the files of a folder this mode, and has all of it on the disk.
fn settle(folder: &Path, mode: u32) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            settle(&path, mode)?;
        } else {
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            File::open(path)?.sync_all()?;
        }
    }
    File::open(folder)?.sync_all()
}

/// Whether [`write_folder`] can make this folder; nothing is left behind.
///
/// # Errors
/// Why it cannot.
pub fn check_writable(folder: &Path) -> io::Result<()> {
    let absolute = std::path::absolute(folder)?;
    let parents = absolute.ancestors().skip(1);
    write_whole(parents.into_iter().find(|parent| parent.exists()).unwrap_or(Path::new("/")), None, b"")
}

/// Removes a folder that is there whole or not at all: it is renamed first, so what a run that is killed leaves counts as
/// unfinished.
///
/// # Errors
/// When it cannot be renamed or removed.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    let parent = folder.parent().unwrap_or(Path::new("."));
    let aside = unfinished().tempdir_in(parent)?;
    fs::rename(folder, aside.path().join("before"))?;
    aside.close()
}

/// Removes what dead runs left unfinished. A run that is alive now has younger files.
pub fn remove_stale(folder: &Path) {
    remove_unfinished(folder, STALE);
}

/// Removes what was left unfinished longer ago than `age`.
pub fn remove_unfinished(folder: &Path, age: Duration) {
    let [begin, end] = UNFINISHED;
    remove_older(folder, age, |name| name.starts_with(begin) && name.ends_with(end));
}

/// Removes what has such a name and was changed last longer ago than `age`.
pub fn remove_older(folder: &Path, age: Duration, is_called: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_called = entry.file_name().to_str().is_some_and(&is_called);
        let since = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_called && since.is_some_and(|since| since > age) {
            let path = entry.path();
            // Only tidiness: what cannot be removed disturbs nothing.
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of users may end as those that the runner has not finished.
    #[test]
    fn only_own_unfinished_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["notes.tmp", ".writing-mine", ".writing-killed.tmp"] {
            fs::write(folder.path().join(name), "words").unwrap();
        }
        fs::create_dir(folder.path().join("thesis.tmp")).unwrap();
        remove_unfinished(folder.path(), Duration::ZERO);
        let there = |name: &str| folder.path().join(name).exists();
        assert!(["notes.tmp", ".writing-mine", "thesis.tmp"].into_iter().all(there));
        assert!(!there(".writing-killed.tmp"));
    }
}

//! The folder for what one machine remembers between runs; losing it costs only time.
//!
//! Kernels, tokenizers and checksums in it are taken as they are, so it must be the user's own: who else can write there
//! decides what a GPU runs.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::files;

/// `$RUNNER_CACHE`, else `$XDG_CACHE_HOME/runner`, else `~/.cache/runner`; `None` where the user has
/// no home either. It need not exist.
pub fn location() -> Option<PathBuf> {
    resolve(|name| std::env::var_os(name))
}

/// The folder in it for one kind of things to remember; `None` where there is none, or others can write to it.
pub fn folder(part: &str) -> Option<PathBuf> {
    let location = location()?;
    let folder = location.join(part);
    let is_ours = distrust(&location).is_none() && distrust(&folder).is_none();
    is_ours.then_some(folder)
}

/// Its folders whose files are taken as they are.
const PARTS: [&str; 6] = ["contents", "kernels", "matmul", "rates", "tokenizers", "tokens"];

/// Why nothing is remembered, for the user; `None` where nothing is wrong with the folder.
pub fn notice() -> Option<String> {
    let location = location()?;
    let all = [location.clone()].into_iter().chain(PARTS.map(|part| location.join(part)));
    let (why, folder) = all.into_iter().find_map(|folder| Some((distrust(&folder)?, folder)))?;
    Some(format!(
        "nothing is read from the cache folder {}: {why}; `chmod go-w` it if it is yours, or name another by RUNNER_CACHE",
        folder.display()
    ))
}

/// Why others can write to a folder that is there.
fn distrust(folder: &Path) -> Option<String> {
    let found = fs::metadata(folder).ok()?;
    // The owner of this process's own entry.
    let own = fs::metadata("/proc/self").map_or(0, |process| process.uid());
    let mode = found.mode() & 0o777;
    match found.uid() {
        // The administrator can do anything as it is.
        owner if owner != own && owner != 0 => {
            Some(format!("it belongs to the user with the number {owner}"))
        }
        _ if mode & 0o022 != 0 => Some(format!("other users can write to it (its mode is {mode:o})")),
        _ => None,
    }
}

/// `$XDG_CACHE_HOME`, else `~/.cache`: where programs have their own folders.
pub fn user_cache() -> Option<PathBuf> {
    base(|name| std::env::var_os(name))
}

fn resolve(variable: impl Fn(&str) -> Option<OsString> + Copy) -> Option<PathBuf> {
    let own = variable("RUNNER_CACHE").filter(|value| !value.is_empty()).map(PathBuf::from);
    own.or_else(|| Some(base(variable)?.join("runner")))
}

fn base(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // A relative path there is invalid, by the XDG specification.
    let base = set("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    base.or_else(|| Some(set("HOME")?.join(".cache")))
}

/// Writes a file to a folder of what was found out before. Where the folder cannot be written to, the next process finds
/// it out again.
pub fn keep(folder: &Path, name: &str, bytes: &[u8]) {
    if make(folder).is_ok() {
        let _ = files::write_whole(folder, Some(name), bytes);
    }
}

/// Makes a folder for what was found out, without what dead runs left unfinished in it.
///
/// # Errors
/// When it cannot be made.
pub fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    files::remove_stale(folder);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_can_write_to_is_not_trusted() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("runner").join("kernels");
        assert_eq!(distrust(&folder), None, "it is not there");
        // Whatever the umask is.
        keep(&folder, "a.cubin", b"x");
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert!(folder.join("a.cubin").exists() && distrust(&folder).is_none());
        for mode in [0o770, 0o757, 0o777, 0o1777] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let why = distrust(&folder).expect("others can write");
            assert!(why.contains(&format!("{:o}", mode & 0o777)), "{why}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(distrust(&folder), None, "others may read");
        // Only the administrator can give a folder away.
        if std::os::unix::fs::chown(&folder, Some(12345), None).is_ok() {
            assert!(distrust(&folder).expect("another's").contains("12345"));
        }
    }

    #[test]
    fn the_first_that_is_set_counts() {
        let all = [("RUNNER_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        let of = |known: &[(&str, &str)]| {
            resolve(|name| known.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(of(&all), Some("/a".into()));
        assert_eq!(of(&all[1..]), Some("/b/runner".into()));
        assert_eq!(of(&all[2..]), Some("/c/.cache/runner".into()));
        assert_eq!(of(&[]), None);
        assert_eq!(
            of(&[("RUNNER_CACHE", ""), ("XDG_CACHE_HOME", "b"), all[2]]),
            Some("/c/.cache/runner".into())
        );
    }
}

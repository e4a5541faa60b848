//! The folder for what one machine remembers between runs; losing it costs only time.

use std::ffi::OsString;
use std::fs::create_dir_all;
use std::path::{Path, PathBuf};

use super::files;

/// `$RUNNER_CACHE`, else `$XDG_CACHE_HOME/runner`, else `~/.cache/runner`; `None` where the user has
/// no home either. It need not exist.
pub fn folder() -> Option<PathBuf> {
    resolve(|name| std::env::var_os(name))
}

fn resolve(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // A relative path there is invalid, by the XDG specification.
    let base = || set("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    set("RUNNER_CACHE").or_else(|| Some(base().or_else(|| Some(set("HOME")?.join(".cache")))?.join("runner")))
}

/// Writes a file to a folder of what was found out before. Where the folder cannot be written to, the next process finds
/// it out again.
pub fn keep(folder: &Path, name: &str, bytes: &[u8]) {
    if create_dir_all(folder).is_ok() {
        files::remove_stale(folder);
        let _ = files::write_whole(folder, Some(name), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! `runner profile`: where the time of a traced step went.

use std::path::{Path, PathBuf};

use clap::Args;
use miette::{Result, miette};

use super::open_results;
use crate::report;

#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// A row (results/<recipe>/<device>/rows/<key>.json), or a results folder with one traced row
    pub path: PathBuf,
    /// How many kernels to list
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub top: usize,
}

/// The time of a traced step by phase and operator, and the kernels that took longest.
///
/// # Errors
/// When the path names no traced row.
pub fn profile(args: &ProfileArgs) -> Result<String> {
    let (folder, key) = named(&args.path)?;
    let results = open_results(folder)?;
    report::profile(folder, &results.recipe, &results.rows, key, args.top)
}

/// The results folder, and the key of the row where the path is that of a row or its trace. A row of a cell's later
/// processes, `key-2.json`, has the key of the first, which is the one that is traced.
fn named(path: &Path) -> Result<(&Path, Option<&str>)> {
    if path.is_dir() {
        return Ok((path, None));
    }
    let key = path.file_stem().and_then(|stem| stem.to_str()?.split(['-', '.']).next());
    let folder = path.parent().and_then(Path::parent).map(|folder| match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    });
    match (path.is_file(), folder, key) {
        (true, Some(folder), Some(key)) => Ok((folder, Some(key))),
        _ => Err(miette!(
            help = "name a row, results/<recipe>/<device>/rows/<key>.json, or the folder results/<recipe>/<device>",
            "{} is neither a row nor a results folder",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_later_processes_name_the_traced_cell() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("rows")).expect("a folder");
        for name in ["ab12.json", "ab12-2.json", "ab12.json.gz"] {
            let row = folder.path().join("rows").join(name);
            std::fs::write(&row, "{}").expect("a written row");
            assert_eq!(named(&row).expect("a row"), (folder.path(), Some("ab12")));
        }
        assert_eq!(named(folder.path()).expect("a folder"), (folder.path(), None));
        assert!(named(&folder.path().join("rows/cd34.json")).is_err());
    }
}

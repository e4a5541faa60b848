//! `runner profile`: where the time of a traced step went.

use std::path::{Path, PathBuf};

use clap::Args;
use miette::{Result, miette};

use crate::report;
use crate::run::Results;

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
    let results = Results::open(folder)?;
    report::profile(folder, &results.recipe, &results.rows, key, args.top)
}

/// The results folder, and the key of the row where the path is that of a row or its trace.
fn named(path: &Path) -> Result<(&Path, Option<&str>)> {
    if path.is_dir() {
        return Ok((path, None));
    }
    let key = path.file_stem().and_then(|stem| stem.to_str());
    let folder = path.parent().and_then(Path::parent).map(|folder| match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    });
    match (path.is_file(), folder, key) {
        (true, Some(folder), Some(key)) => Ok((folder, Some(key))),
        _ => Err(miette!(
            help = "name a row, results/<recipe>/<device>/rows/<key>.json, or the folder results/<recipe>/<device>",
            "{} is no row and no results folder",
            path.display()
        )),
    }
}

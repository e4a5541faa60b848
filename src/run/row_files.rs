//! Reads the files of a rows folder: rows, rows of other versions, and damaged files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use miette::miette;
use rayon::prelude::*;
use serde_json::Value;

use crate::common::files::regular;
use crate::common::text::printable;
use crate::row::{FORMAT, Row, Status};

/// The files of a rows folder.
#[derive(Default)]
pub(super) struct Files {
    pub rows: Vec<Row>,
    /// Damaged files, each with the reason.
    pub damaged: Vec<(PathBuf, String)>,
    /// Rows of another format, or of another version with unknown fields.
    pub other_versions: Vec<PathBuf>,
    /// Number of rows of other cells or input files that were left out.
    pub others: usize,
}

pub(super) fn read_rows(folder: &Path) -> miette::Result<Files> {
    let unreadable = |e: io::Error| {
        miette!(
            help = "check that the folder exists and that you may read it",
            "cannot read the rows in {}: {e}",
            folder.display()
        )
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    let read = |path: PathBuf| match regular(&path).and_then(|_| fs::read(&path)) {
        Ok(text) => Ok(Some((read_row(&path, &text), path))),
        // Another run has just moved it aside.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        // A folder, say, which has the name of a row.
        Err(e) if e.kind() == io::ErrorKind::IsADirectory => Ok(Some((Err(e.to_string()), path))),
        Err(e) => Err(e),
    };
    let mut files = Files::default();
    for row in paths.into_par_iter().map(read).collect::<Vec<io::Result<_>>>() {
        match row.map_err(unreadable)? {
            Some((Ok(Some(row)), _)) => files.rows.push(row),
            Some((Ok(None), path)) => files.other_versions.push(path),
            Some((Err(why), path)) => files.damaged.push((path, why)),
            None => {}
        }
    }
    files.other_versions.sort();
    Ok(files)
}

/// The row of a file; `None` for another format, or another version with unknown fields.
///
/// # Errors
/// Says why the file is damaged.
pub(super) fn read_row(path: &Path, text: &[u8]) -> Result<Option<Row>, String> {
    match serde_json::from_slice::<Row>(text) {
        Ok(row) if row.format > FORMAT => Ok(None),
        Ok(row) if path.file_stem().is_none_or(|stem| stem != row.name().as_str()) => {
            Err(format!("its name is {}", row.name()))
        }
        Ok(row) if !row.is_named_rightly() => Err("it describes another cell".into()),
        Ok(row) if (row.status == Status::Ok) != row.measurement.is_some() => {
            Err(format!("its status is {} but its measurement says otherwise", row.status.into_str()))
        }
        Ok(row) if row.measurement.as_ref().is_some_and(|measured| measured.step.min <= 0.0) => {
            Err("its measurement has a step that took no time".into())
        }
        Ok(row) => Ok(Row { reason: printable(&row.reason), ..row }.in_this_format().ok()),
        Err(e) => {
            let value: Value =
                serde_json::from_slice(text).map_err(|e| format!("it is not a whole row: {e}"))?;
            let version = value.pointer("/environment/runner_version").and_then(Value::as_str);
            let format = value.get("format").and_then(Value::as_u64);
            match version.is_some_and(|version| version != env!("CARGO_PKG_VERSION"))
                || format.is_some_and(|format| format > u64::from(FORMAT))
            {
                true => Ok(None),
                false => Err(format!("it is not a row: {e}")),
            }
        }
    }
}

/// What is said of rows of other versions, and of so many rows of other cells or input files.
pub(super) fn other_notices(other_versions: &[PathBuf], others: usize) -> Vec<String> {
    let versions = other_versions.first().map(|path| match other_versions.len() - 1 {
        0 => format!("{} is of another version of the runner and is left as it is, under another name if its cell is measured again", path.display()),
        1 => format!(
            "{} and 1 more row are of other versions of the runner and are left as they are, under other names if their cells are measured again",
            path.display()
        ),
        n => format!(
            "{} and {n} more rows are of other versions of the runner and are left as they are, under other names if their cells are measured again",
            path.display()
        ),
    });
    let others = match others {
        0 => None,
        1 => Some("1 row of another cell or of other input files was left as it is".into()),
        n => Some(format!("{n} rows of other cells or of other input files were left as they are")),
    };
    versions.into_iter().chain(others).collect()
}

pub(super) fn move_aside(path: &Path, why: &str) -> miette::Result<String> {
    let aside = path.with_added_extension("damaged");
    match fs::rename(path, &aside) {
        Ok(()) => Ok(format!("{} counts as missing ({why}); kept as {}", path.display(), aside.display())),
        // Another run has moved it already.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Ok(format!("{} counts as missing ({why})", path.display()))
        }
        Err(e) => Err(miette!(
            help = "move or delete the file",
            "{} is damaged ({why}) and cannot be moved aside: {e}",
            path.display()
        )),
    }
}

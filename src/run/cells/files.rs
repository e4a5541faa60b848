//! Files that cells read and that are not there, and folders of logs that cannot be written to, found before the first
//! cell runs.

use std::path::PathBuf;

use itertools::Itertools;
use miette::{Result, miette};

use super::Run;
use crate::common::text::counted;
use crate::recipe::Cell;
use crate::row::contents::missing;
use crate::run::log;

impl Run<'_> {
    /// Says which of the cells that are to run lack files.
    ///
    /// # Errors
    /// When all of them do: each would fail.
    pub(super) fn require_files(&self, todo: &[(usize, usize)]) -> Result<()> {
        let cells = &self.session.recipe.cells;
        let positions: Vec<usize> = todo.iter().map(|(position, _)| *position).unique().collect();
        let lacking: Vec<_> = positions.iter().filter_map(|position| missing(&cells[*position])).collect();
        let Some((key, _)) = lacking.first() else { return Ok(()) };
        let file = |(key, path): &(&str, PathBuf)| {
            let place = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!("{key} = \"{}\", looked for at {}", path.display(), place.display())
        };
        let files = lacking.iter().unique().map(file).join("; ");
        if lacking.len() < positions.len() {
            let cells = counted(lacking.len(), "cell");
            self.session.progress.notice(&format!("{cells} will fail unless it is there by then: {files}"));
            return Ok(());
        }
        Err(miette!(
            help = format!(
                "put the files there, run the command in the folder from which a relative path leads to them, or name \
                 their place by --set {key}=PATH"
            ),
            "nothing was measured: every cell that is left reads what is not there: {files}"
        ))
    }

    /// Makes the folders of the logs.
    ///
    /// # Errors
    /// When one cannot be written to.
    pub(super) fn require_logs(&self, todo: &[(usize, usize)]) -> Result<()> {
        let cells = todo.iter().map(|(position, _)| &self.session.recipe.cells[*position]);
        let folders = cells.filter_map(|cell| log_folder(cell, "")).unique();
        folders.into_iter().try_for_each(|folder| {
            log::prove(&folder).map_err(|e| {
                miette!(
                    help = "make the folder writable, move what is in its way, free some space, or name another \
                            folder in log.folder",
                    "nothing was measured: the log cannot be written to {}: {e}",
                    folder.display()
                )
            })
        })
    }
}

/// The folder for the log of the row with this [`name`](crate::row::name); `None` of a cell without a log.
pub(super) fn log_folder(cell: &Cell, name: &str) -> Option<PathBuf> {
    let folder = cell.log.as_ref()?.folder(cell).expect("checked with the cell");
    Some(folder.join(name))
}

//! `[log]`: the steps of a cell in files, while it runs.

use std::path::PathBuf;

use super::cell::Cell;
use super::save::filled;
use crate::keys::key::DefaultValue::Required;
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Rule, Section};

section! {
    /// Files with every step of a cell, written while it runs. Without the section there are none.
    #[derive(Eq)]
    pub struct Log: Section::new("log") => {
        /// Folder for the logs, relative to the current directory; `{seed}` in its name is the cell's seed, and so on for
        /// other keys. Each process of a cell has a folder in it, named as its row, with `steps.jsonl` (a line of JSON a step)
        /// and the same numbers for TensorBoard.
        folder: String = Key::method(Values::Text).default(Required),
    }
}

impl Log {
    /// The folder of a cell's logs.
    ///
    /// # Errors
    /// A `{key}` in its name that the cell does not have.
    pub fn folder(&self, cell: &Cell) -> Result<PathBuf, Rule> {
        filled(cell, "log.folder", &self.folder)
    }
}

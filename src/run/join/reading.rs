//! [`Reading`]: the cells of a recipe as this process has read them. A rank runs no cells but these: it is told which by a
//! fingerprint, and takes everything else from here.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::launched::Launched;
use crate::common::text::hex;
use crate::recipe::Cell;

/// What two processes have in common that have read the same cell: [`Cell::to_json`]
pub fn fingerprint(cell: &Value) -> String {
    hex(&Sha256::digest(cell.to_string()))
}

/// The cells as the ranks of a start run them.
#[derive(Debug)]
pub struct Reading<'r> {
    /// By fingerprint.
    cells: HashMap<String, Cow<'r, Cell>>,
    /// The fingerprint of all cells in their order.
    pub fingerprint: String,
}

impl<'r> Reading<'r> {
    pub fn new(cells: &'r [Cell], launched: &Launched) -> Self {
        let mut all = Sha256::new();
        let read = |cell| {
            let cell = launched.placed(cell);
            let fingerprint = fingerprint(&cell.to_json());
            all.update(&fingerprint);
            (fingerprint, cell)
        };
        let cells = cells.iter().map(read).collect();
        Self { cells, fingerprint: hex(&all.finalize()) }
    }

    /// The cell with this fingerprint.
    pub fn cell(&self, fingerprint: &str) -> Option<&Cell> {
        self.cells.get(fingerprint).map(Cow::as_ref)
    }
}

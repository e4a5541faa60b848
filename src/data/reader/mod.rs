//! One reader of data files: [`Records`], whatever the files are, and [`rows`] of those with columns.

mod config;
mod csv;
mod elements;
mod fit;
mod json;
mod kind;
mod lines;
mod parquet;
mod records;
mod rows;
mod shape;
mod split;
mod text;
mod tokens;

pub use config::{Columns, Format, Learn, Reading};
pub use kind::{Kind, describes, ending};
pub use records::{LeftOut, Records, open};
pub use rows::{Fields, Row, Rows, Wanted, rows};
pub use split::{Keep, Side};

use super::DataError;
use super::record::Record;

/// A part of a file.
pub struct Part {
    /// Of the line, row, element or token with which it begins, from 1 on.
    pub number: usize,
    /// `None` where it is blank; and why it cannot be read.
    pub record: Result<Option<Record>, String>,
}

#[cfg(test)]
mod tests;

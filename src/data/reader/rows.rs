//! [`Row`]: the columns of one example, as any file with columns has them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minijinja::Value;
use serde::Deserialize;
use serde::de::value::MapDeserializer;

use super::csv::Csv;
use super::elements::Elements;
use super::kind::Kind;
use super::parquet::Parquet;
use super::{DataError, json};

/// One example.
#[derive(Debug)]
pub struct Row {
    /// Of its line in JSON lines and CSV, of the row in parquet, of the element in a list; from 1 on.
    pub number: usize,
    /// Why it cannot be read, else.
    pub columns: Result<Fields, String>,
}

/// Columns and their values, in the order of the file. A column that nobody wants is undefined.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Vec<(String, Value)>);

impl Fields {
    pub fn new(fields: Vec<(String, Value)>) -> Self {
        Self(fields)
    }

    /// The last value of this name, as Python reads equal keys.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// An object with its keys in this order.
pub fn object(fields: Vec<(String, Value)>) -> Value {
    Value::deserialize(MapDeserializer::new(fields.into_iter())).unwrap_or_default()
}

/// Which columns are read.
#[derive(Clone, Debug)]
pub struct Wanted(Option<Arc<[String]>>);

impl Wanted {
    pub fn all() -> Self {
        Self(None)
    }

    pub fn these<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self(Some(names.into_iter().map(Into::into).collect()))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.iter().any(|own| own == name))
    }
}

/// The rows of a file.
pub struct Rows {
    path: PathBuf,
    kind: Kind,
    /// Of the columns, where every row has the same.
    names: Option<Vec<String>>,
    rows: Box<dyn Iterator<Item = Result<Row, DataError>> + Send>,
}

/// The rows of a file with columns: JSON lines, a JSON list, CSV or parquet.
///
/// # Errors
/// A file that cannot be read, or has no columns.
pub fn rows(path: &Path, wanted: Wanted) -> Result<Rows, DataError> {
    let kind = Kind::from_path(path).filter(|kind| !kind.is_plain() && *kind != Kind::Tokens);
    let mut kind = kind.ok_or_else(|| {
        DataError::new(format!(
            "{} has no columns: examples are in a .jsonl, .json, .csv, .tsv or .parquet file",
            path.display()
        ))
    })?;
    let mut names = None;
    let rows: Box<dyn Iterator<Item = _> + Send> = match kind {
        Kind::Csv(separator) => {
            let csv = Csv::open(path, separator, wanted)?;
            names = Some(csv.names().to_vec());
            Box::new(csv)
        }
        Kind::Parquet => {
            let parquet = Parquet::open(path, &wanted)?;
            names = Some(parquet.names());
            Box::new(parquet)
        }
        _ => match Elements::open(path)?.filter(|_| kind == Kind::Json) {
            Some(elements) => Box::new(json::list(elements, wanted)),
            None => {
                kind = Kind::JsonLines;
                Box::new(json::lines(path, wanted)?)
            }
        },
    };
    Ok(Rows { path: path.to_path_buf(), kind, names, rows })
}

impl Rows {
    /// JSON lines where a `.json` file has these.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The names of the columns, where every row has the same; of JSON each row has its own.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// Where a row stands, for messages: `q.jsonl, line 3`.
    pub fn place(&self, number: usize) -> String {
        format!("{}, {} {number}", self.path.display(), self.kind.unit())
    }

    /// What `make` makes of each row.
    ///
    /// # Errors
    /// The first row of which nothing can be made, with its place.
    pub fn each<T>(mut self, make: impl Fn(&Fields) -> Result<T, String>) -> Result<Vec<T>, DataError> {
        let mut all = Vec::new();
        while let Some(Row { number, columns }) = self.next().transpose()? {
            let made = columns.and_then(|fields| make(&fields));
            all.push(made.map_err(|reason| DataError::new(format!("{}: {reason}", self.place(number))))?);
        }
        Ok(all)
    }
}

impl Iterator for Rows {
    type Item = Result<Row, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.next()
    }
}

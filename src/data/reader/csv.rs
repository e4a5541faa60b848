//! [`Csv`]: rows of comma-separated values as RFC 4180 has them, read as Python's `csv` reads them.
//!
//! Polars reads such a file whole, and says of a broken line only that there is one.

use std::io::{Bytes, Read};
use std::path::{Path, PathBuf};

use minijinja::Value;

use super::DataError;
use super::lines::{Reader, cannot_read, open, utf8};
use super::rows::{Fields, Row, Wanted};

/// Most bytes of a row: where a quote has no end, the rest of a file is one field.
const MOST: usize = 64 << 20;

pub struct Csv {
    bytes: Bytes<Reader>,
    path: PathBuf,
    separator: u8,
    names: Vec<String>,
    wanted: Wanted,
    /// Of the next byte.
    line: usize,
    ended: bool,
}

/// The line of a row and its fields, or why it is none.
type Numbered = (usize, Result<Vec<String>, String>);

/// Where a byte of a field is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Begin,
    Plain,
    Quoted,
    /// Behind a quote within quotes, which is their end or one half of a quote.
    Quote,
}

impl At {
    /// Where the byte behind this one is, which is added to the field if it is of it.
    fn after(self, byte: u8, field: &mut Vec<u8>) -> Self {
        let (next, is_text) = match (self, byte) {
            (Self::Begin, b'"') => (Self::Quoted, false),
            (Self::Quoted, b'"') => (Self::Quote, false),
            (Self::Quoted, _) | (Self::Quote, b'"') => (Self::Quoted, true),
            (Self::Begin | Self::Plain | Self::Quote, _) => (Self::Plain, true),
        };
        if is_text {
            field.push(byte);
        }
        next
    }
}

impl Csv {
    /// # Errors
    /// A file that cannot be read, or whose first line names no columns.
    pub fn open(path: &Path, separator: u8, wanted: Wanted) -> Result<Self, DataError> {
        let (reader, _) = open(path)?;
        let (bytes, path) = (reader.bytes(), path.to_path_buf());
        let mut csv = Self { bytes, path, separator, names: Vec::new(), wanted, line: 1, ended: false };
        let fail =
            |path: &Path, reason: String| DataError::new(format!("{}, line 1: {reason}", path.display()));
        let Some((_, header)) = csv.fields()? else { return Ok(csv) };
        let mut names = header.map_err(|reason| fail(&csv.path, reason))?;
        // Programs of countries with decimal commas write semicolons.
        if let ([name], b',') = (&names[..], separator)
            && name.contains(';')
        {
            csv.separator = b';';
            names = name.split(';').map(|name| name.trim_matches('"').to_string()).collect();
        }
        let twice = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name));
        if let Some((_, name)) = twice {
            return Err(fail(&csv.path, format!("two columns are called `{name}`: rename one")));
        }
        csv.names = names;
        Ok(csv)
    }

    /// The names of the columns; none of an empty file.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The fields of the next row that is not empty, and its line.
    fn fields(&mut self) -> Result<Option<Numbered>, DataError> {
        let (mut fields, mut field, mut at) = (vec![], vec![], At::Begin);
        let (mut first, mut length) = (self.line, 0);
        while !self.ended {
            let byte = match self.bytes.next() {
                Some(byte) => byte.map_err(|e| cannot_read(&self.path, &e))?,
                None => {
                    self.ended = true;
                    b'\n'
                }
            };
            let is_end = matches!(byte, b'\n' | b'\r') && at != At::Quoted;
            if self.ended && at == At::Quoted {
                return Ok(Some((first, Err("a quote has no end".into()))));
            }
            self.line += usize::from(byte == b'\n');
            length += 1;
            if length > MOST {
                self.ended = true;
                let size = MOST >> 20;
                return Ok(Some((first, Err(format!("a row of more than {size} MiB: a quote has no end")))));
            }
            if is_end && fields.is_empty() && at == At::Begin {
                // Also between the two bytes of a line's end.
                first = self.line;
                continue;
            }
            if is_end || byte == self.separator && at != At::Quoted {
                fields.push(std::mem::take(&mut field));
                at = At::Begin;
                if is_end {
                    let fields = fields.into_iter().map(text).collect();
                    return Ok(Some((first, fields)));
                }
                continue;
            }
            at = at.after(byte, &mut field);
        }
        Ok(None)
    }

    fn columns(&self, fields: Vec<String>) -> Result<Fields, String> {
        let (count, names) = (fields.len(), self.names.len());
        if count != names {
            return Err(format!(
                "it has {count} fields, and the first line names {names}; put quotes around a text with separators or \
                 quotes, and write each quote in it twice"
            ));
        }
        let column = |(name, field): (&String, String)| {
            let value = if self.wanted.has(name) { Value::from(field) } else { Value::UNDEFINED };
            (name.clone(), value)
        };
        Ok(Fields::new(self.names.iter().zip(fields).map(column).collect()))
    }
}

fn text(field: Vec<u8>) -> Result<String, String> {
    utf8(field, 0).map_err(|_| "it is not UTF-8; convert the file to UTF-8".into())
}

impl Iterator for Csv {
    type Item = Result<Row, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (number, fields) = match self.fields().transpose()? {
            Ok(row) => row,
            Err(e) => return Some(Err(e)),
        };
        Some(Ok(Row { number, columns: fields.and_then(|fields| self.columns(fields)) }))
    }
}

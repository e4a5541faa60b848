//! [`Lines`]: the lines of a file in UTF-8, read one by one.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::DataError;

/// The mark that some programs put before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub struct Lines {
    reader: BufReader<File>,
    path: PathBuf,
    number: usize,
    /// Bytes before the next line.
    offset: usize,
}

/// A line with its end.
pub struct Line {
    /// From 1 on.
    pub number: usize,
    /// Why it is no text, else.
    pub text: Result<String, String>,
}

/// Opens a file without the byte order mark that may stand at its beginning; with the number of its bytes.
///
/// # Errors
/// A file that cannot be read.
pub fn open(path: &Path) -> Result<(BufReader<File>, usize), DataError> {
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let begin = reader.fill_buf().map_err(|e| cannot_read(path, &e))?;
    let mark = if begin.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    reader.consume(mark);
    Ok((reader, mark))
}

pub fn cannot_read(path: &Path, e: &std::io::Error) -> DataError {
    DataError::new(format!("cannot read {}: {e}", path.display()))
}

/// Text from bytes of a file, the first of which is at `offset`.
///
/// # Errors
/// Where they are no UTF-8.
pub fn utf8(bytes: Vec<u8>, offset: usize) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|e| {
        let byte = offset + e.utf8_error().valid_up_to() + 1;
        format!("byte {byte} is not UTF-8; convert the file to UTF-8")
    })
}

impl Lines {
    /// # Errors
    /// A file that cannot be read.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let (reader, offset) = open(path)?;
        Ok(Self { reader, path: path.to_path_buf(), number: 0, offset })
    }
}

impl Iterator for Lines {
    type Item = Result<Line, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Vec::new();
        match self.reader.read_until(b'\n', &mut bytes) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(e) => return Some(Err(cannot_read(&self.path, &e))),
        }
        let start = self.offset;
        (self.number, self.offset) = (self.number + 1, start + bytes.len());
        Some(Ok(Line { number: self.number, text: utf8(bytes, start) }))
    }
}

//! [`Lines`]: the lines of a file in UTF-8, read one by one.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::DataError;
use super::kind::is_compressed;

/// The mark that some programs put before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes of a file, decompressed.
pub type Reader = BufReader<Box<dyn Read + Send>>;

pub struct Lines {
    reader: Reader,
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

/// Opens a file, which may be compressed, without the byte order mark that may stand at its beginning; with the number of the
/// mark's bytes.
///
/// # Errors
/// A file that cannot be read.
pub fn open(path: &Path) -> Result<(Reader, usize), DataError> {
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    let bytes: Box<dyn Read + Send> =
        if is_compressed(path) { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut reader = BufReader::with_capacity(1 << 18, bytes);
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Also of several members, as `cat a.gz b.gz` makes it.
    #[test]
    fn a_compressed_file_is_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt.gz");
        let member = |text: &str| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let whole = [member("\u{feff}one\nt"), member("wo\n")].concat();
        std::fs::write(&path, &whole).unwrap();
        let lines: Vec<String> =
            Lines::open(&path).unwrap().map(|line| line.unwrap().text.unwrap()).collect();
        assert_eq!(lines, ["one\n", "two\n"]);
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let cut = Lines::open(&path).unwrap().find_map(Result::err).unwrap().to_string();
        assert!(cut.contains("cannot read") && cut.contains("a.txt.gz"), "{cut}");
    }
}

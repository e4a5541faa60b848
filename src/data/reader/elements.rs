//! [`Elements`]: the elements of a file with a JSON list, read one by one.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use super::DataError;
use super::lines::{Reader, cannot_read, open, utf8};

/// The text of each element, with its number from 1 on. What is no text, and a list without its end, are elements that say
/// why.
pub struct Elements {
    reader: Reader,
    path: PathBuf,
    number: usize,
    /// Bytes that are read.
    offset: usize,
    ended: bool,
}

/// What ended an element.
#[derive(PartialEq)]
enum End {
    Comma,
    List,
    File,
}

impl Elements {
    /// `None` for a file that does not begin with a list.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn open(path: &Path) -> Result<Option<Self>, DataError> {
        let (reader, offset) = open(path)?;
        let mut elements = Self { reader, path: path.to_path_buf(), number: 0, offset, ended: false };
        let mut first = None;
        elements.take_until(|byte| {
            first = (!byte.is_ascii_whitespace()).then_some(byte);
            first.is_some()
        })?;
        Ok((first == Some(b'[')).then_some(elements))
    }

    /// Reads bytes up to the first that `ends` says ends it, this one too.
    fn take_until(&mut self, mut ends: impl FnMut(u8) -> bool) -> Result<(), DataError> {
        loop {
            let bytes = self.reader.fill_buf().map_err(|e| cannot_read(&self.path, &e))?;
            let end = bytes.iter().position(|byte| ends(*byte));
            let read = end.map_or(bytes.len(), |end| end + 1);
            self.reader.consume(read);
            self.offset += read;
            if end.is_some() || read == 0 {
                return Ok(());
            }
        }
    }

    /// The bytes of the next element without what ends it.
    fn element(&mut self) -> Result<(Vec<u8>, End), DataError> {
        let (mut bytes, mut end) = (Vec::new(), End::File);
        let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
        self.take_until(|byte| {
            if quoted {
                (quoted, escaped) = (escaped || byte != b'"', !escaped && byte == b'\\');
            } else {
                match byte {
                    b'"' => quoted = true,
                    b'[' | b'{' => depth += 1,
                    b',' if depth == 0 => end = End::Comma,
                    b']' if depth == 0 => end = End::List,
                    b']' | b'}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            let ended = end != End::File;
            if !ended {
                bytes.push(byte);
            }
            ended
        })?;
        Ok((bytes, end))
    }

    /// Why the bytes behind the list should not be there.
    fn trailing(&mut self) -> Result<Option<String>, DataError> {
        let mut trails = false;
        self.take_until(|byte| {
            trails = !byte.is_ascii_whitespace();
            trails
        })?;
        let offset = self.offset;
        Ok(trails.then(|| format!("something stands behind the end of the list, at byte {offset}")))
    }
}

impl Iterator for Elements {
    type Item = Result<(usize, Result<String, String>), DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let start = self.offset;
        let (bytes, end) = match self.element() {
            Ok(element) => element,
            Err(e) => return Some(Err(e)),
        };
        let is_blank = bytes.iter().all(u8::is_ascii_whitespace);
        let is_first = self.number == 0;
        self.number += 1;
        let number = self.number;
        if end == End::Comma {
            return Some(Ok((number, utf8(bytes, start))));
        }
        self.ended = end == End::File || is_blank;
        if end == End::File {
            return Some(Ok((number, Err("the list does not end: the file is cut".into()))));
        }
        let trailing = match self.trailing() {
            Ok(trailing) => trailing,
            Err(e) => return Some(Err(e)),
        };
        self.ended = true;
        match (trailing, is_blank) {
            (Some(reason), _) => Some(Ok((number, Err(reason)))),
            (None, true) if is_first => None,
            (None, true) => Some(Ok((number, Err("the list ends with a comma".into())))),
            (None, false) => Some(Ok((number, utf8(bytes, start)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str) -> Option<Vec<Result<String, String>>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        std::fs::write(&path, text).unwrap();
        let elements = Elements::open(&path).unwrap()?;
        Some(elements.map(|element| element.unwrap().1.map(|text| text.trim().to_string())).collect())
    }

    #[test]
    fn a_list_is_cut_between_its_elements() {
        let text = " \n[{\"a\": \"],\\\"[\\\\\"}, [1, [2]],3 ,\n {\"b\": {\"c\": [\"{\"]}}\n]\n";
        let parts = ["{\"a\": \"],\\\"[\\\\\"}", "[1, [2]]", "3", "{\"b\": {\"c\": [\"{\"]}}"];
        assert_eq!(elements(text).unwrap(), parts.map(|part| Ok(part.to_string())));
        assert_eq!(elements("\u{feff}[ ]").unwrap(), []);
        assert_eq!(elements("{\"a\": 1}"), None);
        assert_eq!(elements(" \n"), None);
    }

    #[test]
    fn a_list_that_is_cut_or_goes_on_says_so() {
        let last = |text: &str| elements(text).unwrap().pop().unwrap().unwrap_err();
        for cut in ["[", "[{\"a\": 1}", "[{\"a\": 1},", "[{\"a\": \"]"] {
            assert!(last(cut).contains("the list does not end"), "{cut}");
        }
        assert!(last("[1,]").contains("ends with a comma"));
        assert!(last("[1] 2").contains("behind the end of the list, at byte 5"));
        assert!(last("[] 2").contains("behind the end of the list"));
    }
}

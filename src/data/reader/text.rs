//! [`Documents`]: the documents of a file of text, read one by one; and their paragraphs.

use std::collections::VecDeque;
use std::path::Path;

use super::kind::Kind;
use super::lines::{Line, Lines};
use super::{DataError, Part};
use crate::data::record::Record;
use crate::data::tokenizer::END_OF_TEXT;

/// The documents of a file, none of them blank. White space at the beginning of a line is part of the text.
pub struct Documents {
    lines: Lines,
    is_wikitext: bool,
    /// The document that is being read, and the line where it begins.
    open: (String, usize),
    /// Those that are read and not given yet.
    ready: VecDeque<(String, usize)>,
    /// Whether the line before is blank.
    after_blank: bool,
    ended: bool,
}

impl Documents {
    /// # Errors
    /// A file that cannot be read.
    pub fn open(path: &Path, kind: Kind) -> Result<Self, DataError> {
        Ok(Self {
            lines: Lines::open(path)?,
            is_wikitext: kind == Kind::WikiText,
            open: (String::new(), 1),
            ready: VecDeque::new(),
            after_blank: true,
            ended: false,
        })
    }

    /// Ends the open document; the next one begins in this line.
    fn end(&mut self, next: usize) {
        let (document, number) = std::mem::replace(&mut self.open, (String::new(), next));
        let document = if self.is_wikitext { document.trim() } else { without_blank_ends(&document) };
        if !document.trim().is_empty() {
            self.ready.push_back((document.to_string(), number));
        }
    }

    fn add(&mut self, line: &str, number: usize) {
        if self.is_wikitext {
            if self.after_blank && is_title(line) {
                self.end(number);
            }
            self.after_blank = line.trim().is_empty();
            self.open.0.push_str(line);
            return;
        }
        for (index, part) in line.split(END_OF_TEXT).enumerate() {
            if index > 0 {
                self.end(number);
            }
            self.open.0.push_str(part);
        }
    }
}

impl Iterator for Documents {
    type Item = Result<Part, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((document, number)) = self.ready.pop_front() {
                return Some(Ok(Part { number, record: Ok(Some(Record::Text(document))) }));
            }
            if self.ended {
                return None;
            }
            match self.lines.next() {
                Some(Ok(Line { number, text: Ok(line) })) => self.add(&line, number),
                Some(Ok(Line { number, text: Err(reason) })) => {
                    return Some(Ok(Part { number, record: Err(reason) }));
                }
                Some(Err(e)) => return Some(Err(e)),
                None => {
                    self.ended = true;
                    self.end(0);
                }
            }
        }
    }
}

/// The paragraphs of a document, none of them blank.
pub fn paragraphs(kind: Kind, document: &str) -> Vec<String> {
    let lines =
        document.lines().map(|line| if kind == Kind::WikiText { line.trim() } else { line.trim_end() });
    let is_heading = |line: &str| kind == Kind::WikiText && heading(line).is_some();
    lines.filter(|line| !line.is_empty() && !is_heading(line)).map(str::to_string).collect()
}

/// A text without its blank lines at both ends, and without white space behind its last line.
fn without_blank_ends(text: &str) -> &str {
    let blank = text.len() - text.trim_start().len();
    let first = text[..blank].rfind('\n').map_or(0, |end| end + 1);
    text[first..].trim_end()
}

/// Whether a line is a heading of the first level; the second is ` = = Title = = `.
fn is_title(line: &str) -> bool {
    heading(line)
        .is_some_and(|title| !title.starts_with('=') && !title.ends_with('=') && !title.trim().is_empty())
}

/// The text of a heading of any level.
fn heading(line: &str) -> Option<&str> {
    line.trim().strip_prefix("= ")?.strip_suffix(" =")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(name: &str, text: &str) -> (Vec<String>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let kind = Kind::from_path(&path).unwrap();
        let documents: Vec<String> = Documents::open(&path, kind)
            .unwrap()
            .map(|part| match part.unwrap().record.unwrap() {
                Some(Record::Text(text)) => text,
                other => panic!("{other:?}"),
            })
            .collect();
        let paragraphs = documents.iter().flat_map(|document| paragraphs(kind, document)).collect();
        (documents, paragraphs)
    }

    #[test]
    fn indentation_is_text() {
        let code = "\n \n    if x:\n\treturn = x =\n\n= a =  \n";
        let (whole, lines) = documents("a.txt", code);
        assert_eq!(whole, ["    if x:\n\treturn = x =\n\n= a ="]);
        assert_eq!(lines, ["    if x:", "\treturn = x =", "= a ="]);
        let (whole, lines) = documents("b.txt", "  one<|endoftext|>\r\n  two\r\n  three\r\n<|endoftext|> \n");
        assert_eq!(whole, ["  one", "  two\r\n  three"]);
        assert_eq!(lines, ["  one", "  two", "  three"]);
        // WikiText has a space before every line.
        let (whole, lines) = documents("c.tokens", " \n = A = \n \n one . \n = = B = = \n two . \n");
        assert_eq!(whole, ["= A = \n \n one . \n = = B = = \n two ."]);
        assert_eq!(lines, ["one .", "two ."]);
    }
}

//! The documents and paragraphs of a file of text: JSON lines, WikiText's articles, or text with marks between documents.

use std::path::Path;

use super::DataError;
use super::json_lines::{Record, records, utf8};
use super::tokenizer::END_OF_TEXT;
use crate::common::text::without_mark;

/// What a file of text is, which its ending says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Documents with [`END_OF_TEXT`] between them. A paragraph is a line.
    Text,
    /// Articles. A paragraph is a line that is no heading.
    WikiText,
    /// A document a line, which is one paragraph too.
    JsonLines,
}

impl Kind {
    /// Endings of the files that are read.
    pub const ENDINGS: [&str; 4] = ["tokens", "raw", "txt", "jsonl"];

    /// `None` for a file that is not read.
    pub fn from_path(path: &Path) -> Option<Self> {
        match ending(path).as_str() {
            "txt" => Some(Self::Text),
            "tokens" | "raw" => Some(Self::WikiText),
            "jsonl" => Some(Self::JsonLines),
            _ => None,
        }
    }

    /// A file's documents, none of them blank. White space at the beginning of a line is part of the text.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is no document, named.
    pub fn documents(self, path: &Path) -> Result<Vec<String>, DataError> {
        let mut documents = match self {
            Self::JsonLines => records(path, document)?,
            Self::WikiText => {
                let text = utf8(path)?;
                articles(without_mark(&text)).iter().map(|article| article.trim().to_string()).collect()
            }
            Self::Text => {
                let text = utf8(path)?;
                without_mark(&text)
                    .split(END_OF_TEXT)
                    .map(|text| without_blank_ends(text).to_string())
                    .collect()
            }
        };
        documents.retain(|document| !document.trim().is_empty());
        Ok(documents)
    }

    /// The paragraphs of a document, none of them blank.
    pub fn paragraphs(self, document: String) -> Vec<String> {
        match self {
            Self::JsonLines => vec![document],
            Self::WikiText => {
                let lines = document.lines().map(str::trim);
                lines.filter(|line| !line.is_empty() && heading(line).is_none()).map(str::to_string).collect()
            }
            Self::Text => {
                let lines = document.lines().map(str::trim_end);
                lines.filter(|line| !line.is_empty()).map(str::to_string).collect()
            }
        }
    }
}

/// The ending of a path in lower case; empty without one.
pub fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default()
}

/// `{ "text": … }`, or `{ "question": …, "answer": … }` one after the other.
fn document(record: Record) -> Result<String, String> {
    match record {
        Record { text: Some(text), .. } => Ok(text),
        Record { question: Some(question), answer: Some(answer), .. } => Ok(format!("{question}\n{answer}")),
        _ => Err("expected the key `text`, or `question` and `answer`, as strings".into()),
    }
}

/// A text without its blank lines at both ends, and without white space behind its last line.
fn without_blank_ends(text: &str) -> &str {
    let blank = text.len() - text.trim_start().len();
    let first = text[..blank].rfind('\n').map_or(0, |end| end + 1);
    text[first..].trim_end()
}

/// WikiText's articles, each starting with its heading ` = Title = `.
fn articles(text: &str) -> Vec<String> {
    let mut articles = vec![String::new()];
    let mut after_blank = true;
    for line in text.split_inclusive('\n') {
        if after_blank && is_title(line) {
            articles.push(String::new());
        }
        after_blank = line.trim().is_empty();
        let last = articles.len() - 1;
        articles[last].push_str(line);
    }
    articles
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
        let documents = kind.documents(&path).unwrap();
        (documents.clone(), documents.into_iter().flat_map(|document| kind.paragraphs(document)).collect())
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

    #[test]
    fn a_record_is_one_document_and_one_paragraph_as_it_is_written() {
        let text = "{\"text\": \"  a\\n\\n  = b = \\n\"}\n{\"text\": \" \\n\"}\n\
                    {\"question\": \" c?\", \"answer\": \"d\\ne\"}\n";
        let (whole, paragraphs) = documents("a.JSONL", text);
        assert_eq!(whole, ["  a\n\n  = b = \n", " c?\nd\ne"]);
        assert_eq!(paragraphs, whole);
    }
}

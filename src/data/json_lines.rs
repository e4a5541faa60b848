//! [`records`]: the records of a file of JSON lines, read as Python's `json` reads them: the last of equal keys counts,
//! numbers have any size, and NaN and the infinities are values too.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::DataError;
use crate::common::text::without_mark;

/// Values that Python writes and JSON does not have.
const NOT_FINITE: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// What a record says under the keys that are read; `None` where there is no such key, or no string under it.
#[derive(Default)]
pub struct Record {
    pub text: Option<String>,
    pub question: Option<String>,
    pub answer: Option<String>,
}

/// What `make` makes of each record of a file. Empty lines are none.
///
/// # Errors
/// A file that is not UTF-8, and a line that is no record or of which nothing can be made, named.
pub fn records<T>(path: &Path, make: impl Fn(Record) -> Result<T, String>) -> Result<Vec<T>, DataError> {
    let text = utf8(path)?;
    let record = |(number, line): (usize, &str)| {
        let made = read(line).and_then(&make);
        made.map_err(|e| DataError::new(format!("{}, line {}: {e}", path.display(), number + 1)))
    };
    without_mark(&text).lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(record).collect()
}

/// The text of a file.
///
/// # Errors
/// A file that cannot be read, or is not UTF-8.
pub fn utf8(path: &Path) -> Result<String, DataError> {
    let cannot = |e: String| DataError::new(format!("cannot read {}: {e}", path.display()));
    String::from_utf8(std::fs::read(path).map_err(|e| cannot(e.to_string()))?).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        cannot(format!("byte {} is not UTF-8; convert the file to UTF-8", valid + 1))
    })
}

fn read(line: &str) -> Result<Record, String> {
    serde_json::from_str(&finite(line)).map_err(|e| reason(line, &e))
}

/// Why a line is no record.
fn reason(line: &str, error: &serde_json::Error) -> String {
    let message = error.to_string();
    let what = message.split(" at line ").next().unwrap_or_default();
    match line.trim_start().as_bytes().first() {
        Some(b'[') => "a list; a file of JSON lines has an object on each line, such as {\"text\": …}".into(),
        Some(b'{') if error.is_eof() => {
            "the object does not end on its line; a file of JSON lines has a whole object on each line".into()
        }
        Some(b'{') if what.contains("hex escape") && has_half(line) => format!(
            "a string has one half of a pair of surrogates (\\ud800 to \\udfff) without the other, which no text can \
             hold: replace it (column {})",
            error.column()
        ),
        Some(b'{') => format!("not JSON: {what} in column {}", error.column()),
        _ => "no JSON object; a file of JSON lines has an object on each line, such as {\"text\": …}".into(),
    }
}

/// Whether there is an escape of a surrogate.
fn has_half(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["\\ud8", "\\ud9", "\\uda", "\\udb", "\\udc", "\\udd", "\\ude", "\\udf"]
        .iter()
        .any(|half| line.contains(half))
}

/// A line with null for values that are not finite, which mean nothing to a text.
fn finite(line: &str) -> Cow<'_, str> {
    if !NOT_FINITE.iter().any(|value| line.contains(value)) {
        return line.into();
    }
    let (mut out, mut rest, mut quoted) = (String::with_capacity(line.len()), line, false);
    while let Some(next) = rest.chars().next() {
        let value = NOT_FINITE.iter().find(|value| !quoted && rest.starts_with(**value));
        let length = match value {
            Some(value) => {
                out.push_str("null");
                value.len()
            }
            None => {
                quoted ^= next == '"';
                // What is escaped ends no string.
                let escaped = rest[next.len_utf8()..].chars().next().filter(|_| quoted && next == '\\');
                let length = next.len_utf8() + escaped.map_or(0, char::len_utf8);
                out.push_str(&rest[..length]);
                length
            }
        };
        rest = &rest[length..];
    }
    out.into()
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Record;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
                let mut record = Record::default();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    let value = match key.as_ref() {
                        "text" => &mut record.text,
                        "question" => &mut record.question,
                        "answer" => &mut record.answer,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *value = match map.next_value()? {
                        Value::String(text) => Some(text),
                        _ => None,
                    };
                }
                Ok(record)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> Result<Option<String>, String> {
        read(line).map(|record| record.text)
    }

    /// The same lines through `json.loads` give the same texts.
    #[test]
    fn what_python_reads_is_read() {
        for (line, expected) in [
            (r#"{"text": "a", "text": "b"}"#, Some("b")),
            (r#"{"text": "a", "text": 1}"#, None),
            (r#" {	"text" :"a\u00e9\ud83e\udd8a" } "#, Some("aé🦊")),
            (
                r#"{"score": NaN, "text": "NaN, \"-Infinity\" \\", "low": -Infinity, "high": Infinity}"#,
                Some("NaN, \"-Infinity\" \\"),
            ),
            (r#"{"text": "a", "n": [123456789012345678901234567890, 1e400, -0.0E-5]}"#, Some("a")),
            (r#"{"other": "\ud800", "text": "\ud83d\ude00"}"#, Some("😀")),
            (r#"{"te\u0078t": "a"}"#, Some("a")),
            (r#"{"text": NaN}"#, None),
            (r#"{"text": {"text": ["b"]}, "question": "c"}"#, None),
            ("{\"text\": \"a\u{2028}b\"}\r", Some("a\u{2028}b")),
            ("{}", None),
        ] {
            assert_eq!(text(line).unwrap().as_deref(), expected, "{line}");
        }
        let deep = format!("{{\"x\": {}{}, \"text\": \"a\"}}", "[".repeat(900), "]".repeat(900));
        assert_eq!(text(&deep).unwrap().as_deref(), Some("a"));
    }

    #[test]
    fn what_is_no_record_says_why() {
        for (line, reason) in [
            ("[1, 2]", "a list; a file of JSON lines"),
            ("\"a\"", "no JSON object"),
            ("text", "no JSON object"),
            ("NaN", "no JSON object"),
            ("{", "does not end on its line"),
            ("{\"text\": \"a", "does not end on its line"),
            ("{'text': 'a'}", "not JSON: key must be a string in column 2"),
            ("{\"text\": \"a\",}", "not JSON: trailing comma in column 14"),
            ("{\"text\": \"a\"}{\"text\": \"b\"}", "not JSON: trailing characters in column 14"),
            ("{\"text\": -NaN}", "not JSON: invalid number in column 11"),
            ("{\"text\": \"a\tb\"}", "control character"),
            ("{\"text\": \"a\\ud800b\"}", "one half of a pair of surrogates"),
            ("{\"text\": \"\\uDC00\"}", "one half of a pair of surrogates"),
            ("{\"text\": \"\\ud800\\ud800\"}", "one half of a pair of surrogates"),
            ("{\"text\": \"\\x41\"}", "not JSON: invalid escape"),
        ] {
            let message = text(line).unwrap_err();
            assert!(message.contains(reason), "{line}: {message}");
        }
    }

    #[test]
    fn lines_are_counted_from_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let write = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
        let read = || records(&path, |record| record.text.ok_or_else(|| "no text".to_string()));
        write(b"\xef\xbb\xbf{\"text\": \"a\"}\r\n\r\n{\"text\": \"b\\n\"}");
        assert_eq!(read().unwrap(), ["a", "b\n"]);
        write(b"{\"text\": \"a\"}\n\n{\"body\": 1}");
        assert!(read().unwrap_err().to_string().ends_with("a.jsonl, line 3: no text"));
        write(b"{\"text\": \"\xff\"}");
        assert!(read().unwrap_err().to_string().contains("byte 11 is not UTF-8"));
    }
}

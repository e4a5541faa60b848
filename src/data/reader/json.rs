//! Rows of JSON lines and of JSON lists, read as Python's `json` reads them: the last of equal keys counts, numbers that
//! are not read have any size, and NaN and the infinities are values too.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use minijinja::Value;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::DataError;
use super::elements::Elements;
use super::lines::{Line, Lines};
use super::rows::{Fields, Row, Wanted};

/// Values that Python writes and JSON does not have.
const NOT_FINITE: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// The rows of a file with an object on each line. Empty lines are none.
///
/// # Errors
/// A file that cannot be read.
pub fn lines(
    path: &Path,
    wanted: Wanted,
) -> Result<impl Iterator<Item = Result<Row, DataError>> + Send + use<>, DataError> {
    let lines = Lines::open(path)?;
    Ok(lines.filter_map(move |line| match line {
        Ok(Line { text: Ok(text), .. }) if text.trim().is_empty() => None,
        Ok(Line { number, text }) => {
            Some(Ok(Row { number, columns: text.and_then(|text| object(&text, &wanted)) }))
        }
        Err(e) => Some(Err(e)),
    }))
}

/// The rows of a list of objects.
pub fn list(elements: Elements, wanted: Wanted) -> impl Iterator<Item = Result<Row, DataError>> + Send {
    elements.map(move |element| {
        let (number, text) = element?;
        Ok(Row { number, columns: text.and_then(|text| object(&text, &wanted)) })
    })
}

/// Any JSON value, with the order of its keys.
///
/// # Errors
/// Where it is no JSON.
pub fn value(text: &str) -> Result<Value, String> {
    serde_json::from_str(&finite(text)).map_err(|e| format!("not JSON: {e}"))
}

/// An object. What nobody wants of it is undefined.
fn object(text: &str, wanted: &Wanted) -> Result<Fields, String> {
    let text = finite(text);
    let mut json = serde_json::Deserializer::from_str(&text);
    let object = Object(wanted).deserialize(&mut json).and_then(|object| json.end().map(|()| object));
    object.map_err(|e| reason(&text, &e))
}

/// Why a line, or an element of a list, is no object.
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

/// Reads an object.
struct Object<'a>(&'a Wanted);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut columns = Vec::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let value = if self.0.has(&key) {
                map.next_value()?
            } else {
                map.next_value::<IgnoredAny>()?;
                Value::UNDEFINED
            };
            columns.push((key.into_owned(), value));
        }
        Ok(Fields::new(columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> Result<Option<String>, String> {
        let columns = object(line, &Wanted::these(["text"]))?;
        Ok(columns.get("text").and_then(|text| text.as_str()).map(String::from))
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
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let rows = lines(&path, Wanted::all()).unwrap().map(Result::unwrap);
            let text = |fields: Fields| fields.get("text").map(Value::to_string);
            rows.map(|row| (row.number, row.columns.map(text))).collect::<Vec<_>>()
        };
        let text = |text: &str| Ok(Some(text.to_string()));
        assert_eq!(
            read(b"\xef\xbb\xbf{\"text\": \"a\"}\r\n\r\n{\"text\": \"b\"}"),
            [(1, text("a")), (3, text("b"))]
        );
        let [(1, Err(reason)), (2, Ok(_))] = &read(b"{\"text\": \"\xff\"}\n{}")[..] else {
            panic!("not two rows")
        };
        assert!(reason.contains("byte 11 is not UTF-8"), "{reason}");
    }

    #[test]
    fn nested_values_keep_the_order_of_their_keys() {
        let text =
            r#"{"b": [{"z": 1, "a": null, "m": {"y": 1.0, "x": [true, -3]}}], "a": "\u00e9", "b2": NaN}"#;
        let fields = object(text, &Wanted::all()).unwrap();
        assert_eq!(fields.names(), ["b", "a", "b2"]);
        assert_eq!(
            serde_json::to_string(fields.get("b").unwrap()).unwrap(),
            r#"[{"z":1,"a":null,"m":{"y":1.0,"x":[true,-3]}}]"#
        );
        assert_eq!(
            (fields.get("a").unwrap().as_str(), fields.get("b2").unwrap().is_none()),
            (Some("é"), true)
        );
        let seen = object(r#"{"a": 1, "b": 2}"#, &Wanted::these(["b"])).unwrap();
        assert!(seen.get("a").unwrap().is_undefined() && seen.names() == ["a", "b"]);
    }
}

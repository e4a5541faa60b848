//! JSON for files of results: a line for each key, and a whole array on one line, so that a run's steps are not a line each.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// The value as JSON, with an end of line.
///
/// # Panics
/// When it is no plain data.
pub fn lines(value: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, Lines::default());
    value.serialize(&mut serializer).expect("results are plain data");
    text.push(b'\n');
    text
}

#[derive(Default)]
struct Lines<'a> {
    pretty: PrettyFormatter<'a>,
    /// Arrays that are open, one within the other.
    arrays: usize,
}

impl Formatter for Lines<'_> {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.arrays += 1;
        CompactFormatter.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.arrays -= 1;
        CompactFormatter.end_array(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.begin_object(writer),
            _ => CompactFormatter.begin_object(writer),
        }
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.end_object(writer),
            _ => CompactFormatter.end_object(writer),
        }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.begin_object_key(writer, first),
            _ => CompactFormatter.begin_object_key(writer, first),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.begin_object_value(writer),
            _ => CompactFormatter.begin_object_value(writer),
        }
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.end_object_value(writer),
            _ => CompactFormatter.end_object_value(writer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_key_has_a_line_and_an_array_has_one() {
        let value = json!({"a": {}, "b": [1.5, {"c": [null, {}], "d": "x"}], "e": {"f": [], "g": 1e-5}});
        let text = String::from_utf8(lines(&value)).unwrap();
        let expected = "{\n  \"a\": {},\n  \"b\": [1.5,{\"c\":[null,{}],\"d\":\"x\"}],\n  \"e\": {\n    \"f\": [],\n    \"g\": 0.00001\n  }\n}\n";
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}

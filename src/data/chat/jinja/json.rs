//! The filter `tojson` as transformers has it: Python's `json.dumps` with `ensure_ascii=False`.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use super::python;

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
///
/// # Errors
/// What JSON cannot express, and arguments of another kind.
pub fn tojson(
    value: &Value,
    ascii: Option<Value>,
    indent: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let ascii = ascii.or(named.get("ensure_ascii")?).is_some_and(|ascii: Value| ascii.is_true());
    let indent = match indent.or(named.get("indent")?).filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(i64::try_from(indent)?.max(0) as usize),
        }),
    };
    let separators: Option<Vec<String>> = named.get("separators")?;
    let sorted = named.get::<Option<bool>>("sort_keys")?.unwrap_or_default();
    named.assert_all_used()?;
    let between = if indent.is_some() { "," } else { ", " };
    let [item, key] = match separators {
        None => [between.into(), ": ".into()],
        Some(given) => given.try_into().map_err(|_| invalid("separators are two texts".into()))?,
    };
    let mut writer = Writer { out: String::new(), ascii, indent, item, key, sorted, depth: 0 };
    writer.value(value)?;
    Ok(writer.out)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

struct Writer {
    out: String,
    ascii: bool,
    indent: Option<String>,
    /// Between items, and behind a key.
    item: String,
    key: String,
    sorted: bool,
    depth: usize,
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq => {
                self.items('[', value.try_iter()?.checked(), ']', |own, item| own.value(&item?))?
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
                if self.sorted {
                    keys.sort();
                }
                self.items('{', keys.into_iter(), '}', |own, key| {
                    own.string(&name(&key)?);
                    own.out.push_str(&own.key.clone());
                    own.value(&value.get_item(&key)?)
                })?;
            }
            kind => return Err(invalid(format!("an object of type {kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn items<T>(
        &mut self,
        open: char,
        items: impl Iterator<Item = T>,
        close: char,
        mut write: impl FnMut(&mut Self, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        self.depth += 1;
        let mut empty = true;
        for item in items {
            if !empty {
                self.out.push_str(&self.item.clone());
            }
            empty = false;
            self.line();
            write(self, item)?;
        }
        self.depth -= 1;
        if !empty {
            self.line();
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(self.depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || self.ascii && c > '~' => {
                    c.encode_utf16(&mut [0; 2])
                        .iter()
                        .for_each(|unit| self.out.push_str(&format!("\\u{unit:04x}")));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A number as Python's `json` writes it.
fn number(value: &Value) -> String {
    match python::text(value) {
        text if text == "nan" => "NaN".into(),
        text if text.ends_with("inf") => text.replace("inf", "Infinity"),
        text => text,
    }
}

/// The text of a key.
fn name(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.to_string()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(key.to_string().to_lowercase()),
        ValueKind::Number => Ok(number(key)),
        kind => Err(invalid(format!("keys must be str, int, float, bool or None, not {kind}"))),
    }
}

//! Filters, tests and functions that MiniJinja lacks or has otherwise than jinja2.

use minijinja::value::{Kwargs, Rest, Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::globals;

use super::source::ITERABLE;
use super::{json, python};

/// What jinja2 has not, or not so: a template that needs it is refused.
const OTHERWISE: [&str; 7] = ["attr", "bool", "chain", "lines", "pprint", "split", "zip"];

pub fn add(environment: &mut Environment) {
    OTHERWISE.iter().for_each(|name| environment.remove_filter(name));
    environment.remove_global("debug");
    environment.add_filter(ITERABLE, iterable);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("trim", |value: &Value, chars: Option<&str>| {
        python::stripped(&python::text(value), chars)
    });
    environment.add_filter("string", |value: &Value| match value.as_str() {
        Some(_) => value.clone(),
        None => python::text(value).into(),
    });
    for name in ["default", "d"] {
        environment.add_filter(name, default);
    }
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_filter("sort", sort);
    environment.add_filter("list", |value: &Value| -> Result<Value, Error> {
        iterable(value.clone())?.try_iter()?.checked().collect::<Result<Vec<Value>, Error>>().map(Value::from)
    });
    environment.add_filter("indent", indent);
    for name in ["escape", "e", "forceescape"] {
        environment.add_filter(name, |value: &Value| Value::from_safe_string(escaped(&python::text(value))));
    }
    environment.add_filter("center", |text: &str, width: Option<usize>| {
        python::centered(text, width.unwrap_or(80), ' ')
    });
    environment.add_filter("wordcount", |text: &str| {
        text.split(python::is_space).filter(|word| !word.is_empty()).count()
    });
    environment.add_filter("truncate", truncate);
    environment.add_test("sequence", |value: &Value| match value.kind() {
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined => true,
        // A generator has no length.
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    });
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment.add_function("cycler", globals::cycler);
    environment.add_function("joiner", globals::joiner);
    environment.add_function("dict", dict);
}

/// What a loop can run over.
fn iterable(value: Value) -> Result<Value, Error> {
    match value.as_str() {
        None if value.is_none() => Err(invalid("'NoneType' object is not iterable")),
        // MiniJinja's loops do not see the last character of a text coming.
        Some(text) => Ok(text.chars().map(|c| Value::from(c.to_string())).collect()),
        None => Ok(value),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// `dict(mapping or pairs, **named)`.
fn dict(first: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let mut pairs: Vec<(Value, Value)> = Vec::new();
    if let Some(first) = first {
        let is_map = first.kind() == ValueKind::Map;
        for item in iterable(first.clone())?.try_iter()?.checked() {
            let item = item?;
            pairs.push(match is_map {
                true => (item.clone(), first.get_item(&item)?),
                false => (item.get_item(&0.into())?, item.get_item(&1.into())?),
            });
        }
    }
    for name in named.args() {
        pairs.push((name.into(), named.get(name)?));
    }
    Ok(Value::from_pairs(pairs))
}

/// `default(value, default='', boolean=False)`.
fn default(
    value: &Value,
    other: Option<Value>,
    boolean: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let other = other.or(named.get("default_value")?).unwrap_or_else(|| "".into());
    let boolean = boolean.or(named.get("boolean")?).unwrap_or_default();
    named.assert_all_used()?;
    Ok(if value.is_undefined() || boolean && !value.is_true() { other } else { value.clone() })
}

/// `int(value, default=0, base=10)`.
fn int(value: &Value, other: Option<Value>, base: Option<u32>, named: Kwargs) -> Result<Value, Error> {
    let other = other.or(named.get("default")?).unwrap_or_else(|| 0.into());
    let base = base.or(named.get("base")?).unwrap_or(10);
    named.assert_all_used()?;
    let whole = |number: f64| number.is_finite().then(|| Value::from(number.trunc() as i128));
    let number = match value.as_str() {
        Some(text) => {
            let text = python::stripped(text, None).replace('_', "");
            let prefix = match base {
                16 => "0x",
                8 => "0o",
                2 => "0b",
                _ => "",
            };
            let (sign, digits) = text.strip_prefix('-').map_or((1, &text[..]), |digits| (-1, digits));
            let digits = digits.strip_prefix(prefix).unwrap_or(digits);
            let number = i128::from_str_radix(digits, base.clamp(2, 36)).ok();
            number.map(|number| Value::from(sign * number)).or_else(|| text.parse().ok().and_then(whole))
        }
        None if value.kind() == ValueKind::Number && value.is_integer() => Some(value.clone()),
        None if value.kind() == ValueKind::Bool => Some(Value::from(i64::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok().and_then(whole),
    };
    Ok(number.unwrap_or(other))
}

/// `float(value, default=0.0)`.
fn float(value: &Value, other: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let other = other.or(named.get("default")?).unwrap_or_else(|| 0.0.into());
    named.assert_all_used()?;
    let number = match value.as_str() {
        Some(text) => python::stripped(text, None).replace('_', "").parse().ok(),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(number.map_or(other, Value::from))
}

/// `sort(value, reverse=False, case_sensitive=False, attribute=None)`.
fn sort(state: &mut State, value: Value, given: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let mut all: Vec<(String, Value)> = Vec::new();
    for name in named.args() {
        all.push((name.to_string(), named.get(name)?));
    }
    all.extend(
        ["reverse", "case_sensitive", "attribute"].map(String::from).into_iter().zip(given.iter().cloned()),
    );
    all.retain(|(_, value)| !value.is_none());
    minijinja::filters::sort(state, iterable(value)?, Kwargs::from_iter(all))
}

/// `indent(text, width=4, first=False, blank=False)`.
fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    named: Kwargs,
) -> Result<String, Error> {
    let width = width.or(named.get("width")?).unwrap_or_else(|| 4.into());
    let first = first.or(named.get("first")?).unwrap_or_default();
    let blank = blank.or(named.get("blank")?).unwrap_or_default();
    named.assert_all_used()?;
    let space = match width.as_str() {
        Some(space) => space.to_string(),
        None => " ".repeat(usize::try_from(width)?),
    };
    let lines = text.split('\n').enumerate().map(|(i, line)| {
        let is_indented = if i == 0 { first } else { blank || !line.is_empty() };
        if is_indented { format!("{space}{line}") } else { line.to_string() }
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// `truncate(text, length=255, killwords=False, end='...', leeway=5)`.
fn truncate(text: &str, given: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let (length, cuts, end, leeway): (Option<usize>, Option<bool>, Option<String>, Option<usize>) =
        from_args(&given)?;
    let length = length.or(named.get("length")?).unwrap_or(255);
    let cuts = cuts.or(named.get("killwords")?).unwrap_or_default();
    let end = end.or(named.get("end")?).unwrap_or_else(|| "...".into());
    let leeway = leeway.or(named.get("leeway")?).unwrap_or(5);
    named.assert_all_used()?;
    if text.chars().count() <= length + leeway {
        return Ok(text.into());
    }
    let kept: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    let whole = kept.rfind(' ').filter(|_| !cuts).unwrap_or(kept.len());
    Ok(kept[..whole].to_string() + &end)
}

/// Text for HTML, as MarkupSafe has it.
fn escaped(text: &str) -> String {
    [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ("\"", "&#34;")]
        .into_iter()
        .fold(text.to_string(), |text, (from, to)| text.replace(from, to))
}

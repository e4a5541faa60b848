//! Methods of Python's types that MiniJinja's own list lacks or has otherwise.

use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::python;

/// What a method of a value returns.
///
/// # Errors
/// A method that the type lacks, and what it raises.
pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match (value.as_str(), value.kind()) {
        (Some(text), _) => string(text, method, args)?,
        (_, ValueKind::Map | ValueKind::Seq) if method == "copy" && args.is_empty() => Some(value.clone()),
        (_, ValueKind::Seq | ValueKind::Iterable) if method == "index" => Some(index(value, args)?),
        _ => None,
    };
    own.map_or_else(|| unknown_method_callback(state, value, method, args), Ok)
}

fn raised(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_string())
}

/// `list.index`.
fn index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (item,): (&Value,) = from_args(args)?;
    let place = list.try_iter()?.position(|other| other == *item);
    place.map(Value::from).ok_or_else(|| raised("the list does not have this value"))
}

fn string(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let text = if method == "rstrip" { text } else { text.trim_start_matches(python::among(chars)) };
            if method == "lstrip" { text } else { text.trim_end_matches(python::among(chars)) }.into()
        }
        "split" => split(text, args, false)?,
        "rsplit" => split(text, args, true)?,
        "splitlines" => lines(text, args)?,
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let is_first = method == "partition";
            let parts = if is_first { text.split_once(separator) } else { text.rsplit_once(separator) };
            let missing = if is_first { [text, "", ""] } else { ["", "", text] };
            let parts = parts.map_or(missing, |(before, after)| [before, separator, after]);
            Value::from(Tuple::from(parts.map(Value::from)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count" => {
            search(text, method, args)?
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let items = items.try_iter()?.checked().collect::<Result<Vec<Value>, Error>>()?;
            let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            texts.ok_or_else(|| raised("join expects strings alone"))?.join(text).into()
        }
        "title" => titled(text).into(),
        "swapcase" => {
            let swapped = |c: char| match c.is_uppercase() {
                true => c.to_lowercase().collect::<String>(),
                false => c.to_uppercase().collect(),
            };
            text.chars().map(swapped).collect::<String>().into()
        }
        "casefold" => text.to_lowercase().replace('ß', "ss").into(),
        "isdecimal" => (!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())).into(),
        "zfill" | "ljust" | "rjust" | "center" => filled(text, method, args)?.into(),
        _ => return Ok(None),
    }))
}

/// Methods that make a text as long as a width.
fn filled(text: &str, method: &str, args: &[Value]) -> Result<String, Error> {
    let (width, fill): (usize, Option<char>) = from_args(args)?;
    let missing = |fill: char| fill.to_string().repeat(width.saturating_sub(text.chars().count()));
    let fill = fill.unwrap_or(' ');
    Ok(match method {
        "ljust" => format!("{text}{}", missing(fill)),
        "rjust" => format!("{}{text}", missing(fill)),
        "center" => python::centered(text, width, fill),
        _ => {
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+'])));
            format!("{sign}{}{digits}", missing('0'))
        }
    })
}

/// `str.split` and `str.rsplit`, whose arguments have names.
fn split(text: &str, args: &[Value], from_end: bool) -> Result<Value, Error> {
    let (separator, most, named): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.map_or_else(|| named.get("sep"), |given| Ok(Some(given)))?;
    let most = most.map_or_else(|| named.get("maxsplit"), |given| Ok(Some(given)))?;
    named.assert_all_used()?;
    let parts = usize::try_from(most.unwrap_or(-1)).map_or(usize::MAX, |most| most.saturating_add(1));
    let mut parts: Vec<&str> = match (separator, from_end) {
        (Some(""), _) => return Err(raised("empty separator")),
        (Some(separator), false) => text.splitn(parts, separator).collect(),
        (Some(separator), true) => text.rsplitn(parts, separator).collect(),
        (None, _) => words(text, parts, from_end),
    };
    if from_end {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// At most so many parts of a text between white space; from its end, the last word first.
fn words(text: &str, parts: usize, from_end: bool) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), text);
    loop {
        rest = match from_end {
            true => rest.trim_end_matches(python::is_space),
            false => rest.trim_start_matches(python::is_space),
        };
        let cut = if from_end { rest.rfind(python::is_space) } else { rest.find(python::is_space) };
        match cut {
            _ if rest.is_empty() => return words,
            Some(cut) if words.len() + 1 < parts => {
                let (before, after) = rest.split_at(cut);
                let space = after.chars().next().map_or(0, char::len_utf8);
                words.push(if from_end { &after[space..] } else { before });
                rest = if from_end { before } else { after };
            }
            _ => {
                words.push(rest);
                return words;
            }
        }
    }
}

/// `str.splitlines`.
fn lines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep, named): (Option<bool>, Kwargs) = from_args(args)?;
    let keep = keep.map_or_else(|| named.get("keepends"), |keep| Ok(Some(keep)))?.unwrap_or_default();
    let is_end =
        |c| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let (mut lines, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let end = rest.find(is_end).unwrap_or(rest.len());
        let length = match rest[end..].chars().next() {
            Some('\r') if rest[end..].starts_with("\r\n") => 2,
            last => last.map_or(0, char::len_utf8),
        };
        lines.push(Value::from(&rest[..if keep { end + length } else { end }]));
        rest = &rest[end + length..];
    }
    Ok(lines.into())
}

/// Methods that look for a text, or for any of several, between two places, which count from the end where they are negative.
fn search(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (what, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
    let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let place = |place: i64| {
        let count = bounds.len() as i64 - 1;
        let place = if place < 0 { (count + place).max(0) } else { place.min(count) };
        place as usize
    };
    let (start, end) = (place(start.unwrap_or(0)), place(end.unwrap_or(i64::MAX)));
    let within = &text[bounds[start]..bounds[end.max(start)]];
    if matches!(method, "startswith" | "endswith") {
        let any: Vec<Value> = if what.is_tuple() { what.try_iter()?.collect() } else { vec![what.clone()] };
        let mut found = false;
        for what in &any {
            let what = what.as_str().ok_or_else(|| raised("a string, or a tuple of strings, is expected"))?;
            found |= if method == "startswith" { within.starts_with(what) } else { within.ends_with(what) };
        }
        return Ok(found.into());
    }
    let what = what.as_str().ok_or_else(|| raised("a string is expected"))?;
    if method == "count" {
        return Ok(within.matches(what).count().into());
    }
    let found = if method.starts_with('r') { within.rfind(what) } else { within.find(what) };
    match found.map(|at| start + within[..at].chars().count()) {
        None if method.ends_with("index") => Err(raised("substring not found")),
        found => Ok(found.map_or(-1, |at| at as i64).into()),
    }
}

/// `str.title`: each letter behind none is a capital.
fn titled(text: &str) -> String {
    let mut before = false;
    let letter = |c: char| {
        let first = c.is_alphabetic() && !before;
        before = c.is_alphabetic();
        if first { c.to_uppercase().collect::<String>() } else { c.to_lowercase().collect() }
    };
    text.chars().map(letter).collect()
}

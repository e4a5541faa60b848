//! How Python prints values, and what it takes for white space.

use minijinja::value::{Value, ValueKind};

/// Python's `str` of a value; nothing where it is undefined.
pub fn text(value: &Value) -> String {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
        }
        ValueKind::Seq | ValueKind::Map => repr(value),
        _ => value.to_string(),
    }
}

/// Python's `repr` of a value.
fn repr(value: &Value) -> String {
    let items: Vec<Value> = value.try_iter().into_iter().flatten().collect();
    let list = |items: Vec<String>| items.join(", ");
    match value.kind() {
        ValueKind::Map => {
            let pair =
                |key: &Value| format!("{}: {}", repr(key), repr(&value.get_item(key).unwrap_or_default()));
            format!("{{{}}}", list(items.iter().map(pair).collect()))
        }
        ValueKind::Seq if value.is_tuple() => match &items[..] {
            [one] => format!("({},)", repr(one)),
            _ => format!("({})", list(items.iter().map(repr).collect())),
        },
        ValueKind::Seq => format!("[{}]", list(items.iter().map(repr).collect())),
        ValueKind::Number => text(value),
        ValueKind::Undefined => "Undefined".into(),
        _ => format!("{value:?}"),
    }
}

/// Python's `repr` of a number: the fewest digits that are read back as the same number, with an exponent below 1e-4 and from
/// 1e16 on.
fn float(number: f64) -> String {
    if !number.is_finite() {
        return number.to_string().to_lowercase();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        exponent if number != 0.0 && !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{number:?}"),
    }
}

/// What `str.isspace` holds for.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// `str.strip`: without these characters at its ends, or without white space.
pub fn stripped(text: &str, chars: Option<&str>) -> String {
    text.trim_matches(among(chars)).to_string()
}

/// Whether a character is one of these, or white space.
pub fn among(chars: Option<&str>) -> impl Fn(char) -> bool + Copy + '_ {
    move |c| chars.map_or_else(|| is_space(c), |chars| chars.contains(c))
}

/// `str.center`.
pub fn centered(text: &str, width: usize, fill: char) -> String {
    let length = text.chars().count();
    let missing = width.saturating_sub(length);
    let before = missing / 2 + (missing & width & 1);
    let space = |count: usize| fill.to_string().repeat(count);
    format!("{}{text}{}", space(before), space(missing - before))
}

//! Numbers, settings and tables for a reader: three significant digits and a unit. And what follows from a text.

use std::fmt::Display;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;

/// Text that somebody else wrote, a model or a library, without the characters that no document can hold.
pub fn printable(text: &str) -> String {
    let shown = |c: char| if is_unseen(c) { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(shown).collect()
}

/// Text with a visible replacement for each character by which a terminal does more than show it: one that begins an
/// escape sequence, moves the cursor back or turns the order of letters around. Names in files of others may have them.
pub fn on_terminal(text: &str) -> String {
    let mut rest = text.chars().peekable();
    let mut out = String::with_capacity(text.len());
    while let Some(c) = rest.next() {
        let goes_back = c == '\r' && rest.peek() != Some(&'\n');
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        out.push(if goes_back || turns || is_unseen(c) { char::REPLACEMENT_CHARACTER } else { c });
    }
    out
}

/// Whether neither XML nor HTML can hold it: control characters, and Unicode's noncharacters.
pub fn is_unseen(c: char) -> bool {
    let is_none = matches!(c, '\u{fdd0}'..='\u{fdef}') || c as u32 & 0xfffe == 0xfffe;
    is_none || c.is_control() && !matches!(c, '\t' | '\n' | '\r')
}

/// A table whose first `left` columns hold words (left-aligned) and the others numbers.
pub fn table(header: &[&str], lines: Vec<Vec<String>>, left: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header).add_rows(lines);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if index < left { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.to_string()
}

/// A table of words, as wide as the terminal, or so many columns where there is none.
pub fn wrapped_table(header: &[&str], lines: Vec<Vec<String>>, width: u16) -> String {
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(width);
    }
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(header).add_rows(lines);
    table.to_string()
}

/// A value as typed: 0.0 reads 0, 0.00000001 reads 1e-8, text has no quotes.
pub fn value(value: &Value) -> String {
    match (value, value.as_f64()) {
        (Value::String(text), _) => text.clone(),
        (Value::Number(_), Some(x)) if value.is_f64() => number(x),
        _ => value.to_string(),
    }
}

/// All digits, with an exponent where there would be many zeros.
pub fn number(x: f64) -> String {
    if x == 0.0 || (1e-3..1e6).contains(&x.abs()) { x.to_string() } else { format!("{x:e}") }
}

/// Three significant digits without an exponent: 0.0123, 1.23, 12.3, 1234.
pub fn significant(x: f64) -> String {
    // Rounded first, so that 9.996 counts as 10.0 and not as 10.00.
    let rounded: f64 = format!("{x:.2e}").parse().unwrap_or(x);
    if rounded == 0.0 || !rounded.is_finite() {
        return if rounded.is_finite() { "0".into() } else { x.to_string() };
    }
    let magnitude = rounded.abs().log10().floor() as i32;
    let decimals = (2 - magnitude).clamp(0, 12) as usize;
    format!("{x:.decimals$}")
}

/// A unit of time and how many seconds it is; the largest that leaves at least one of it.
pub fn time_unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        s if s < 1e-3 => ("µs", 1e-6),
        s if s < 1.0 => ("ms", 1e-3),
        _ => ("s", 1.0),
    }
}

/// `12.3 ms`
pub fn seconds(s: f64) -> String {
    let (unit, scale) = time_unit(s);
    format!("{} {unit}", significant(s / scale))
}

/// A binary unit and how many bytes it is; the largest that leaves at least one of it.
pub fn byte_unit(bytes: f64) -> (&'static str, f64) {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    units
        .into_iter()
        .map(|(name, power)| (name, f64::powi(2.0, power)))
        .find(|(_, scale)| bytes >= *scale)
        .unwrap_or(("B", 1.0))
}

/// `1.31x`, far below one `0.0042x`
pub fn ratio(r: f64) -> String {
    let decimals = if r > 0.0 && r < 0.095 { (1.0 - r.log10().floor()).min(12.0) as usize } else { 2 };
    format!("{r:.decimals$}x")
}

/// A share as a percentage without its sign: `26 %`, below one `0.4 %`. What is not all of it is less than 100 %.
pub fn percent(share: f64) -> String {
    match share.abs() * 100.0 {
        value if (0.05..0.95).contains(&value) || (99.5..99.95).contains(&value) => format!("{value:.1} %"),
        value if (99.95..100.0).contains(&value) => format!("{value:.2} %").replace("100.00", "99.99"),
        value => format!("{value:.0} %"),
    }
}

/// A rate: whole numbers from one hundred on, in groups of three digits: `92,761`.
pub fn rate(x: f64) -> String {
    if x < 100.0 {
        return significant(x);
    }
    grouped(format_args!("{x:.0}"))
}

/// Digits in groups of three: `1,500,000,000`.
pub fn grouped(digits: impl Display) -> String {
    let digits = digits.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 cell`, `3 cells`
pub fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A loss scale: `1000`, `1e12`.
pub fn scaled(scale: f64) -> String {
    if scale < 1e6 { significant(scale) } else { format!("{scale:e}") }
}

/// `2⁻¹⁴`; `None` of another number.
pub fn power_of_two(x: f64) -> Option<String> {
    let exponent = x.log2();
    let raised = |c: char| match c.to_digit(10) {
        None => '⁻',
        Some(digit) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize],
    };
    (exponent.fract() == 0.0)
        .then(|| format!("2{}", exponent.to_string().chars().map(raised).collect::<String>()))
}

/// `a, b and c`
pub fn and(items: impl IntoIterator<Item: Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => items.concat(),
    }
}

/// `a, b and c`; of names with commas in them `a; b, with c (0.99x); and d`.
fn names(items: impl IntoIterator<Item: Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    // Commas within brackets or quotation marks do not confuse.
    let quoted = |name: &str| name.starts_with('“') && name.ends_with('”');
    let divided =
        |item: &String| item.split(" (").next().is_some_and(|name| name.contains(", ") && !quoted(name));
    match items.as_slice() {
        [first @ .., last] if !first.is_empty() && items.iter().any(divided) => {
            format!("{}; and {last}", first.join("; "))
        }
        _ => and(items),
    }
}

/// The first names of many, and how many more there are: `a, b and 3 more`.
pub fn few(items: impl IntoIterator<Item: Display>, most: usize) -> String {
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    let more = items.len().saturating_sub(most);
    if more > 0 {
        items.truncate(most);
        items.push(format!("{more} more"));
    }
    names(items)
}

/// The text of a file without the mark that some editors put before it.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A word of a command as a shell reads it: in quotes where it has more than letters, digits and signs of paths and settings.
pub fn argument(word: impl Display) -> String {
    let word = word.to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "._-/=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A number that follows from a text, FNV-1a: fixed for all time, unlike the standard library's hash.
pub fn fnv1a(text: &str) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

/// Two digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first letter in upper case.
pub fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;

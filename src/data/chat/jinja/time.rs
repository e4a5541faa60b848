//! Dates, as `strftime` of the C library formats them in English.

use ::time::{Month, UtcDateTime, Weekday};
use minijinja::{Error, ErrorKind};

/// A date in a format of `strftime`.
///
/// # Errors
/// A directive that is not known.
pub fn formatted(now: UtcDateTime, format: &str) -> Result<String, Error> {
    let (mut out, mut chars) = (String::new(), format.chars());
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut next = chars.next();
        let padding = next.filter(|flag| ['-', '_', '0'].contains(flag));
        if padding.is_some() {
            next = chars.next();
        }
        let unknown = || {
            let directive: String = ['%'].into_iter().chain(padding).chain(next).collect();
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now does not know {directive}"))
        };
        let field = next.and_then(|directive| field(now, directive)).ok_or_else(unknown)?;
        out.push_str(&match field {
            Field::Text(text) => text,
            Field::Number(number, width, own) => match padding.unwrap_or(own) {
                '-' => number.to_string(),
                '_' | ' ' => format!("{number:>width$}"),
                _ => format!("{number:0>width$}"),
            },
        });
    }
    Ok(out)
}

enum Field {
    Text(String),
    /// With its width, and what fills it up.
    Number(i64, usize, char),
}

fn field(now: UtcDateTime, directive: char) -> Option<Field> {
    let number = |value: i64, width| Some(Field::Number(value, width, '0'));
    let spaced = |value: i64| Some(Field::Number(value, 2, ' '));
    let composed = |format: &str| formatted(now, format).ok().map(Field::Text);
    let name = |name: String, length: usize| Some(Field::Text(name[..length.min(name.len())].into()));
    let (year, day) = (i64::from(now.year()), i64::from(now.ordinal()));
    let (hour, half) = (i64::from(now.hour()), (i64::from(now.hour()) + 11) % 12 + 1);
    let from_sunday = i64::from(now.weekday().number_days_from_sunday());
    let from_monday = i64::from(now.weekday().number_days_from_monday());
    let (month, weekday): (Month, Weekday) = (now.month(), now.weekday());
    match directive {
        'Y' => number(year, 1),
        'C' => number(year / 100, 2),
        'y' => number(year % 100, 2),
        'm' => number(i64::from(u8::from(month)), 2),
        'd' => number(i64::from(now.day()), 2),
        'e' => spaced(i64::from(now.day())),
        'j' => number(day, 3),
        'H' => number(hour, 2),
        'k' => spaced(hour),
        'I' => number(half, 2),
        'l' => spaced(half),
        'M' => number(i64::from(now.minute()), 2),
        'S' => number(i64::from(now.second()), 2),
        'f' => number(i64::from(now.microsecond()), 6),
        's' => number(now.unix_timestamp(), 1),
        'U' => number((day + 6 - from_sunday) / 7, 2),
        'W' => number((day + 6 - from_monday) / 7, 2),
        'V' => number(i64::from(now.iso_week()), 2),
        'G' => number(i64::from(now.to_iso_week_date().0), 1),
        'u' => number(from_monday + 1, 1),
        'w' => number(from_sunday, 1),
        'B' => name(month.to_string(), usize::MAX),
        'b' | 'h' => name(month.to_string(), 3),
        'A' => name(weekday.to_string(), usize::MAX),
        'a' => name(weekday.to_string(), 3),
        'p' => name(if hour < 12 { "AM" } else { "PM" }.into(), usize::MAX),
        'F' => composed("%Y-%m-%d"),
        'T' | 'X' => composed("%H:%M:%S"),
        'R' => composed("%H:%M"),
        'D' | 'x' => composed("%m/%d/%y"),
        'c' => composed("%a %b %e %H:%M:%S %Y"),
        // A time without a zone has no text for it.
        'z' | 'Z' => name(String::new(), 0),
        'n' => name("\n".into(), 1),
        't' => name("\t".into(), 1),
        '%' => name("%".into(), 1),
        _ => None,
    }
}

//! [`Number`]: a rational number as it is written in digits, exact.

/// Signs of currency.
pub const SIGNS: [char; 5] = ['$', '€', '£', '¥', '₹'];
/// What may stand between thousands.
const GROUPS: [char; 8] = [',', ' ', '\u{a0}', '\u{2009}', '\u{202f}', '\'', '’', '_'];
/// What joins digits to something that is no number.
const JOINS: [char; 2] = [':', '^'];

/// A number without its spelling: no signs between thousands, no zeros that add nothing, no fraction that is a decimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    negative: bool,
    size: Size,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Size {
    /// `digits` · 10^`exponent`; no digits are zero.
    Decimal { digits: String, exponent: i64 },
    /// In lowest terms.
    Fraction { numerator: u128, denominator: u128 },
}

impl Number {
    fn new(size: Size) -> Self {
        Self { negative: false, size }
    }

    /// With the other sign; zero has none.
    pub fn negated(self) -> Self {
        let is_zero = matches!(&self.size, Size::Decimal { digits, .. } if digits.is_empty());
        Self { negative: !self.negative && !is_zero, ..self }
    }

    fn decimal(digits: &str, exponent: i64) -> Option<Self> {
        let kept = digits.trim_end_matches('0');
        let exponent = exponent.checked_add((digits.len() - kept.len()) as i64)?;
        let digits = kept.trim_start_matches('0').to_string();
        Some(Self::new(Size::Decimal { exponent: if digits.is_empty() { 0 } else { exponent }, digits }))
    }

    /// `None` without a denominator, and where the digits are too many.
    fn fraction(numerator: u128, denominator: u128) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let divisor = gcd(numerator, denominator);
        let (numerator, denominator) = (numerator / divisor, denominator / divisor);
        let [twos, fives] = [2, 5].map(|prime| factors(denominator, prime));
        if 2u128.pow(twos) * 5u128.pow(fives) != denominator {
            return Some(Self::new(Size::Fraction { numerator, denominator }));
        }
        let places = twos.max(fives);
        let digits = numerator.checked_mul(10u128.checked_pow(places)? / denominator)?;
        Self::decimal(&digits.to_string(), -i64::from(places))
    }

    /// A token of digits: a decimal with its exponent, or a fraction.
    fn parse(token: &str, exponent: i64) -> Option<Self> {
        if let Some((numerator, denominator)) = token.split_once('/') {
            let [numerator, denominator] = [numerator, denominator].map(|part| ungrouped(part)?.parse().ok());
            return Self::fraction(numerator?, denominator?).filter(|_| exponent == 0);
        }
        let (whole, fraction) = token.split_once('.').unwrap_or((token, ""));
        if digits(fraction) < fraction.len() {
            return None;
        }
        let whole = if whole.is_empty() { String::new() } else { ungrouped(whole)? };
        Self::decimal(&(whole + fraction), exponent.checked_sub(fraction.len() as i64)?)
    }
}

/// The number at the start of a text, and what stands behind its digits. The outer `None`: no digits; the inner one: they are
/// no number. `spaced`: whether spaces may stand between thousands.
pub fn scan(text: &str, spaced: bool) -> Option<(Option<Number>, &str)> {
    let (token, mut rest) = text.split_at(token(text, spaced));
    if token.is_empty() {
        return None;
    }
    if let Some((number, after)) = mixed(token, rest) {
        return Some((Some(number), after));
    }
    let mut power = Some(0);
    if let Some((exponent, after)) = exponent(rest) {
        (power, rest) = (exponent.parse().ok(), after);
    }
    Some((power.and_then(|power| Number::parse(token, power)), rest))
}

/// Bytes of the digits at the start of a text with what joins them.
fn token(text: &str, spaced: bool) -> usize {
    let mut end = digits(text);
    while let Some(next) = text[end..].chars().next() {
        let after = &text[end + next.len_utf8()..];
        let joins = match next {
            ' ' => spaced && digits(after) == 3 && !after[3..].starts_with('/'),
            '.' => true,
            '/' => end > 0,
            next => end > 0 && (GROUPS.contains(&next) || JOINS.contains(&next)),
        };
        if !joins || (next == ' ' && end == 0) || digits(after) == 0 {
            break;
        }
        end += next.len_utf8() + digits(after);
    }
    end
}

/// A whole number and a fraction below one: 1 3/4.
fn mixed<'t>(whole: &str, rest: &'t str) -> Option<(Number, &'t str)> {
    let rest = rest.strip_prefix(' ')?;
    let (fraction, after) = rest.split_at(token(rest, false));
    let (numerator, denominator) = fraction.split_once('/')?;
    let [whole, numerator, denominator] =
        [whole, numerator, denominator].map(|part| part.parse::<u128>().ok());
    let (whole, numerator, denominator) = (whole?, numerator?, denominator?);
    let sum = whole.checked_mul(denominator)?.checked_add(numerator)?;
    (numerator < denominator).then(|| Number::fraction(sum, denominator))?.map(|number| (number, after))
}

/// The exponent of `e5` or `E-5`, and what stands behind it.
fn exponent(rest: &str) -> Option<(&str, &str)> {
    let exponent = rest.strip_prefix(['e', 'E'])?;
    let sign = usize::from(exponent.starts_with(['-', '+']));
    let (exponent, after) = exponent.split_at(sign + digits(&exponent[sign..]));
    (exponent.len() > sign && !after.starts_with(char::is_alphanumeric)).then_some((exponent, after))
}

/// The digits of a whole number that may have signs between thousands, always the same ones.
fn ungrouped(text: &str) -> Option<String> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    let first = parts.next()?;
    let parts: Vec<&str> = parts.collect();
    let mut signs = text.chars().filter(|c| !c.is_ascii_digit());
    let sign = signs.next();
    let is_grouped = sign.is_some_and(|sign| GROUPS.contains(&sign))
        && signs.all(|other| Some(other) == sign)
        && (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && parts.iter().all(|part| part.len() == 3);
    (!first.is_empty() && (sign.is_none() || is_grouped)).then(|| first.to_string() + &parts.concat())
}

/// ASCII digits at the start of a text.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// How often a prime is a factor of a number above 0.
fn factors(mut number: u128, prime: u128) -> u32 {
    let mut count = 0;
    while number.is_multiple_of(prime) {
        (number, count) = (number / prime, count + 1);
    }
    count
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Option<Number> {
        match scan(text, true) {
            Some((number, "")) => number,
            _ => None,
        }
    }

    #[test]
    fn numbers_are_compared_by_value_and_exactly() {
        for (text, plain) in [
            ("018.0", "18"),
            (".5", "0.5"),
            ("0.50", "1/2"),
            ("6/8", "0.75"),
            ("2 3/4", "2.75"),
            ("1\u{a0}234.5", "1234.5"),
            ("1'234", "1234"),
            ("1_000_000", "1e6"),
            ("1,000/3", "1000/3"),
            ("2/6", "1/3"),
            ("4/2", "2"),
            ("0/7", "0"),
            ("1.5E+3", "1500"),
            ("25e-1", "2.5"),
            (
                "0.1000000000000000000000000000000000000000000000001",
                "1000000000000000000000000000000000000000000000001e-49",
            ),
        ] {
            assert!(number(text).is_some(), "{text}");
            assert_eq!(number(text), number(plain), "{text}");
        }
        for (a, b) in [
            ("1/3", "0.3333333333333333"),
            ("9007199254740993", "9007199254740992"),
            ("1e400", "1e500"),
            ("0.1", "0.1000000000000000055511151231257827"),
        ] {
            assert_ne!(number(a).unwrap(), number(b).unwrap());
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in [
            "12,34",
            "1,2345",
            "1,23,456",
            "0,123",
            "1,234 567",
            "1.234.567",
            "1.234,5",
            "3/0",
            "1/2/3",
            "0.5/2",
            "5:30",
            "10^3",
            "1e99999999999999999999",
            "1/2e3",
        ] {
            assert!(matches!(scan(text, true), Some((None, _))), "{text}: {:?}", scan(text, true));
        }
        assert_eq!(scan("x", true), None);
        assert_eq!(scan(" 123", true), None);
        assert_eq!(scan("1 234", false).unwrap().1, " 234");
    }
}

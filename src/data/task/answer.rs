//! [`Number`]: the number that an answer comes to, compared exactly.

/// What stands before the number that an answer comes to.
pub const MARK: &str = "####";

/// A decimal number without its spelling: no sign of currency, no commas between thousands, no zeros that add nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    negative: bool,
    whole: String,
    fraction: String,
}

impl Number {
    /// The number that a text begins with, as `-$1,200.50 each`; `None` where it begins with something else.
    pub fn parse(text: &str) -> Option<Self> {
        Self::first(text).map(|(number, _)| number)
    }

    /// The number at the start of a text, and what stands behind it.
    fn first(text: &str) -> Option<(Self, &str)> {
        // Either order is written: -$5 and $-5.
        let mut rest = text;
        let mut negative = false;
        for _ in 0..2 {
            if let Some(after) = rest.strip_prefix(['-', '\u{2212}']).filter(|_| !negative) {
                (rest, negative) = (after, true);
            } else if let Some(after) = rest.strip_prefix('$') {
                rest = after;
            }
        }
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let count = digits(rest);
        let mut whole = rest[..count].to_string();
        rest = &rest[count..];
        // A comma stands between thousands where three digits follow, and no fourth.
        while let Some(thousands) =
            rest.strip_prefix(',').filter(|after| !whole.is_empty() && digits(after) == 3)
        {
            whole += &thousands[..3];
            rest = &thousands[3..];
        }
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.').filter(|after| digits(after) > 0) {
            (fraction, rest) = after.split_at(digits(after));
        }
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (whole, fraction) =
            (whole.trim_start_matches('0').to_string(), fraction.trim_end_matches('0').to_string());
        let negative = negative && !(whole.is_empty() && fraction.is_empty());
        Some((Self { negative, whole, fraction }, rest))
    }

    /// The last number of a text.
    fn last(text: &str) -> Option<Self> {
        let (mut rest, mut last, mut before) = (text, None, ' ');
        while let Some(next) = rest.chars().next() {
            // Behind a digit, a letter or a bracket a dash is no sign: 7-4 ends with 4.
            let sign = matches!(next, '-' | '\u{2212}') && (before.is_alphanumeric() || before == ')');
            match Self::first(rest).filter(|_| !sign) {
                Some((number, after)) => {
                    before = '0';
                    (last, rest) = (Some(number), after);
                }
                None => {
                    before = next;
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        last
    }
}

/// The number behind the first [`MARK`] of an answer.
pub fn final_number(answer: &str) -> Option<Number> {
    Number::parse(answer.split_once(MARK)?.1.trim_start())
}

/// The number that an answer comes to: that behind [`MARK`], else its last one.
pub fn answered(answer: &str) -> Option<Number> {
    final_number(answer).or_else(|| Number::last(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        Number::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        for (text, plain) in [
            ("1,234,567", "1234567"),
            ("$18", "18"),
            ("18.", "18"),
            ("18.50", "18.5"),
            ("018.0", "18"),
            (".5", "0.5"),
            ("-$5", "-5"),
            ("$-5", "-5"),
            ("\u{2212}5", "-5"),
            ("-0.0", "0"),
            ("12%", "12"),
            ("3,4", "3"),
            ("1,2345", "1"),
            ("72\nQuestion: 3", "72"),
        ] {
            assert_eq!(number(text), number(plain), "{text}");
        }
        assert_ne!(number("-5"), number("5"));
        assert_ne!(number("1.5"), number("15"));
        assert_ne!(number("100"), number("1"));
        for text in ["", "-", "$", "x1", ".", ",5"] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_answer_comes_to_the_number_behind_the_mark_else_to_its_last() {
        for (text, plain) in [
            ("3 + 4 = 7\n#### 7", "7"),
            ("#### 1,000 apples, 5 pears", "1000"),
            ("####12\n#### 13", "12"),
            ("It is 12 of 30, so 18.", "18"),
            ("The change is -$1,250.75!", "-1250.75"),
            ("10-4", "4"),
            ("from 3 to -4", "-4"),
            ("#### none of the 9", "9"),
            ("costs $3.50 each", "3.5"),
            ("1, 2, 3", "3"),
        ] {
            assert_eq!(answered(text), Some(number(plain)), "{text}");
        }
        assert_eq!(answered("no idea"), None);
        assert_eq!(final_number("it is 5"), None);
    }
}

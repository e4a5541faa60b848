//! [`Answer`]: the number that an answer comes to, compared exactly.

use super::number::{Number, SIGNS, scan};

/// What stands before the number that an answer comes to.
pub const MARK: &str = "####";

/// A number with its sign of currency or percent, where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    number: Number,
    sign: Option<char>,
}

impl Answer {
    /// Whether both come to the same number, of the same currency where both name one.
    pub fn equals(&self, other: &Self) -> bool {
        self.number == other.number
            && (self.sign == other.sign || self.sign.is_none() || other.sign.is_none())
    }

    /// The answer at the start of a text, as `-$1,200.50 each`, and what stands behind it. The outer `None`: the text begins
    /// with something else; the inner one: with digits that are no number, such as `12,34` or `5:30`. `spaced`: whether
    /// spaces may stand between thousands.
    fn first(text: &str, spaced: bool) -> Option<(Option<Self>, &str)> {
        // Either order is written: -$5 and $-5.
        let (mut rest, mut minus, mut sign) = (text, None, None);
        for _ in 0..2 {
            if let Some(after) = rest.strip_prefix(['-', '\u{2212}', '+']).filter(|_| minus.is_none()) {
                (minus, rest) = (Some(!rest.starts_with('+')), after);
            } else if let Some(after) = rest.strip_prefix(SIGNS).filter(|_| sign.is_none()) {
                (sign, rest) = (rest.chars().next(), after);
            }
        }
        let (number, mut rest) = scan(rest, spaced)?;
        // Behind it: 20 %, 5€; but not that of the next one, as in 5 $6.
        let behind = rest.strip_prefix([' ', '\u{a0}', '\u{202f}']).unwrap_or(rest);
        let is_next = |after: &str| after.starts_with(|c: char| c.is_ascii_digit());
        let after = behind.strip_prefix('%').or(behind.strip_prefix(SIGNS).filter(|after| !is_next(after)));
        if let Some(after) = after.filter(|_| sign.is_none()) {
            (sign, rest) = (behind.chars().next(), after);
        }
        let number = number.map(|number| if minus == Some(true) { number.negated() } else { number });
        Some((number.map(|number| Self { number, sign }), rest))
    }

    /// The last number of a text.
    fn last(text: &str) -> Option<Self> {
        let (mut rest, mut last, mut before) = (text, None, ' ');
        while let Some(next) = rest.chars().next() {
            // Behind a digit, a letter or a bracket a dash is no sign: 7-4 ends with 4.
            let sign = matches!(next, '-' | '\u{2212}') && (before.is_alphanumeric() || before == ')');
            match Self::first(rest, false).filter(|_| !sign) {
                Some((answer, after)) => {
                    before = '0';
                    (last, rest) = (answer.or(last), after);
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

/// The number behind the first [`MARK`] of an answer that a file has: it stands there alone.
///
/// # Errors
/// An answer without the mark, and something else behind it; says what to write.
pub fn expected(answer: &str) -> Result<Answer, String> {
    let (_, behind) = answer.split_once(MARK).ok_or("the answer does not end with a line \"#### number\"")?;
    match Answer::first(behind.trim(), true) {
        Some((Some(answer), rest)) if matches!(rest.trim(), "" | ".") => Ok(answer),
        _ => Err(format!(
            "the answer does not end with a line \"#### number\": behind #### stands \"{}\"; a number is written as \
             1234.5, 1,234.50, 1 234, 3/4, 1 3/4, -5, 1e6, $5 or 20%, without a unit",
            behind.trim()
        )),
    }
}

/// The number that a given answer comes to: that behind [`MARK`], else its last one.
pub fn answered(answer: &str) -> Option<Answer> {
    let marked = answer.split_once(MARK).and_then(|(_, behind)| Answer::first(behind.trim_start(), true)?.0);
    marked.or_else(|| Answer::last(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        expected(&format!("{MARK} {text}")).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn an_answer_is_the_same_however_it_is_written() {
        for (text, plain) in [
            ("1,234,567", "1234567"),
            ("1 234 567", "1234567"),
            ("$1,234.50", "1234.5"),
            ("$18", "18"),
            ("18.", "18"),
            ("-$5", "-5"),
            ("$-5", "-5"),
            ("\u{2212}5", "-5"),
            ("+5", "5"),
            ("-0.0", "0"),
            ("12%", "12"),
            ("12 %", "12"),
            ("5 €", "5"),
            ("3/4", "0.75"),
            ("-3/4", "-.75"),
            ("1 3/4", "1.75"),
            ("1e400", "10e399"),
        ] {
            assert!(answer(text).equals(&answer(plain)), "{text}");
        }
        for (a, b) in
            [("-5", "5"), ("1.5", "15"), ("100", "1"), ("$5", "5 €"), ("5%", "$5"), ("1e400", "1e401")]
        {
            assert!(!answer(a).equals(&answer(b)), "{a} {b}");
        }
    }

    #[test]
    fn what_is_no_number_alone_is_refused() {
        for text in [
            "",
            "-",
            "$",
            "x1",
            ".",
            ",5",
            "none",
            "5 km",
            "5km",
            "12,34",
            "1.234,56",
            "1.2.3",
            "3/0",
            "1/2/3",
            "5:30",
            "5-6",
            "3 + 4",
            "5, 6",
            "1 23",
            "½",
            "2½",
            "10^3",
            "$5%",
            "NaN",
            "inf",
            "0x10",
            "72\nQuestion: 3",
        ] {
            let message = expected(&format!("#### {text}")).unwrap_err();
            assert!(message.contains(&format!("stands \"{text}\"")), "{message}");
        }
        assert!(expected("It is 5").unwrap_err().ends_with("does not end with a line \"#### number\""));
    }

    #[test]
    fn a_given_answer_comes_to_the_number_behind_the_mark_else_to_its_last() {
        for (text, plain) in [
            ("3 + 4 = 7\n#### 7", "7"),
            ("#### 1,000 apples, 5 pears", "1000"),
            ("#### 1 234 apples", "1234"),
            ("#### 5 km", "5"),
            ("####12\n#### 13", "12"),
            ("It is 12 of 30, so 18.", "18"),
            ("The change is -$1,250.75!", "-1250.75"),
            ("10-4", "4"),
            ("from 3 to -4", "-4"),
            ("#### none of the 9", "9"),
            ("costs $3.50 each", "3.5"),
            ("1, 2, 3", "3"),
            ("so 3/4 of it", "0.75"),
            ("7 100", "100"),
            ("12 / 4 = 3", "3"),
            // No numbers: a decimal comma, a time and a date are not guessed at.
            ("9 of them, or 12,34", "9"),
            ("#### 12,34 is 7", "7"),
            ("8 at 5:30 on 1/2/2020", "8"),
        ] {
            assert!(
                answered(text).is_some_and(|given| given.equals(&answer(plain))),
                "{text}: {:?}",
                answered(text)
            );
        }
        assert_eq!(answered("no idea"), None);
        assert_eq!(answered("#### 12,34"), None);
    }
}

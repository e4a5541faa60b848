//! [`Scoring`]: when an answer is right.

use regex::Regex;

use super::answer::answered;

/// How an answer is compared with the expected ones, of which any counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Scoring {
    /// Both come to the same number.
    Number,
    /// Both are the same text.
    Exact(Spelling),
    /// What the first match of this expression has in its first group, or the whole match without a group, is the
    /// expected text.
    Pattern(String, Spelling),
    /// The expected answer is an expression, which the answer has a match of.
    Expression(Spelling),
    /// The right one of several choices is the most likely.
    Choice,
}

/// What makes no difference between two texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spelling {
    /// White space at both ends.
    pub trim: bool,
    /// Capital and small letters.
    pub ignore_case: bool,
}

impl Spelling {
    fn is_same(self, a: &str, b: &str) -> bool {
        let [a, b] = [a, b].map(|text| if self.trim { text.trim() } else { text });
        a == b || (self.ignore_case && a.to_lowercase() == b.to_lowercase())
    }

    fn expression(self, text: &str) -> Result<Regex, String> {
        // Compiled as it is first: an error shows it.
        let own = expression(text)?;
        if self.ignore_case { expression(&format!("(?i){text}")) } else { Ok(own) }
    }
}

/// A regular expression.
///
/// # Errors
/// Text that is none; points at what is wrong with it.
pub fn expression(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|e| e.to_string())
}

impl Scoring {
    /// Refuses an expected answer that none can equal.
    ///
    /// # Errors
    /// Says why.
    pub fn check(&self, answer: &str) -> Result<(), String> {
        match self {
            Self::Number if answered(answer).is_none() => Err(format!(
                "the answer \"{answer}\" comes to no number: scoring = \"number\" reads the number after ####, else the \
                 last one, written as 1234.5, 1,234.50, 3/4, -5, 1e6, $5 or 20%; correct it, or choose another \
                 task.scoring"
            )),
            Self::Expression(spelling) => spelling
                .expression(answer)
                .map(|_| ())
                .map_err(|e| format!("the answer is no regular expression: {e}")),
            _ => Ok(()),
        }
    }

    /// Whether a text is right.
    pub fn is_right(&self, answers: &[String], given: &str) -> bool {
        let mut answers = answers.iter();
        match self {
            Self::Number => answered(given).is_some_and(|given| {
                answers.filter_map(|answer| answered(answer)).any(|answer| answer.equals(&given))
            }),
            Self::Exact(spelling) => {
                // The space between a prompt and its answer is none of the answer's.
                let given = given.strip_prefix(' ').unwrap_or(given);
                answers.any(|answer| spelling.is_same(answer, given))
            }
            Self::Pattern(pattern, spelling) => {
                let pattern = expression(pattern).expect("checked: an expression");
                let found = pattern.captures(given).and_then(|found| found.get(1).or(found.get(0)));
                found.is_some_and(|found| answers.any(|answer| spelling.is_same(answer, found.as_str())))
            }
            Self::Expression(spelling) => {
                let mut expressions = answers.filter_map(|answer| spelling.expression(answer).ok());
                expressions.any(|expression| expression.is_match(given))
            }
            Self::Choice => answers.any(|answer| answer == given),
        }
    }
}

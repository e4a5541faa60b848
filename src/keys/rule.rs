//! [`Rule`]: a rule that a recipe breaks, and [`nearest`]: the word that a misspelling meant.

/// A rule that a cell breaks: its keys, what is wrong and what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Dotted keys; the error points at the first one that is written in the recipe.
    pub keys: Vec<&'static str>,
    pub message: String,
    pub help: String,
    /// Whether only hardware is missing, which another machine may have.
    pub elsewhere: bool,
}

impl Rule {
    pub fn new(keys: &[&'static str], message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { keys: keys.to_vec(), message: message.into(), help: help.into(), elsewhere: false }
    }

    /// A rule that needs hardware that is not here.
    pub fn elsewhere(keys: &[&'static str], message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { elsewhere: true, ..Self::new(keys, message, help) }
    }

    /// # Errors
    /// This rule, where it is `broken`.
    pub fn refuse_if(
        broken: bool,
        keys: &[&'static str],
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Result<(), Self> {
        if broken { Err(Self::new(keys, message, help)) } else { Ok(()) }
    }
}

/// The candidate closest in spelling, when it is close enough to be a misspelling.
pub fn nearest<'a>(typed: &str, candidates: &[&'a str]) -> Option<&'a str> {
    candidates
        .iter()
        .map(|c| (strsim::normalized_damerau_levenshtein(&typed.to_lowercase(), c), *c))
        .filter(|(score, _)| *score > 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, c)| c)
}

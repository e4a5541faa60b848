//! [`Token`]: the id of a token and whether it is learned, in four bytes.

use bytemuck::{Pod, Zeroable};

use crate::data::collate::NO_LABEL;
use crate::data::record::Tokens;

/// Set in tokens that are given. No vocabulary reaches so far.
const GIVEN: u32 = 1 << 31;

/// A token of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Token(u32);

// SAFETY: it is one `u32`, and any bits of one are a token.
unsafe impl Zeroable for Token {}
// SAFETY: as above; it has no padding and no pointer.
unsafe impl Pod for Token {}

impl Token {
    /// One whose prediction counts in the loss.
    pub fn learned(id: u32) -> Self {
        debug_assert!(id < GIVEN, "checked: the model has a row for it");
        Self(id)
    }

    /// One that is given: its prediction does not count.
    pub fn given(id: u32) -> Self {
        Self(id | GIVEN)
    }

    pub fn id(self) -> u32 {
        self.0 & !GIVEN
    }

    pub fn is_learned(self) -> bool {
        self.0 & GIVEN == 0
    }

    /// What the token before this one is to predict.
    pub fn label(self) -> i32 {
        if self.is_learned() { self.0 as i32 } else { NO_LABEL }
    }
}

/// Tokens of which the first `given` are given.
pub fn after(ids: &[u32], given: usize) -> Vec<Token> {
    let given = given.min(ids.len());
    let (prompt, rest) = ids.split_at(given);
    prompt.iter().map(|id| Token::given(*id)).chain(rest.iter().map(|id| Token::learned(*id))).collect()
}

/// How many tokens come before the first learned one.
pub fn given(tokens: &[Token]) -> usize {
    tokens.iter().position(|token| token.is_learned()).unwrap_or(tokens.len())
}

impl From<Tokens> for Vec<Token> {
    fn from(tokens: Tokens) -> Self {
        let token = |(id, learned)| if learned { Token::learned(id) } else { Token::given(id) };
        tokens.ids.into_iter().zip(tokens.learned).map(token).collect()
    }
}

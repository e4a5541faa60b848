//! [`Record`]: one example of a data set, as its file has it; [`Tokens`]: what a model reads of it.

use minijinja::Value;

use super::Prompted;

/// One example of a data set.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// All of it is learned.
    Text(String),
    /// A prompt, which is given, and its completion, which is learned.
    Pair(Prompted),
    Chat(Chat),
    /// Tokens that another program made.
    Tokens(Tokens),
}

/// A conversation, as a chat template reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Chat {
    /// Objects with `role` and `content`, and what else the file has, in the order of the file's keys.
    pub messages: Vec<Value>,
    /// Functions that the model may call, where the file has the column `tools`.
    pub tools: Option<Value>,
}

/// The tokens of an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub ids: Vec<u32>,
    /// For each token: true where its prediction counts in the loss, false where it is given. As long as `ids`.
    pub learned: Vec<bool>,
}

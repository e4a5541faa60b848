//! [`Record`]: one example of a data set, as its file has it; [`Tokens`]: what a model reads of it.

use minijinja::Value;

use super::{DataError, Prompted};

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

impl Record {
    /// All of its text.
    ///
    /// # Errors
    /// Tokens, which have none.
    pub fn into_text(self) -> Result<String, DataError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Pair(Prompted { prompt, completion }) => Ok(prompt + &completion),
            Self::Chat(chat) => {
                let contents =
                    chat.messages.iter().map(|message| message.get_attr("content").unwrap_or_default());
                let texts = contents.filter_map(|content| content.as_str().map(String::from));
                Ok(texts.collect::<Vec<_>>().join("\n"))
            }
            Self::Tokens(_) => Err(DataError::new(
                "the corpus has tokens, and no text from which a tokenizer could be trained; name the one that made them \
                 in data.tokenizer",
            )),
        }
    }
}

//! [`Encoder`]: what a model reads of a record.

use std::sync::Arc;

use super::token::{Token, after};
use crate::data::record::{Chat, Record, Tokens};
use crate::data::{DataError, Prompted, Tokenizer};

/// Makes tokens of a chat.
pub type EncodeChat = dyn Fn(&Chat, &Tokenizer) -> Result<Tokens, DataError> + Send + Sync;

/// A tokenizer, and how records of each kind end.
#[derive(Clone)]
pub struct Encoder {
    tokenizer: Tokenizer,
    /// Behind a text; `None` where the tokenizer has no token for it.
    text_end: Option<u32>,
    /// Behind the completion of a pair. A chat's template ends it itself.
    pair_end: Option<u32>,
    /// Whether the end of a completion is a token. Else it is the label of the last token alone: nothing follows an answer, and
    /// so its end is not computed.
    joins: bool,
    /// Whether what is given is learned too.
    learns_all: bool,
    /// `None` where no record is a chat.
    chat: Option<Arc<EncodeChat>>,
}

/// A whole sample.
pub struct Encoded {
    pub tokens: Vec<Token>,
    /// What the last token predicts where no token follows: a class, or the end of an answer.
    pub last_label: Option<u32>,
}

impl Encoder {
    /// The end-of-text token ends texts, the tokenizer's end token completions. `joins`: records become blocks.
    pub fn new(tokenizer: &Tokenizer, joins: bool) -> Self {
        let (text_end, pair_end) = (tokenizer.end_of_text().ok(), tokenizer.require_eos().ok());
        Self { tokenizer: tokenizer.clone(), text_end, pair_end, joins, learns_all: false, chat: None }
    }

    /// The same, which reads chats too.
    #[must_use]
    pub fn with_chats(self, encode: Arc<EncodeChat>) -> Self {
        Self { chat: Some(encode), ..self }
    }

    /// The same, for which every token is learned, prompts too.
    #[must_use]
    pub fn learning_all(self) -> Self {
        Self { learns_all: true, ..self }
    }

    /// # Errors
    /// When the vocabulary cannot express a record, its template refuses it, or the tokenizer cannot end it.
    pub fn encode(&self, record: &Record) -> Result<Encoded, DataError> {
        let mut encoded = self.encode_masked(record)?;
        if self.learns_all {
            encoded.tokens.iter_mut().for_each(|token| *token = Token::learned(token.id()));
        }
        Ok(encoded)
    }

    fn encode_masked(&self, record: &Record) -> Result<Encoded, DataError> {
        match record {
            Record::Text(text) => {
                let end = self.text_end.map_or_else(|| self.tokenizer.end_of_text(), Ok)?;
                self.sequence("", text, end)
            }
            Record::Pair(Prompted { prompt, completion }) => {
                let end = self.pair_end.map_or_else(|| self.tokenizer.require_eos(), Ok)?;
                let mut encoded = self.sequence(prompt, completion, end)?;
                if !self.joins {
                    encoded.last_label = encoded.tokens.pop().map(Token::id);
                }
                Ok(encoded)
            }
            Record::Chat(chat) => {
                let encode = self
                    .chat
                    .as_ref()
                    .ok_or_else(|| DataError::new("the data has chats and no chat template"))?;
                Ok(Encoded { tokens: encode(chat, &self.tokenizer)?.into(), last_label: None })
            }
            Record::Tokens(tokens) => {
                self.tokenizer.require_rows(&tokens.ids)?;
                Ok(Encoded { tokens: tokens.clone().into(), last_label: None })
            }
        }
    }

    fn sequence(&self, prompt: &str, completion: &str, end: u32) -> Result<Encoded, DataError> {
        let (ids, given) = self.tokenizer.sequence(prompt, completion, end)?;
        Ok(Encoded { tokens: after(&ids, given), last_label: None })
    }

    /// The token that fills up a batch: nothing is predicted at it, and no other token sees it.
    pub fn padding(&self) -> u32 {
        self.text_end.or(self.pair_end).unwrap_or(0)
    }
}

//! [`Generate`]: the recipe's `[generate]` section, and [`Prompts`]: the texts that the model continues.

use super::chat::{self, Template};
use super::task::conversation;
use super::{DataError, Tokenizer};
use crate::common::text::counted;
use crate::keys::key::DefaultValue::{Depends, Nothing, Whole};
use crate::keys::section::section;
use crate::keys::values::{COUNT, POSITIVE, Values};
use crate::keys::{Key, Rule, Section};
use crate::model::generate::{Choice, Request};

section! {
    /// Text that the model writes before training and after it, outside of the measured times. Without the section it writes
    /// none.
    pub struct Generate: Section::new("generate") => {
        /// Texts that the model continues, all in one batch.
        pub prompts: Vec<String> = Key::size(Values::Texts),
        /// Whether each text is a question of a chat, to which the model writes the assistant's turn: by `data.template`, else
        /// by the template of the tokenizer.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub chat: Option<bool> = Key::size(Values::Bool).default(Depends("false")),
        /// Most tokens of a continuation.
        pub max_new_tokens: usize = Key::size(COUNT).default(Whole(48)).called("generated tokens"),
        /// Tokens are drawn from softmax(logits / temperature) by the cell's seed. Without the key the most probable is taken.
        pub temperature: Option<f64> = Key::size(POSITIVE).default(Nothing),
    }
}

impl Generate {
    /// Refuses what cannot be continued.
    pub(crate) fn check(&self) -> Result<(), Rule> {
        Rule::refuse_if(
            self.prompts.is_empty() || self.prompts.iter().any(String::is_empty),
            &["generate.prompts"],
            "generate.prompts needs a text, and none of them may be empty",
            "write prompts = [\"Once upon a time\"], or remove [generate]",
        )
    }
}

/// What the model continues, in tokens.
pub struct Prompts {
    tokenizer: Tokenizer,
    /// Each text with its tokens.
    pub prompts: Vec<(String, Vec<u32>)>,
    pub request: Request,
}

impl Prompts {
    /// `template`: of chats, where prompts are questions of one; `context`: tokens of a prompt and its continuation, at most;
    /// `seed`: of what is drawn.
    ///
    /// # Errors
    /// A prompt that the tokenizer or the template cannot express, or that is longer than the context with its continuation.
    pub fn new(
        config: &Generate,
        (tokenizer, template): (&Tokenizer, Option<&Template>),
        seed: u64,
        context: usize,
    ) -> Result<Self, DataError> {
        let tokens = config.max_new_tokens;
        let prompt = |text: &String| {
            let prompt = begin(text, tokenizer, template)?;
            if prompt.is_empty() {
                return Err(DataError::new(format!(
                    "the prompt \"{text}\" of generate.prompts has no tokens; write another text"
                )));
            }
            if prompt.len() + tokens > context {
                return Err(DataError::new(format!(
                    "the prompt \"{text}\" has {}, and generate.max_new_tokens = {tokens} more do not fit: the model \
                     has {context} positions; make one of them smaller",
                    counted(prompt.len(), "token")
                )));
            }
            Ok((text.clone(), prompt))
        };
        let choice = match config.temperature {
            None => Choice::Greedy,
            Some(temperature) => Choice::Sample { temperature, top_k: 0, seed },
        };
        let prompts = config.prompts.iter().map(prompt).collect::<Result<_, _>>()?;
        let request = Request { tokens, choice, ends: tokenizer.ends().to_vec() };
        Ok(Self { tokenizer: tokenizer.clone(), prompts, request })
    }

    /// The text that new tokens add to a prompt, without the one that ended them.
    pub fn text(&self, prompt: &[u32], new: &[u32]) -> String {
        self.tokenizer.continuation(prompt, self.tokenizer.without_end(new))
    }
}

/// The tokens of a prompt; with a template those of a chat with this question, up to where the assistant answers.
///
/// # Errors
/// When the template or the vocabulary cannot express it.
pub fn begin(text: &str, tokenizer: &Tokenizer, template: Option<&Template>) -> Result<Vec<u32>, DataError> {
    match template {
        None => tokenizer.begin(text),
        Some(template) => tokenizer.encode(&chat::text(&conversation([(text, None)]), template, true)?),
    }
}

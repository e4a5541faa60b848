//! [`Asking`]: how a question and its choices become tokens: behind worked examples, as text or as turns of a chat.

use super::{Problem, conversation};
use crate::data::chat::{self, Template};
use crate::data::{DataError, Prompted, Tokenizer};

/// See the module.
pub struct Asking<'a> {
    pub tokenizer: &'a Tokenizer,
    /// Of a chat; `None`: a question is text.
    pub template: Option<&'a Template>,
    /// Worked examples, which stand before each question.
    pub examples: Vec<&'a Problem>,
}

impl Asking<'_> {
    /// All that the model reads before it answers.
    ///
    /// # Errors
    /// What the template of chats raises.
    pub fn text(&self, problem: &Problem) -> Result<String, DataError> {
        let question = problem.text.prompt.as_str();
        let examples = self.examples.iter().map(|example| &example.text);
        match self.template {
            Some(template) => {
                let turns = examples
                    .map(|Prompted { prompt, completion }| (prompt.as_str(), Some(completion.as_str())));
                chat::text(&conversation(turns.chain([(question, None)])), template, true)
            }
            None => {
                let whole = |Prompted { prompt, completion }: &Prompted| format!("{prompt}{completion}\n\n");
                Ok(examples.map(whole).collect::<String>() + question)
            }
        }
    }

    /// The tokens of this text. A chat's has its special tokens in it.
    ///
    /// # Errors
    /// When the vocabulary cannot express it.
    pub fn begin(&self, text: &str) -> Result<Vec<u32>, DataError> {
        if self.template.is_some() { self.tokenizer.encode(text) } else { self.tokenizer.begin(text) }
    }

    /// The same with an answer behind it, and how many tokens are given.
    ///
    /// # Errors
    /// When the vocabulary cannot express it.
    pub fn answered(&self, text: &str, answer: &str) -> Result<(Vec<u32>, usize), DataError> {
        match self.template {
            Some(_) => self.tokenizer.divided(text, answer),
            None => self.tokenizer.prompted(text, answer),
        }
    }
}

/// What the template writes behind the assistant's turn, without white space at its ends; `None` if that is nothing.
pub fn closing(template: &Template) -> Option<String> {
    const ANSWER: &str = "Answer";
    let text = chat::text(&conversation([("Question", Some(ANSWER))]), template, false).ok()?;
    let closing = text.rsplit_once(ANSWER)?.1.trim();
    (!closing.is_empty()).then(|| closing.into())
}

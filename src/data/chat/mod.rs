//! Chats as a model reads them: a [`Template`] makes one text of the messages, the tokenizer its tokens, and the assistant's
//! turns are what is learned.

mod jinja;
mod messages;
mod template;
mod turns;
mod variables;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::record::{Chat, Tokens};
use super::section::Learn;
use super::{DataError, Tokenizer};
use messages::Messages;
pub use template::{NAMES, Template};
pub use variables::variables;

/// What makes tokens of the chats of a cell: `data.template` or the template of its tokenizer, `data.template_variables` and
/// `data.learn`.
#[derive(Debug)]
pub struct Chats {
    tokenizer: Option<PathBuf>,
    template: Option<String>,
    variables: Option<String>,
    learn: Learn,
    /// Read with the first chat: data without chats need none.
    read: OnceLock<Result<Template, DataError>>,
}

impl Chats {
    /// `tokenizer`: the file or folder of one that is not trained.
    pub fn new(
        tokenizer: Option<PathBuf>,
        template: Option<String>,
        variables: Option<String>,
        learn: Learn,
    ) -> Self {
        Self { tokenizer, template, variables, learn, read: OnceLock::new() }
    }

    /// # Errors
    /// As [`Template::load`] and [`encode`].
    pub fn encode(&self, chat: &Chat, tokenizer: &Tokenizer) -> Result<Tokens, DataError> {
        encode(chat, self.template()?, tokenizer, self.learn)
    }

    /// What decides the tokens of chats, beside the tokenizer.
    pub fn identity(&self) -> String {
        let template =
            self.template().map_or_else(|e| e.to_string(), |template| template.identity().to_string());
        format!("{template} {:?}", self.learn)
    }

    /// # Errors
    /// As [`Template::load`] and [`Template::with_variables`].
    pub fn template(&self) -> Result<&Template, DataError> {
        let load = || {
            let template = Template::load(self.tokenizer.as_deref(), self.template.as_deref())?;
            match &self.variables {
                None => Ok(template),
                Some(variables) => template.with_variables(variables),
            }
        };
        self.read.get_or_init(load).as_ref().map_err(|e| DataError::new(e.to_string()))
    }
}

/// The tokens of a chat, as `apply_chat_template` of transformers makes them. The assistant's turns are learned, with the
/// token that ends each; or all is. A token of both sides of a border is learned.
///
/// # Errors
/// Turns of which no text can be made, what the template raises, turns that cannot be told apart in its text, and text that
/// the vocabulary cannot express.
pub fn encode(
    chat: &Chat,
    template: &Template,
    tokenizer: &Tokenizer,
    learn: Learn,
) -> Result<Tokens, DataError> {
    let named = |e: String| DataError::new(format!("the chat {}: {e}", beginning(chat)));
    let messages = Messages::new(chat).map_err(named)?;
    let text = template.render(&messages, false).map_err(named)?;
    messages.check_shown(&text).map_err(named)?;
    let (ids, places) = tokenizer.encode_offsets(&text)?;
    let learned = match learn {
        Learn::All => vec![true; ids.len()],
        Learn::Assistant => {
            let is_added = |(id, _): &(&u32, _)| tokenizer.is_added(**id);
            let added: Vec<usize> =
                ids.iter().zip(&places).filter(is_added).map(|(_, place)| place.0).collect();
            overlapping(&places, &template.assistant(&messages, &text, &added).map_err(named)?)
        }
    };
    Ok(Tokens { ids, learned })
}

/// The text of a chat; with the beginning of the assistant's next turn, if it is a prompt.
///
/// # Errors
/// Turns of which no text can be made, and what the template raises.
pub fn text(chat: &Chat, template: &Template, prompt: bool) -> Result<String, DataError> {
    let text = Messages::new(chat).and_then(|messages| template.render(&messages, prompt));
    text.map_err(|e| DataError::new(format!("the chat {}: {e}", beginning(chat))))
}

/// For each token whether it has a character of one of the spans. Both are in the order of the text.
fn overlapping(tokens: &[(usize, usize)], spans: &[Range<usize>]) -> Vec<bool> {
    let mut spans = spans.iter().filter(|span| !span.is_empty()).peekable();
    let overlaps = |(start, end): &(usize, usize)| {
        while spans.next_if(|span| span.end <= *start).is_some() {}
        spans.peek().is_some_and(|span| *end > span.start)
    };
    tokens.iter().map(overlaps).collect()
}

/// How a chat begins, to name it.
fn beginning(chat: &Chat) -> String {
    let texts = chat.messages.iter().filter_map(|message| message.get_attr("content").ok());
    let first =
        texts.into_iter().find(|content| content.as_str().is_some_and(|text| !text.trim().is_empty()));
    let first = first.map(|text| text.to_string()).unwrap_or_default();
    let line: String = first.trim().lines().next().unwrap_or_default().chars().take(40).collect();
    format!("\"{line}…\"")
}

#[cfg(test)]
mod tests;

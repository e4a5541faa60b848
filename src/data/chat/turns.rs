//! Where the assistant's turns stand in the text of a chat, where its template does not say so itself.
//!
//! A turn is what its message adds to a text: it begins behind the text of the messages before it with the prompt of a
//! generation, and ends with the text that has it. Where a template writes a message otherwise when others follow (a thought
//! that only the last turn shows, an end that only a chat has), a stand-in for the message's content shows where it stands
//! and what ends it. Turns that neither finds are refused.

use std::ops::Range;

use minijinja::Value;

use super::messages::Messages;
use super::template::Template;

/// No text has these characters: Unicode gives them no meaning.
const STAND_IN: &str = "\u{fdd2}\u{fdd3}";

/// A chat's text, and what it is made from.
pub struct Chat<'c> {
    pub messages: &'c Messages,
    pub template: &'c Template,
    pub text: &'c str,
    /// Where a special token begins.
    pub added: &'c [usize],
}

impl Chat<'_> {
    /// The assistant's turns, in bytes.
    ///
    /// # Errors
    /// A turn that cannot be found.
    pub fn turns(&self) -> Result<Vec<Range<usize>>, String> {
        let mut turns: Vec<Range<usize>> = Vec::new();
        for index in (0..self.messages.list.len()).filter(|index| self.messages.is_written(*index)) {
            let replaced =
                || self.stand_ins(index).into_iter().find_map(|message| self.replaced(index, message));
            let turn = self.added(index).or_else(replaced).filter(|turn| {
                turn.start <= turn.end && turns.last().is_none_or(|last| last.end <= turn.start)
            });
            turns.push(turn.ok_or_else(|| {
                format!(
                    "the turn of message {} cannot be found in the template's text; set data.learn = \"all\", or \
                     name a template in data.template that has {{% generation %}} around what is learned",
                    index + 1
                )
            })?);
        }
        Ok(turns)
    }

    /// The text of messages, if it can be made and this one begins with it.
    fn beginning(&self, messages: &Messages, prompt: bool) -> Option<usize> {
        let text = self.template.render(messages, prompt).ok()?;
        self.text.starts_with(&text).then_some(text.len())
    }

    /// What a message adds.
    fn added(&self, index: usize) -> Option<Range<usize>> {
        let start = self.beginning(&self.messages.first(index), true)?;
        let end = if index + 1 == self.messages.list.len() {
            self.text.len()
        } else {
            self.beginning(&self.messages.first(index + 1), false)?
        };
        Some(start..end)
    }

    /// Messages that say nothing but the stand-in, or that in place of their content.
    fn stand_ins(&self, index: usize) -> [Value; 2] {
        let role = self.messages.role(index);
        let own = self.messages.list[index].try_iter().into_iter().flatten();
        let own = own.map(|key| (key.clone(), self.messages.list[index].get_item(&key).unwrap_or_default()));
        let with_content = own.chain([(Value::from("content"), Value::from(STAND_IN))]);
        [Value::from_pairs([("role", role.as_str()), ("content", STAND_IN)]), Value::from_pairs(with_content)]
    }

    /// What stands where a stand-in would stand, with what leads to it and what ends it.
    fn replaced(&self, index: usize, message: Value) -> Option<Range<usize>> {
        if self.text.contains(STAND_IN) {
            return None;
        }
        let replaced = self.messages.replaced(index, message);
        let last = self.template.render(&replaced.first(index + 1), false).ok()?;
        let (before, end) = last.split_once(STAND_IN)?;
        let whole = self.template.render(&replaced, false).ok()?;
        let (lead, rest) = whole.split_once(STAND_IN)?;
        // What follows the turn's content is that of its stand-in.
        let content = self.text.len().checked_sub(rest.len()).filter(|_| self.text.ends_with(rest))?;
        let start = self.beginning(&self.messages.first(index), true);
        let start = start.or_else(|| self.start(index, before, lead))?;
        Some(start..content + self.end(end, rest, content)?)
    }

    /// Where a turn begins whose content `lead` leads to, and as the last turn `before`: behind what a prompt ends with.
    fn start(&self, index: usize, before: &str, lead: &str) -> Option<usize> {
        if !self.text.starts_with(lead) {
            return None;
        }
        let prompt = self.template.render(&self.messages.first(index), true).ok();
        if let Some(prompt) = &prompt {
            // A prompt may go on with what only the last turn has, and stand on lines of its own.
            if without_space(prompt).starts_with(&without_space(lead)) {
                return Some(lead.len());
            }
            if let Some(own) = before.strip_prefix(prompt).filter(|own| lead.ends_with(own)) {
                return Some(lead.len() - own.len());
            }
            if self.follows(index, prompt, lead) {
                return Some(lead.trim_end().len());
            }
        }
        let header = self.headers().into_iter().flatten().find(|(header, _)| lead.ends_with(header));
        header.map(|(header, prompted)| lead.len() - header.len() + prompted)
    }

    /// Whether the message before a turn ends a prompt as it ends what leads to the turn's content.
    fn follows(&self, index: usize, prompt: &str, lead: &str) -> bool {
        let content = index.checked_sub(1).and_then(|last| self.messages.list[last].get_attr("content").ok());
        let content = content.filter(|content| content.as_str().is_some_and(|text| !text.trim().is_empty()));
        let place = content.and_then(|content| prompt.rfind(content.as_str()?.trim()));
        place.is_some_and(|place| lead.trim_end().ends_with(prompt[place..].trim_end()))
    }

    /// What leads to the content of an answer in a chat of one question, as the last turn and before another question, and how
    /// much of it a prompt has.
    fn headers(&self) -> Option<Vec<(String, usize)>> {
        let message = |role, content| Value::from_pairs([("role", role), ("content", content)]);
        let [question, answer] = [message("user", "?"), message("assistant", STAND_IN)];
        let text = |list: &[&Value], prompt| {
            let list = list.iter().map(|message| (*message).clone()).collect();
            self.template.render(&Messages { list, tools: self.messages.tools.clone() }, prompt).ok()
        };
        let open = text(&[&question], false)?;
        let prompt = text(&[&question], true)?.strip_prefix(&open)?.to_string();
        let lead = |list: &[&Value]| {
            let lead = text(list, false)?.split_once(STAND_IN)?.0.strip_prefix(&open)?.to_string();
            let common = common(lead.chars(), prompt.chars()).map(char::len_utf8).sum();
            (common > 0).then_some((lead, common))
        };
        let leads = [lead(&[&question, &answer]), lead(&[&question, &answer, &question])];
        Some(leads.into_iter().flatten().collect())
    }

    /// The length of what ends a turn: all that ends the last turn, or the part of it that a special token follows.
    fn end(&self, last: &str, rest: &str, content: usize) -> Option<usize> {
        if rest.starts_with(last) {
            return Some(last.len());
        }
        let common = common(last.bytes(), rest.bytes()).count();
        let place = self.added.iter().rev().find(|place| (content + 1..=content + common).contains(place))?;
        Some(place - content)
    }
}

/// What two texts begin with.
fn common<T: PartialEq>(a: impl Iterator<Item = T>, b: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    a.zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a)
}

fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

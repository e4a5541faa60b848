//! [`Messages`]: a chat's messages as transformers gives them to a template.

use minijinja::Value;
use minijinja::value::ValueKind;

use crate::data::record::Chat;

/// Names under which a message's thought stands.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
/// The roles that templates know. What the model writes has one of the first.
const ROLES: [&str; 9] = [
    "assistant",
    "assistant_tool_call",
    "model",
    "system",
    "developer",
    "user",
    "tool",
    "function",
    "ipython",
];
const WRITTEN: usize = 3;

/// Messages, each with `role` and without keys that say nothing.
#[derive(Clone, Debug)]
pub struct Messages {
    pub list: Vec<Value>,
    pub tools: Option<Value>,
}

impl Messages {
    /// Drops what is null, and gives a thought both its names, as transformers does.
    ///
    /// # Errors
    /// No messages, what is no message, and a message that says nothing.
    pub fn new(chat: &Chat) -> Result<Self, String> {
        if chat.messages.is_empty() {
            return Err("it has no messages".into());
        }
        let message = |(i, message)| message_of(message).map_err(|e| format!("message {}: {e}", i + 1));
        let list = chat.messages.iter().enumerate().map(message).collect::<Result<_, _>>()?;
        let tools = chat.tools.clone().filter(|tools| !tools.is_none() && !tools.is_undefined());
        Ok(Self { list, tools })
    }

    /// The first messages.
    pub fn first(&self, count: usize) -> Self {
        Self { list: self.list[..count].to_vec(), tools: self.tools.clone() }
    }

    /// The same with another message in place of one.
    pub fn replaced(&self, index: usize, message: Value) -> Self {
        let mut replaced = self.clone();
        replaced.list[index] = message;
        replaced
    }

    pub fn role(&self, index: usize) -> String {
        self.list[index].get_attr("role").map(|role| role.to_string()).unwrap_or_default()
    }

    /// Whether the model writes a message.
    pub fn is_written(&self, index: usize) -> bool {
        ROLES[..WRITTEN].contains(&self.role(index).as_str())
    }

    /// Refuses a text that lacks what the assistant writes, or a message of a role that its template may not know.
    ///
    /// # Errors
    /// Names the message.
    pub fn check_shown(&self, text: &str) -> Result<(), String> {
        let get = |index: usize, key: &str| self.list[index].get_attr(key).unwrap_or_default();
        let is_lost = |index: &usize| {
            let is_checked = match self.is_written(*index) {
                true => get(*index, "tool_calls").is_undefined(),
                false => !ROLES.contains(&self.role(*index).as_str()),
            };
            // A thought may be left out, which stands before the rest.
            let last = |content: &str| content.trim().lines().next_back().map(|line| line.trim().to_string());
            let last = get(*index, "content").as_str().and_then(last);
            is_checked && last.is_some_and(|line| !text.contains(&line))
        };
        match (0..self.list.len()).find(is_lost) {
            None => Ok(()),
            Some(index) => Err(format!(
                "the template leaves out message {}, whose role is \"{}\"; known roles are {}, and some templates want a \
                 list of parts as content",
                index + 1,
                self.role(index),
                ROLES.join(", ")
            )),
        }
    }
}

fn message_of(message: &Value) -> Result<Value, String> {
    if message.kind() != ValueKind::Map {
        return Err(format!("it is no object with \"role\" and \"content\", but a {}", message.kind()));
    }
    let keys = message.try_iter().map_err(|e| e.to_string())?;
    let pairs = keys.map(|key| (key.clone(), message.get_item(&key).unwrap_or_default()));
    let mut pairs: Vec<(Value, Value)> = pairs.filter(|(_, value)| !value.is_none()).collect();
    let find = |pairs: &[(Value, Value)], name: &str| {
        pairs.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value.clone())
    };
    match find(&pairs, "role") {
        None => return Err("it has no role".into()),
        Some(role) if role.as_str().is_none_or(str::is_empty) => {
            return Err(format!("its role is no name, but {role:?}"));
        }
        Some(_) => {}
    }
    let says = ["content", "tool_calls", "function_call"].iter().chain(&REASONING);
    if says.into_iter().all(|name| find(&pairs, name).is_none()) {
        return Err(
            "it has no content, or null; leave the message out, or write \"\" where it is meant to be empty"
                .into(),
        );
    }
    if let Some(thought) = REASONING.iter().find_map(|name| find(&pairs, name)) {
        let mut set = |name: &str, value: &Value, first: bool| match pairs
            .iter_mut()
            .find(|(key, _)| key.as_str() == Some(name))
        {
            Some((_, own)) if !first => *own = value.clone(),
            Some(_) => {}
            None if first => pairs.insert(0, (name.into(), value.clone())),
            None => pairs.push((name.into(), value.clone())),
        };
        set("thinking", &thought, true);
        set("reasoning_content", &thought, false);
    }
    Ok(Value::from_pairs(pairs))
}

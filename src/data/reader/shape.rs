//! [`record`]: a record from the columns of a row.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::fit::fitting;
use super::rows::{Fields, object};
use super::{Columns, Format, Reading, json};
use crate::data::Prompted;
use crate::data::record::{Chat, Record, Tokens};

/// What a label is where its token is given, in transformers.
const IGNORED: i64 = -100;

/// Alpaca's prompts, as its published data set has them in its column `text` (Taori et al. 2023).
const WITHOUT_INPUT: &str = "Below is an instruction that describes a task. Write a response that appropriately completes \
                             the request.";
const WITH_INPUT: &str = "Below is an instruction that describes a task, paired with an input that provides further \
                          context. Write a response that appropriately completes the request.";

/// The record of a row; `None` where it is blank. `format`: of all rows of the file, where they have the same columns.
///
/// # Errors
/// Why there is none.
pub fn record(fields: &Fields, format: Option<Format>, reading: &Reading) -> Result<Option<Record>, String> {
    let format = match format {
        Some(format) => format,
        None => {
            let is_there = |name: &str| fields.get(name).is_some_and(|value| !value.is_none());
            fitting(reading, is_there, &fields.names())?
        }
    };
    let row = Columned { fields, columns: &reading.columns };
    let record = match format {
        Format::Text => {
            let text = row.text("text")?;
            return Ok((!text.trim().is_empty()).then(|| Record::Text(text.into())));
        }
        Format::Messages => {
            Record::Chat(Chat { messages: messages(row.list("messages")?)?, tools: row.tools()? })
        }
        Format::Conversations => {
            Record::Chat(Chat { messages: messages(row.list("conversations")?)?, tools: row.tools()? })
        }
        Format::PromptCompletion if row.value("prompt").is_some_and(is_list) => {
            let all = [row.list("prompt")?, row.list("completion")?].concat();
            Record::Chat(Chat { messages: messages(all)?, tools: row.tools()? })
        }
        Format::PromptCompletion => pair(row.text("prompt")?.into(), row.learned("completion")?),
        Format::Instruction => pair(row.instruction()?, row.learned("output")?),
        Format::QuestionAnswer => pair(format!("{}\n", row.text("question")?), row.learned("answer")?),
        Format::InputIds => Record::Tokens(row.tokens()?),
    };
    Ok(Some(record))
}

fn pair(prompt: String, completion: &str) -> Record {
    Record::Pair(Prompted { prompt, completion: completion.into() })
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// A row by the keys of its columns.
struct Columned<'a> {
    fields: &'a Fields,
    columns: &'a Columns,
}

impl Columned<'_> {
    /// `None` where it is null, or there is no such column.
    fn value(&self, key: &str) -> Option<&Value> {
        self.fields.get(self.columns.name(key)).filter(|value| !value.is_none() && !value.is_undefined())
    }

    fn require(&self, key: &str) -> Result<&Value, String> {
        self.value(key).ok_or_else(|| format!("`{}` is null", self.columns.name(key)))
    }

    fn wrong(&self, key: &str, value: &Value, expected: &str) -> String {
        format!("`{}` is a {}, and not {expected}", self.columns.name(key), value.kind())
    }

    fn text(&self, key: &str) -> Result<&str, String> {
        let value = self.require(key)?;
        value.as_str().ok_or_else(|| self.wrong(key, value, "a string"))
    }

    /// A text of which something can be learned.
    fn learned(&self, key: &str) -> Result<&str, String> {
        match self.text(key)? {
            text if text.trim().is_empty() => {
                Err(format!("`{}` is empty: there is nothing to learn", self.columns.name(key)))
            }
            text => Ok(text),
        }
    }

    /// A list, also one that stands in a string as JSON: a CSV file has no lists.
    fn list(&self, key: &str) -> Result<Vec<Value>, String> {
        let value =
            self.parsed(self.require(key)?).map_err(|e| format!("`{}`: {e}", self.columns.name(key)))?;
        match is_list(&value) {
            true => Ok(value.try_iter().map_err(|e| e.to_string())?.collect()),
            false => Err(self.wrong(key, &value, "a list")),
        }
    }

    fn parsed(&self, value: &Value) -> Result<Value, String> {
        value.as_str().map_or_else(|| Ok(value.clone()), json::value)
    }

    /// The functions that a chat may call; none where the list is empty.
    fn tools(&self) -> Result<Option<Value>, String> {
        match self.value("tools") {
            Some(value) if value.as_str() != Some("") => {
                let tools = self.list("tools")?;
                Ok((!tools.is_empty()).then(|| Value::from(tools)))
            }
            _ => Ok(None),
        }
    }

    fn instruction(&self) -> Result<String, String> {
        let instruction = self.text("instruction")?;
        let input = self.value("input").map_or(Ok(""), |_| self.text("input"))?;
        Ok(match input.is_empty() {
            true => format!("{WITHOUT_INPUT}\n\n### Instruction:\n{instruction}\n\n### Response:\n"),
            false => {
                format!(
                    "{WITH_INPUT}\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
                )
            }
        })
    }

    fn tokens(&self) -> Result<Tokens, String> {
        let numbers = |key: &str| -> Result<Vec<i64>, String> {
            let wrong = |value: &Value| self.wrong(key, value, "a whole number, as its elements must be");
            self.list(key)?.iter().map(|value| value.as_i64().ok_or_else(|| wrong(value))).collect()
        };
        let ids = numbers("input_ids")?;
        if ids.is_empty() {
            return Err(format!("`{}` is empty", self.columns.name("input_ids")));
        }
        let id = |id: &i64| u32::try_from(*id).map_err(|_| format!("{id} is no token"));
        let tokens = ids.iter().map(id).collect::<Result<Vec<_>, _>>()?;
        let Some(labels) = self.value("labels").map(|_| numbers("labels")).transpose()? else {
            return Ok(Tokens { learned: vec![true; tokens.len()], ids: tokens });
        };
        if labels.len() != ids.len() {
            return Err(format!("it has {} labels for {} tokens", labels.len(), ids.len()));
        }
        let learned: Vec<bool> = labels.iter().map(|label| *label != IGNORED).collect();
        let other = labels.iter().zip(&ids).position(|(label, id)| *label != IGNORED && label != id);
        match other {
            Some(index) => Err(format!(
                "label {} is {} and its token {}; a label is its own token, or {IGNORED} where that is given: the model \
                 shifts them",
                index + 1,
                labels[index],
                ids[index]
            )),
            None => Ok(Tokens { ids: tokens, learned }),
        }
    }
}

/// Messages of `role` and `content`, from these or from turns of `from` and `value`.
fn messages(turns: Vec<Value>) -> Result<Vec<Value>, String> {
    if turns.is_empty() {
        return Err("the chat has no messages".into());
    }
    let message = |(index, turn): (usize, Value)| {
        message(turn).map_err(|reason| format!("message {}: {reason}", index + 1))
    };
    turns.into_iter().enumerate().map(message).collect()
}

fn message(turn: Value) -> Result<Value, String> {
    if turn.kind() != ValueKind::Map {
        return Err(format!("it is a {}, and not an object with `role` and `content`", turn.kind()));
    }
    let get = |key: &str| turn.get_attr(key).ok().filter(|value| !value.is_undefined());
    match get("role") {
        Some(role) if role.as_str().is_none() => {
            return Err(format!("`role` is {}, and not a string", shown(&role)));
        }
        Some(_) => return checked(turn, "content"),
        None => {}
    }
    let Some(from) = get("from") else { return Err("it has no `role`".into()) };
    let role = match from.as_str() {
        Some("human" | "user") => "user",
        Some("gpt" | "assistant" | "model" | "chatgpt" | "bot") => "assistant",
        Some("system") => "system",
        Some("tool" | "function" | "observation" | "tool_response" | "function_response") => "tool",
        _ => {
            return Err(format!(
                "`from` is {}; it can be human, user, gpt, assistant, model, system, tool or function",
                shown(&from)
            ));
        }
    };
    let turn = checked(turn, "value")?;
    let renamed = |key: Value| {
        let value = turn.get_item(&key).unwrap_or_default();
        match key.as_str().unwrap_or_default() {
            "from" => ("role".to_string(), Value::from(role)),
            "value" => ("content".into(), value),
            other => (other.into(), value),
        }
    };
    Ok(object(turn.try_iter().map_err(|e| e.to_string())?.map(renamed).collect()))
}

/// A turn whose content is text, a list of parts, or null where it calls tools.
fn checked(turn: Value, key: &str) -> Result<Value, String> {
    let content = turn.get_attr(key).unwrap_or_default();
    let calls = turn.get_attr("tool_calls").is_ok_and(|calls| calls.is_true());
    match content.kind() {
        ValueKind::String | ValueKind::Seq => Ok(turn),
        ValueKind::None | ValueKind::Undefined if calls => Ok(turn),
        ValueKind::None => Err(format!("`{key}` is null")),
        ValueKind::Undefined => Err(format!("it has no `{key}`")),
        kind => Err(format!("`{key}` is a {kind}, and not a string")),
    }
}

/// A value as JSON has it.
fn shown(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| value.to_string())
}

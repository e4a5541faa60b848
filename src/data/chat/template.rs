//! [`Template`]: a chat template, as the folder of a tokenizer has it, or a file, or by a name.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use minijinja::Value;
use time::UtcDateTime;

use super::jinja::Jinja;
use super::messages::Messages;
use super::turns::Chat;
use super::variables::{check, variables};
use crate::data::DataError;
use crate::data::tokenizer::read_json;
use crate::params::hub::{self, Needs};

/// Templates that need no file, by their names.
const KNOWN: [(&str, &str); 2] =
    [("chatml", include_str!("templates/chatml.jinja")), ("llama3", include_str!("templates/llama3.jinja"))];
/// Their names.
pub const NAMES: [&str; 2] = [KNOWN[0].0, KNOWN[1].0];
/// The special tokens that a template can use.
const TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// What a template gets of a chat.
const GIVEN: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

const CONFIG: &str = "tokenizer_config.json";
const FILE: &str = "chat_template.jinja";
/// Templates by the names of their files.
const FOLDER: &str = "additional_chat_templates";
const DEFAULT: &str = "default";
/// The template of chats with functions that the model may call.
const TOOLS: &str = "tool_use";

/// A template that is compiled, and what it reads beside the messages.
#[derive(Debug)]
pub struct Template {
    chats: Jinja,
    /// Chats with tools have one of their own.
    tools: Option<Jinja>,
    tokens: Vec<(&'static str, String)>,
    /// Of the recipe.
    variables: Vec<(String, Value)>,
    identity: String,
}

impl Template {
    /// Reads `data.template`: a file, a name of [`NAMES`] or one of the templates in the tokenizer's folder; without it, the
    /// folder's own. A template that writes the time has the beginning of this day (UTC), so that a day's texts are equal.
    ///
    /// # Errors
    /// A template that is not there or has an error.
    pub fn load(tokenizer: Option<&Path>, named: Option<&str>) -> Result<Self, DataError> {
        Self::dated(tokenizer, named, UtcDateTime::now().truncate_to_day())
    }

    /// The same on a date, which a template may write.
    pub(super) fn dated(
        tokenizer: Option<&Path>,
        named: Option<&str>,
        now: UtcDateTime,
    ) -> Result<Self, DataError> {
        let folder = tokenizer.map(folder).transpose()?;
        let config =
            folder.as_ref().map(|folder| read_json(&folder.join(CONFIG))).transpose()?.unwrap_or_default();
        let own = folder.as_ref().map(|folder| templates(folder, &config)).transpose()?.unwrap_or_default();
        let find = |name: &str| own.iter().find(|(own, _)| own == name).map(|(_, source)| source.clone());
        let (source, tools) = match named {
            Some(name) => (find(name).map_or_else(|| named_source(name, &own), Ok)?, None),
            None => (find(DEFAULT).ok_or_else(|| missing(tokenizer, &own))?, find(TOOLS)),
        };
        let compiled = |source: &String| {
            Jinja::new(source, now)
                .map_err(|e| DataError::new(format!("the chat template cannot be read: {e}")))
        };
        let special = special(folder.as_deref())?;
        let token = |name| {
            let text = |from: &serde_json::Value| {
                let value = &from[name];
                Some(value.as_str().or_else(|| value["content"].as_str())?.to_string())
            };
            Some((name, text(&config).or_else(|| text(&special))?))
        };
        let tokens: Vec<(&str, String)> = TOKENS.into_iter().filter_map(token).collect();
        let sources = [Some(&source), tools.as_ref()].into_iter().flatten();
        let day =
            sources.clone().any(|source| source.contains("strftime_now")).then(|| now.date().to_string());
        let identity = format!("{:?} {tokens:?} {day:?}", sources.collect::<Vec<_>>());
        Ok(Self {
            chats: compiled(&source)?,
            tools: tools.as_ref().map(compiled).transpose()?,
            tokens,
            variables: Vec::new(),
            identity,
        })
    }

    /// The same with `data.template_variables`.
    ///
    /// # Errors
    /// As [`variables`], and a variable that the template does not read.
    pub fn with_variables(mut self, text: &str) -> Result<Self, DataError> {
        self.variables = variables(text).map_err(DataError::new)?;
        let read = [Some(&self.chats), self.tools.as_ref()].into_iter().flatten().flat_map(Jinja::reads);
        let given = GIVEN.iter().chain(&TOKENS).map(|name| (*name).to_string());
        check(&self.variables, &read.collect(), &given.collect()).map_err(DataError::new)?;
        self.identity += &format!(" {:?}", self.variables);
        Ok(self)
    }

    /// What the texts of chats depend on: equal for templates that make equal texts of all chats.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The text of messages; with the beginning of the assistant's next turn, if this is a prompt.
    ///
    /// # Errors
    /// What the template raises.
    pub fn render(&self, messages: &Messages, prompt: bool) -> Result<String, String> {
        self.jinja(messages).render(self.variables(messages, prompt))
    }

    /// Where what the assistant wrote stands in the text of messages, in bytes. `added` is where special tokens begin.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn assistant(
        &self,
        messages: &Messages,
        text: &str,
        added: &[usize],
    ) -> Result<Vec<Range<usize>>, String> {
        let jinja = self.jinja(messages);
        if jinja.is_marked() {
            jinja.generated(text, self.variables(messages, false))
        } else {
            Chat { messages, template: self, text, added }.turns()
        }
    }

    fn jinja(&self, messages: &Messages) -> &Jinja {
        self.tools.as_ref().filter(|_| messages.tools.is_some()).unwrap_or(&self.chats)
    }

    fn variables(&self, messages: &Messages, prompt: bool) -> Value {
        let none = || Value::from(());
        let list = Value::from(messages.list.clone());
        let values = [list, messages.tools.clone().unwrap_or_else(none), none(), prompt.into()];
        let tokens = self.tokens.iter().map(|(name, token)| (*name, Value::from(token.as_str())));
        let own = self.variables.iter().map(|(name, value)| (name.as_str(), value.clone()));
        Value::from_pairs(tokens.chain(own).chain(GIVEN.into_iter().zip(values)))
    }
}

/// The folder of a tokenizer.
fn folder(tokenizer: &Path) -> Result<PathBuf, DataError> {
    let path = hub::fetched(tokenizer, Needs::Description).map_err(DataError::new)?;
    Ok(if path.is_dir() { path } else { path.parent().map(Path::to_path_buf).unwrap_or_default() })
}

/// The templates of a folder by their names. Files count before the tokenizer's configuration, as for transformers.
fn templates(folder: &Path, config: &serde_json::Value) -> Result<Vec<(String, String)>, DataError> {
    let mut templates = Vec::new();
    let file = folder.join(FILE);
    if file.exists() {
        templates.push((DEFAULT.to_string(), read(&file)?));
    }
    let files = fs::read_dir(folder.join(FOLDER)).into_iter().flatten().flatten().map(|entry| entry.path());
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "jinja")) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        templates.push((name, read(&file)?));
    }
    let processor = read_json(&folder.join("chat_template.json"))?;
    for config in [config, &processor] {
        let found = &config["chat_template"];
        match found.as_array() {
            _ if !templates.is_empty() => {}
            Some(list) => templates.extend(list.iter().filter_map(|one| {
                Some((one["name"].as_str()?.to_string(), one["template"].as_str()?.to_string()))
            })),
            None => templates.extend(found.as_str().map(|source| (DEFAULT.to_string(), source.to_string()))),
        }
    }
    templates.sort();
    Ok(templates)
}

/// Special tokens of older folders, which are not in the configuration.
fn special(folder: Option<&Path>) -> Result<serde_json::Value, DataError> {
    folder.map_or(Ok(serde_json::Value::Null), |folder| read_json(&folder.join("special_tokens_map.json")))
}

fn read(file: &Path) -> Result<String, DataError> {
    fs::read_to_string(file).map_err(|e| DataError::new(format!("cannot read {}: {e}", file.display())))
}

/// The template of a file, or one that is known by its name.
fn named_source(name: &str, own: &[(String, String)]) -> Result<String, DataError> {
    if let Some((_, source)) = KNOWN.iter().find(|(known, _)| *known == name) {
        return Ok((*source).to_string());
    }
    let file = Path::new(name);
    if file.is_file() {
        return read(file);
    }
    let own: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    let own = if own.is_empty() {
        String::new()
    } else {
        format!(", or of the tokenizer's folder ({})", own.join(", "))
    };
    Err(DataError::new(format!(
        "data.template = \"{name}\" is no file, and no template has this name; name a file, or one of {}{own}",
        NAMES.join(", ")
    )))
}

fn missing(tokenizer: Option<&Path>, own: &[(String, String)]) -> DataError {
    let place = match tokenizer {
        None => "a tokenizer that is trained has no chat template".into(),
        Some(path) if own.is_empty() => format!("the folder of {} has no chat template", path.display()),
        Some(path) => {
            let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
            format!(
                "the chat templates of {} are {}, and none is the default",
                path.display(),
                names.join(", ")
            )
        }
    };
    DataError::new(format!("{place}; name one in data.template: a file, or one of {}", NAMES.join(", ")))
}

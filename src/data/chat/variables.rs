//! `data.template_variables`: what a recipe gives a chat template beside the chat, as keyword arguments of transformers'
//! `apply_chat_template`.

use std::collections::HashSet;

use minijinja::Value;
use serde::Deserialize;

/// Names and values, written as in TOML: `enable_thinking = false, date = "today"`.
///
/// # Errors
/// What is no TOML.
pub fn variables(text: &str) -> Result<Vec<(String, Value)>, String> {
    let wrong = |e: &str| {
        format!(
            "template_variables = {text:?} is no list of names and values as \"enable_thinking = false, date = 'today'\": {e}"
        )
    };
    let document: toml::Table =
        toml::from_str(&format!("variables = {{ {text} }}")).map_err(|e| wrong(e.message()))?;
    let table = match &document["variables"] {
        toml::Value::Table(table) if document.len() == 1 => table,
        _ => return Err(wrong("a bracket is closed that is not open")),
    };
    if table.is_empty() {
        return Err(wrong("it is empty"));
    }
    let value = |(name, value): (&String, &toml::Value)| match value {
        toml::Value::Datetime(_) => Err(wrong("a date is written as text, within quotes")),
        other => Ok((name.clone(), Value::deserialize(other.clone()).map_err(|e| wrong(e.message()))?)),
    };
    table.iter().map(value).collect()
}

/// Refuses variables that a template does not read, or that the chat or the tokenizer gives it. `read`: the names of all that it
/// reads; `given`: those that it gets in any case.
///
/// # Errors
/// Names the variable, and what the template reads.
pub fn check(
    variables: &[(String, Value)],
    read: &HashSet<String>,
    given: &HashSet<String>,
) -> Result<(), String> {
    if let Some((name, _)) = variables.iter().find(|(name, _)| given.contains(name)) {
        return Err(format!(
            "data.template_variables sets `{name}`, which the chat or the tokenizer gives the template; remove it"
        ));
    }
    let Some((name, _)) = variables.iter().find(|(name, _)| !read.contains(name)) else { return Ok(()) };
    let mut others: Vec<String> = read.difference(given).map(|name| format!("`{name}`")).collect();
    others.sort_unstable();
    Err(format!(
        "data.template_variables sets `{name}`, and the chat template never reads it; {}",
        if others.is_empty() {
            "it reads no variables".into()
        } else {
            format!("it reads {}", others.join(", "))
        }
    ))
}

//! The text part of a model that reads more than text: `text_config` in its `config.json`.

use serde_json::{Map, Value, json};

use crate::model::families::{FAMILIES, Family};

/// A model around that of a family, which is its text part.
#[derive(Debug)]
pub struct Whole {
    /// Its `model_type`.
    pub kind: &'static str,
    /// Fields of its `config.json` on what it reads besides text.
    pub others: &'static [&'static str],
    /// Fields of the text part that the whole does not compute with.
    pub unused: &'static [&'static str],
}

/// The fields of the text part of this file, as the family's own file would have them, where a family is one: those of
/// `text_config`, and of the others what they do not say.
pub fn text_part(file: &Map<String, Value>) -> Option<Map<String, Value>> {
    let kind = file.get("model_type")?.as_str()?;
    let is_inner = |family: &&&Family| family.whole.as_ref().is_some_and(|whole| whole.kind == kind);
    let family = FAMILIES.iter().find(is_inner)?;
    let whole = family.whole.as_ref()?;
    let text = file.get("text_config")?.as_object()?;
    if text.get("model_type").is_some_and(|kind| kind != family.kind) {
        return None;
    }
    let mut all = file.clone();
    // The padding token is the text part's, and the whole decides whether the head is the embedding.
    all.retain(|key, _| {
        !["text_config", "pad_token_id"].contains(&key.as_str()) && !whole.others.contains(&key.as_str())
    });
    all.extend(text.clone());
    let tied = file.get("tie_word_embeddings").filter(|tied| !tied.is_null());
    all.extend([
        ("tie_word_embeddings".into(), tied.cloned().unwrap_or(json!(true))),
        ("model_type".into(), json!(family.kind)),
    ]);
    Some(all)
}

/// Fields that say of the whole and of its text part in which type the weights are, or which tokens end a text: in the file
/// and in its `text_config`.
pub fn both(file: &mut Map<String, Value>, mut set: impl FnMut(&mut Map<String, Value>)) {
    set(file);
    if let Some(text) = file.get_mut("text_config").and_then(Value::as_object_mut) {
        set(text);
    }
}

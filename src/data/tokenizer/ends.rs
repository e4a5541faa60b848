//! Which tokens end a text, by the files beside `tokenizer.json`.

use std::path::Path;

use itertools::Itertools;
use serde_json::Value;

use super::{END_OF_TEXT, SPECIAL_TOKENS, Tokenizer};
use crate::data::DataError;

impl Tokenizer {
    /// The tokens that end a generated text; the first is [`eos`](Self::eos).
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// A generated text without the token that ended it.
    pub fn without_end<'t>(&self, tokens: &'t [u32]) -> &'t [u32] {
        match tokens.split_last() {
            Some((last, rest)) if self.ends.contains(last) => rest,
            _ => tokens,
        }
    }

    /// The token that ends a text, where one is known.
    pub fn eos(&self) -> Option<u32> {
        self.ends.first().copied()
    }

    /// The token that ends a text, which an answer needs.
    ///
    /// # Errors
    /// When the tokenizer has none.
    pub fn require_eos(&self) -> Result<u32, DataError> {
        let eos = self.eos().ok_or_else(|| {
            DataError::new(
                "the tokenizer has no end token, and without one a model cannot learn where an answer ends; name \
                 eos_token in tokenizer_config.json next to tokenizer.json",
            )
        })?;
        self.within(eos).map(|()| eos)
    }

    /// The token that stands between documents: `<|endoftext|>`, else the one that ends a text.
    ///
    /// # Errors
    /// When the tokenizer has neither.
    pub fn end_of_text(&self) -> Result<u32, DataError> {
        // An instruction-tuned model's eos ends a turn of its dialogue, not a document.
        let own = self.id(END_OF_TEXT).filter(|id| self.within(*id).is_ok());
        let end = own.or(self.eos()).ok_or_else(|| {
            DataError::new(format!(
                "the tokenizer has no {END_OF_TEXT} and no eos_token; name one in tokenizer_config.json \
                 next to tokenizer.json"
            ))
        })?;
        self.within(end).map(|()| end)
    }

    /// `eos_token` of `tokenizer_config.json`, and what [`generation_ends`] says.
    pub(super) fn ends_by(&self, folder: &Path) -> Result<Vec<u32>, DataError> {
        let file = folder.join(SPECIAL_TOKENS[0]);
        let config = read_json(&file)?;
        let token = &config["eos_token"];
        // Either the token, or a table that describes it.
        let token = token.as_str().or_else(|| token["content"].as_str());
        let own = token.map(|token| {
            let unknown = || {
                DataError::new(format!("{}: eos_token \"{token}\" is not in tokenizer.json", file.display()))
            };
            self.id(token).ok_or_else(unknown)
        });
        let own = own.transpose()?;
        let more = generation_ends(folder)?.into_iter().filter(|id| self.inner.id_to_token(*id).is_some());
        Ok(own.into_iter().chain(more).unique().collect())
    }
}

/// The tokens that end a text by `eos_token_id` of a model folder's `generation_config.json`, or of its `config.json` where that
/// file is not there.
///
/// # Errors
/// When the file cannot be read.
pub fn generation_ends(folder: &Path) -> Result<Vec<u32>, DataError> {
    let generation = folder.join(SPECIAL_TOKENS[1]);
    let config = read_json(&if generation.exists() { generation } else { folder.join("config.json") })?;
    let ids = &config["eos_token_id"];
    // One, or a list of them.
    let ids = ids.as_array().map_or(std::slice::from_ref(ids), Vec::as_slice);
    Ok(ids.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()).collect())
}

/// A file's JSON; null where there is no file.
pub(in crate::data) fn read_json(path: &Path) -> Result<Value, DataError> {
    if !path.exists() {
        return Ok(Value::Null);
    }
    let error = |e: &dyn std::fmt::Display| DataError::new(format!("cannot read {}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| error(&e))?;
    serde_json::from_str(&text).map_err(|e| error(&e))
}

//! [`Common`]: keys that are no dimensions: what the model is made from, how random weights are drawn, and which row of the
//! embedding is not learned.

use serde::Serialize;
use serde_json::{Map, Value};

use super::ConfigFile;
use crate::keys::key::DefaultValue;
use crate::keys::values::{COUNT_OR_ZERO, POSITIVE, Values};
use crate::keys::{Key, Section};
use crate::model::Model;
use crate::model::families::Family;
use crate::params::source::DEVIATION;

/// The keys of every language model.
pub const SECTION: Section = Section::of("model", "kind", Model::LANGUAGE).with(
    "A language model: a published one by its `preset`, one from a folder of `weights`, or one of the sizes that are written.",
    &[
        Key::size(Values::Text)
            .named("preset", "A published model; its sizes count where none are written.")
            .default(DefaultValue::Nothing),
        Key::method(Values::Path(&["random"]))
            .named(
                "weights",
                "\"random\": drawn from the seed; or a folder or a model of the Hub, whose config.json gives the sizes. A recipe that \
                 also writes the sizes can be planned without the folder.",
            )
            .default(DefaultValue::Word("random")),
        Key::method(POSITIVE)
            .named(
                INITIALIZER_RANGE,
                "Standard deviation of random weights, also of a classifier on a model from a folder, whose config.json says it.",
            )
            .default(DefaultValue::Number(DEVIATION)),
        Key::method(COUNT_OR_ZERO)
            .named(
                PAD_TOKEN_ID,
                "The token whose row of the embedding gets no gradient where it is read, as transformers' \
                 padding_idx; a folder's config.json says it.",
            )
            .default(DefaultValue::Nothing),
    ],
);

const INITIALIZER_RANGE: &str = "initializer_range";
const PAD_TOKEN_ID: &str = "pad_token_id";

/// Their values, apart from `preset` and `weights`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Common {
    /// Absent where it is the default, as in rows from before it was a key.
    #[serde(skip_serializing_if = "is_default")]
    pub initializer_range: f64,
    /// Absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad_token_id: Option<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_default(range: &f64) -> bool {
    *range == DEVIATION
}

impl Default for Common {
    fn default() -> Self {
        Self { initializer_range: DEVIATION, pad_token_id: None }
    }
}

impl Common {
    /// Takes them from the keys that are written.
    ///
    /// # Errors
    /// A padding token of a family that learns all rows of its embedding.
    pub fn take(family: &Family, written: &mut Map<String, Value>) -> Result<Self, String> {
        let mut common = Self::default();
        if let Some(range) = written.remove(INITIALIZER_RANGE).and_then(|value| value.as_f64()) {
            common.initializer_range = range;
        }
        if let Some(id) = written.remove(PAD_TOKEN_ID).and_then(|value| value.as_u64()) {
            if !family.pads {
                return Err(format!(
                    "pad_token_id has no effect on kind = \"{}\", whose embedding learns every row; remove the key",
                    family.kind
                ));
            }
            common.pad_token_id = Some(id as usize);
        }
        let rows = written.get("vocab_size").and_then(Value::as_u64).unwrap_or(u64::MAX);
        match common.pad_token_id.filter(|id| *id as u64 >= rows) {
            Some(id) => Err(format!("pad_token_id = {id} is beyond vocab_size = {rows}; make it smaller")),
            None => Ok(common),
        }
    }

    /// Those of a folder's `config.json`.
    ///
    /// # Errors
    /// A value that transformers does not take either.
    pub fn read(family: &Family, file: &ConfigFile, vocab_size: usize) -> Result<Self, String> {
        let range = file.positive(INITIALIZER_RANGE)?;
        let by_default =
            family.padding.filter(|id| !file.has(PAD_TOKEN_ID) && *id < vocab_size).map(Value::from);
        let pad = file.get(PAD_TOKEN_ID).or(by_default.as_ref()).filter(|_| family.pads);
        let row = |value: &Value| {
            let row = value
                .as_i64()
                .and_then(|id| usize::try_from(if id < 0 { id + vocab_size as i64 } else { id }).ok());
            row.filter(|row| *row < vocab_size).ok_or_else(|| {
                format!(
                    "{PAD_TOKEN_ID} = {value} is no row of an embedding of {vocab_size}, and transformers does not load it \
                     either; correct it, or set it to null"
                )
            })
        };
        Ok(Self { initializer_range: range.unwrap_or(DEVIATION), pad_token_id: pad.map(row).transpose()? })
    }

    /// Refuses written keys that say something else than the folder, whose values these are.
    ///
    /// # Errors
    /// The key, with both values.
    pub fn agree(&self, written: &Map<String, Value>) -> Result<(), String> {
        let own = [
            (INITIALIZER_RANGE, Some(Value::from(self.initializer_range))),
            (PAD_TOKEN_ID, self.pad_token_id.map(Value::from)),
        ];
        let differs = |key: &str, own: &Option<Value>| {
            written.get(key).is_some_and(|value| Some(value) != own.as_ref())
        };
        match own.iter().find(|(key, own)| differs(key, own)) {
            None => Ok(()),
            Some((key, own)) => Err(format!(
                "{key} = {} contradicts its config.json, where it is {}; remove the key",
                written[*key],
                own.as_ref().unwrap_or(&Value::Null)
            )),
        }
    }
}

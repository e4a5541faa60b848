//! Parameters: which there are, where they come from, which of them are trained, and files of weights and adapters.

pub mod companions;
pub mod hub;
pub mod named;
pub mod peft;
pub mod save;
pub mod source;
pub mod split;
pub mod table;
pub mod tuning;
pub mod weights;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The word for weights that are drawn.
pub const RANDOM: &str = "random";

/// `model.weights = "random"`, a Hugging Face folder, or the name of a model of the Hub ([`hub`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum WeightsFrom {
    /// Drawn from the cell's seed.
    #[default]
    Random,
    /// Holds `config.json` and `*.safetensors`; relative to the current directory, or the name of a model of the Hub.
    Folder(PathBuf),
}

impl From<String> for WeightsFrom {
    fn from(text: String) -> Self {
        if text == RANDOM { Self::Random } else { Self::Folder(text.into()) }
    }
}

impl From<WeightsFrom> for String {
    fn from(weights: WeightsFrom) -> Self {
        match weights {
            WeightsFrom::Random => RANDOM.into(),
            WeightsFrom::Folder(folder) => folder.display().to_string(),
        }
    }
}

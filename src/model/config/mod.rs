//! Dimensions of the language models: from a preset, from keys of the recipe, or from a Hugging Face `config.json`.

mod common;
mod complete;
mod dimensions;
mod fields;
mod hugging_face;
mod parts;
mod reading;
mod refused;
mod section;

#[cfg(test)]
mod families_tests;
#[cfg(test)]
mod fields_tests;
#[cfg(test)]
mod presets_tests;
#[cfg(test)]
mod tests;

pub use common::{Common, SECTION};
pub use dimensions::{Dimensions, LearnedOrSinusoidal, dimension, joined, with_default};
pub use hugging_face::{ConfigFile, from_hugging_face, kind_of, to_hugging_face, with_ends};
pub use section::LanguageModel;

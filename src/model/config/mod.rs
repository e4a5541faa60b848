//! Dimensions of the language models: from a preset, from keys of the recipe, or from a Hugging Face `config.json`.

mod common;
mod complete;
mod dimensions;
mod fields;
mod hugging_face;
mod inner;
mod parts;
mod reading;
mod refused;
mod section;
mod written;

#[cfg(test)]
mod families_tests;
#[cfg(test)]
mod fields_tests;
#[cfg(test)]
mod hugging_face_tests;
#[cfg(test)]
mod presets_tests;
#[cfg(test)]
mod tests;

pub use common::{Common, SECTION};
pub use dimensions::{Dimensions, LearnedOrSinusoidal, dimension, joined, with_default};
pub use hugging_face::{ConfigFile, from_hugging_face, kind_of};
pub use inner::Whole;
pub use section::LanguageModel;
pub use written::{to_hugging_face, with_ends};

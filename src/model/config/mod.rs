//! Dimensions of the language models: from a preset, from keys of the recipe, or from a Hugging
//! Face `config.json`.

mod hugging_face;
mod section;

#[cfg(test)]
mod tests;

pub use hugging_face::{ConfigFile, from_hugging_face, to_hugging_face};
pub use section::{LanguageModel, SECTION, size, tied};

use crate::words::values::Values;

/// Why a model's dimensions could not be resolved: a file, a key and what to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// A key of `[model]` that gives a dimension.
#[derive(Clone, Copy, Debug)]
pub struct Dimension {
    pub key: &'static str,
    pub values: Values,
    /// Its name in `config.json`; empty where it is not there.
    pub in_file: &'static str,
    /// Whether it must be written, or a preset named.
    pub required: bool,
}

/// Declares a family's dimensions once, each as a key of the recipe and with its name in `config.json`: the resolved
/// ones, and the keys as written, each absent or present.
macro_rules! dimensions {
    ($(#[$about:meta])* $config:ident, $keys:ident {
        $( $(#[$($doc:tt)*])* $key:ident: $type:ty = $is:expr, $in_file:literal; )*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $config { $( $(#[$($doc)*])* pub $key: $type, )* }

        /// The keys of `[model]` as written; the first two are those of every language model.
        #[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $keys {
            pub preset: Option<String>,
            pub weights: Option<$crate::params::WeightsFrom>,
            $( pub $key: Option<$type>, )*
        }

        impl $keys {
            const DIMENSIONS: &'static [$crate::model::config::Dimension] = &[$(
                $crate::model::config::Dimension {
                    key: stringify!($key),
                    values: $is.values,
                    in_file: $in_file,
                    required: $is.default.is_required(),
                },
            )*];

            const KEYS: &'static [$crate::words::Key] = &[$(
                $is.named(stringify!($key), $crate::words::section::first_paragraph!([] $(#[$($doc)*])*)),
            )*];
        }
    };
}
pub(crate) use dimensions;

/// Elements per attention head, where they are not written.
pub fn head_dim(hidden_size: usize, heads: usize) -> Result<usize, ConfigError> {
    if !hidden_size.is_multiple_of(heads) {
        return Err(ConfigError::new(format!(
            "hidden_size {hidden_size} is not a multiple of num_attention_heads {heads}; change one of them"
        )));
    }
    Ok(hidden_size / heads)
}

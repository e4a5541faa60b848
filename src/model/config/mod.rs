//! Dimensions of the language models: from a preset, from keys of the recipe, or from a Hugging Face `config.json`.

mod common;
mod fields;
mod hugging_face;
mod section;

#[cfg(test)]
mod fields_tests;
#[cfg(test)]
mod tests;

pub use common::{Common, SECTION};
pub use hugging_face::{ConfigFile, from_hugging_face, to_hugging_face, with_ends};
pub use section::{LanguageModel, method, size, tied};

/// Declares a family's dimensions, each as a key of the recipe and with its name in `config.json`, which is empty where
/// the file has no such key. It makes two structs: the resolved dimensions, and the keys as written, each absent or
/// present. The keys that [`DecoderSizes`](crate::model::language::DecoderSizes) needs have the same names in all families.
macro_rules! dimensions {
    ($(#[$about:meta])* $config:ident, $keys:ident {
        $( $(#[$($doc:tt)*])* $key:ident: $type:ty = $is:expr, $in_file:literal; )*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $config { $( $(#[$($doc)*])* pub $key: $type, )* }

        impl $config {
            /// The sizes of a decoder with these dimensions: with a key head for each query head, and a GELU MLP.
            fn sizes(&self) -> $crate::model::language::DecoderSizes {
                $crate::model::language::DecoderSizes {
                    vocab_size: self.vocab_size,
                    hidden_size: self.hidden_size,
                    intermediate_size: self.intermediate_size,
                    layers: self.num_hidden_layers,
                    heads: self.num_attention_heads,
                    kv_heads: self.num_attention_heads,
                    head_dim: self.hidden_size / self.num_attention_heads,
                    max_positions: self.max_position_embeddings,
                    gated: false,
                    tied: self.tie_word_embeddings,
                    portable: true,
                    parameters: 0,
                }
            }
        }

        /// The keys of `[model]` as written; the first four are those of every language model.
        #[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $keys {
            pub preset: Option<String>,
            pub weights: Option<$crate::params::WeightsFrom>,
            pub initializer_range: Option<f64>,
            pub pad_token_id: Option<usize>,
            $( pub $key: Option<$type>, )*
        }

        impl $keys {
            const KEYS: &'static [$crate::keys::Key] = &[$(
                $is.named(stringify!($key), $crate::keys::section::first_paragraph!([] $(#[$($doc)*])*)),
            )*];
            const IN_FILE: &'static [&'static str] = &[$( $in_file, )*];
        }
    };
}
pub(crate) use dimensions;

/// Elements of an attention head, where they are not written.
///
/// # Errors
/// When the heads do not divide the hidden size.
pub fn head_dim(hidden_size: usize, heads: usize) -> Result<usize, String> {
    if !hidden_size.is_multiple_of(heads) {
        return Err(format!(
            "hidden_size {hidden_size} is not a multiple of num_attention_heads {heads}; change one of them"
        ));
    }
    Ok(hidden_size / heads)
}

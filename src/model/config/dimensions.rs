//! [`Dimensions`]: the dimensions of all families of language models, each as a key of the recipe. A family has some of them.

use serde::{Deserialize, Serialize};

use crate::keys::Key;
use crate::keys::key::DefaultValue::{Depends, Number, Whole, Word};
use crate::keys::section::first_paragraph;
use crate::keys::values::{COUNT, LAYERS, POSITIVE, Values};
use crate::params::WeightsFrom;

/// A size of a language model; a preset decides it where it is not written.
const fn size(values: Values) -> Key {
    Key::size(values).follows(&["model.preset"])
}

/// A way of computing of a language model; a preset decides it where it is not written.
const fn method(values: Values) -> Key {
    Key::method(values).follows(&["model.preset"])
}

/// Declares the dimensions: what a model has of them, what is written of them, and their keys.
macro_rules! dimensions {
    ($( $(#[$($doc:tt)*])* $key:ident: $type:ty = $is:expr; )*) => {
        /// The dimensions of a model: those of its family.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Dimensions {
            $( #[serde(skip_serializing_if = "Option::is_none")] pub $key: Option<$type>, )*
        }

        /// The value of a dimension; of one that its family does not have, nothing: 0 or false.
        impl Dimensions {
            $( $(#[$($doc)*])* pub fn $key(&self) -> $type { self.$key.unwrap_or_default() } )*
        }

        /// The keys of `[model]` as written; the first four are those of every language model.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        pub struct Written {
            pub preset: Option<String>,
            pub weights: Option<WeightsFrom>,
            pub initializer_range: Option<f64>,
            pub pad_token_id: Option<usize>,
            $( pub $key: Option<$type>, )*
        }

        const KEYS: &[Key] = &[$( $is.named(stringify!($key), first_paragraph!([] $(#[$($doc)*])*)), )*];
    };
}

dimensions! {
    /// Columns of the residual stream.
    hidden_size: usize = size(COUNT);
    /// Columns inside the MLP.
    intermediate_size: usize = size(COUNT);
    /// Transformer blocks.
    num_hidden_layers: usize = size(LAYERS).called("layers");
    /// Query heads.
    num_attention_heads: usize = size(COUNT).called("heads");
    /// Key and value heads; a divisor of the query heads.
    num_key_value_heads: usize = size(COUNT).default(Depends("num_attention_heads"));
    /// Elements of one head; even.
    head_dim: usize = size(COUNT).default(Depends("hidden_size / num_attention_heads"));
    /// How many elements of each head rotary positions turn, from the first on; even.
    rotary_dim: usize = size(COUNT).default(Whole(64));
    /// Rows of the embedding of tokens.
    vocab_size: usize = size(COUNT).called("vocabulary").follows(&["model.preset", "data.vocab_size"]);
    /// Longest sequence, in tokens.
    max_position_embeddings: usize = size(COUNT).default(Whole(2048)).called("longest sequence");
    /// Base of the rotary wavelengths.
    rope_theta: f64 = size(POSITIVE).default(Number(10_000.0));
    /// Added to the mean square before its root.
    rms_norm_eps: f64 = size(POSITIVE).default(Number(1e-6));
    /// Added to the variance before its root.
    layer_norm_eps: f64 = size(POSITIVE).default(Number(1e-5));
    /// Vectors that mark a token's position: parameters, or fixed sines and cosines.
    positions: LearnedOrSinusoidal =
        method(Values::Words(&["learned", "sinusoidal"])).default(Word("learned"));
    /// Whether the output projection is the embedding.
    tie_word_embeddings: bool = Key::flag(false).follows(&["model.preset"]);
    /// Whether the query, key and value projections have biases; the kind decides it.
    attention_bias: bool = Key::method(Values::Bool).follows(&["model.kind", "model.preset"]);
}

/// Where the vectors that mark a token's position come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LearnedOrSinusoidal {
    /// Parameters, one row per position.
    #[default]
    Learned,
    /// Fixed sines and cosines; no parameters.
    Sinusoidal,
}

/// The key of this dimension, for the section of a family.
///
/// # Panics
/// When there is no such dimension: of a constant, when it is compiled.
pub const fn dimension(name: &str) -> Key {
    let mut i = 0;
    while i < KEYS.len() {
        if is_same(KEYS[i].name, name) {
            return KEYS[i];
        }
        i += 1;
    }
    panic!("no dimension of this name")
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (mut i, mut same) = (0, a.len() == b.len());
    while same && i < a.len() {
        same = a[i] == b[i];
        i += 1;
    }
    same
}

impl Dimensions {
    /// Fills in the elements of an attention head where they are not written, and returns them.
    ///
    /// # Errors
    /// When the heads do not divide the hidden size.
    pub fn complete_head_dim(&mut self) -> Result<usize, String> {
        let head_dim = self.head_dim.map_or_else(|| self.even_head_dim(), Ok)?;
        self.head_dim = Some(head_dim);
        Ok(head_dim)
    }

    /// Elements of an attention head of a family whose heads share the hidden size.
    ///
    /// # Errors
    /// When the heads do not divide the hidden size.
    pub fn even_head_dim(&self) -> Result<usize, String> {
        let (hidden_size, heads) = (self.hidden_size(), self.num_attention_heads());
        if !hidden_size.is_multiple_of(heads) {
            return Err(format!(
                "hidden_size {hidden_size} is not a multiple of num_attention_heads {heads}; change one of them"
            ));
        }
        Ok(hidden_size / heads)
    }

    /// Fills in the heads of keys and values where they are not written.
    ///
    /// # Errors
    /// When they do not divide the query heads.
    pub fn complete_kv_heads(&mut self) -> Result<(), String> {
        let heads = self.num_attention_heads();
        let kv_heads = *self.num_key_value_heads.get_or_insert(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!(
                "num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}; change one of \
                 them"
            ));
        }
        Ok(())
    }
}

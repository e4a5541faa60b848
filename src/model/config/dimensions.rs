//! [`Dimensions`]: the dimensions of all families of language models, each as a key of the recipe. A family has some of them.

use serde::{Deserialize, Serialize};

use crate::keys::Key;
use crate::keys::key::DefaultValue::{Depends, Nothing, Number, Whole, Word};
use crate::keys::key::{DefaultValue, Role};
use crate::keys::section::first_paragraph;
use crate::keys::values::{COUNT, COUNT_OR_ZERO, LAYERS, POSITIVE, Values};
use crate::model::architecture::Rope;
use crate::ops::activation::Activation;
use crate::ops::rope::{Pairs, RopeParameters, Scaling};
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
            $( $(#[$($doc)*])* pub fn $key(&self) -> $type { self.$key.clone().unwrap_or_default() } )*
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
    /// Blocks of the decoder of a model that has an encoder too, whose blocks are `num_hidden_layers`.
    num_decoder_layers: usize = size(LAYERS).default(Depends("num_hidden_layers"));
    /// Query heads.
    num_attention_heads: usize = size(COUNT).called("heads");
    /// Key and value heads; a divisor of the query heads.
    num_key_value_heads: usize = size(COUNT).default(Depends("num_attention_heads"));
    /// Elements of one head; even.
    head_dim: usize = size(COUNT).default(Depends("hidden_size / num_attention_heads"));
    /// How many elements of each head rotary positions turn, from the first on; even.
    rotary_dim: usize = size(COUNT).default(Whole(64));
    /// The part of each head that rotary positions turn, from the first element on.
    partial_rotary_factor: f64 = size(POSITIVE).default(Number(1.0));
    /// Rows of the embedding of tokens.
    vocab_size: usize = size(COUNT).called("vocabulary").follows(&["model.preset", "data.vocab_size"]);
    /// Longest sequence, in tokens.
    max_position_embeddings: usize = size(COUNT).default(Whole(2048)).called("longest sequence");
    /// Base of the rotary wavelengths.
    rope_theta: f64 = size(POSITIVE).default(Number(10_000.0));
    /// The same in layers whose attention has a window.
    rope_local_base_freq: f64 = size(POSITIVE).default(Number(10_000.0));
    /// How rotary positions reach longer sequences: the table of config.json as text, such as
    /// '{"rope_type": "linear", "factor": 2.0}'.
    rope_scaling: String = size(Values::Text).default(Nothing);
    /// Which layers have rotary positions (1) and which have none (0), as text: '[1, 1, 1, 0]'. By default every fourth has
    /// none.
    no_rope_layers: String = size(Values::Text).default(Nothing);
    /// How many tokens a token attends to, itself included, in layers with a window.
    sliding_window: usize = size(COUNT).default(Nothing);
    /// The type of each layer, "full_attention" or "sliding_attention", as text: '["sliding_attention", "full_attention"]'.
    layer_types: String = size(Values::Text).default(Nothing);
    /// Buckets that the distances of queries and keys share; each has a learned bias of the scores.
    relative_attention_num_buckets: usize = size(COUNT).default(Whole(32));
    /// The distance from which on all are in one bucket.
    relative_attention_max_distance: usize = size(COUNT).default(Whole(128));
    /// Added to the mean square before its root.
    rms_norm_eps: f64 = size(POSITIVE).default(Number(1e-6));
    /// Added to the variance before its root.
    layer_norm_eps: f64 = size(POSITIVE).default(Number(1e-5));
    /// Vectors that mark a token's position: parameters, or fixed sines and cosines.
    positions: LearnedOrSinusoidal =
        method(Values::Words(&["learned", "sinusoidal"])).default(Word("learned"));
    /// The activation of the MLP, by its name in config.json.
    activation: String = size(Values::Text);
    /// Whether attention and the MLP both read the residual stream as it enters the layer.
    use_parallel_residual: bool = Key::flag(true).role(Role::Size).follows(&["model.preset"]);
    /// Scores are divided by the root of this.
    query_pre_attn_scalar: usize = size(COUNT).default(Whole(256));
    /// Bound of attention's scores s: cap · tanh(s / cap).
    attn_logit_softcapping: f64 = size(POSITIVE).default(Nothing);
    /// Bound of logits z: cap · tanh(z / cap).
    final_logit_softcapping: f64 = size(POSITIVE).default(Nothing);
    /// The embedding is multiplied by this.
    embedding_multiplier: f64 = size(POSITIVE).default(Number(1.0));
    /// Scores are multiplied by this.
    attention_multiplier: f64 = size(POSITIVE).default(Number(1.0));
    /// What is added to the residual stream is multiplied by this.
    residual_multiplier: f64 = size(POSITIVE).default(Number(1.0));
    /// Logits are divided by this.
    logits_scaling: f64 = size(POSITIVE).default(Number(1.0));
    /// Whether the scores of layer i, counted from 1, are divided by i.
    scale_attn_by_inverse_layer_idx: bool = Key::flag(false).role(Role::Size).follows(&["model.preset"]);
    /// Whether the output projection is the embedding.
    tie_word_embeddings: bool = Key::flag(false).follows(&["model.preset"]);
    /// Whether logits are divided by the root of `hidden_size`.
    scale_decoder_outputs: bool = Key::method(Values::Bool)
        .default(Depends("tie_word_embeddings"))
        .follows(&["model.preset"]);
    /// The token that a target begins with, before the first that is predicted.
    decoder_start_token_id: usize = size(COUNT_OR_ZERO).default(Whole(0));
    /// Whether the projections of attention have biases: all of llama's, and of qwen2 those to queries, keys and values.
    attention_bias: bool = Key::method(Values::Bool).follows(&["model.kind", "model.preset"]);
    /// Whether the linear layers of the MLP have biases.
    mlp_bias: bool = Key::method(Values::Bool).follows(&["model.preset"]);
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

/// These keys and those.
///
/// # Panics
/// When they are not so many together: of a constant, when it is compiled.
pub const fn joined<const A: usize, const B: usize, const N: usize>(a: [Key; A], b: [Key; B]) -> [Key; N] {
    assert!(N == A + B, "so many keys");
    let (mut all, mut i) = ([a[0]; N], 0);
    while i < N {
        all[i] = if i < A { a[i] } else { b[i - A] };
        i += 1;
    }
    all
}

/// These keys with another default of the one of this name.
///
/// # Panics
/// When there is none: of a constant, when it is compiled.
pub const fn with_default<const N: usize>(mut keys: [Key; N], name: &str, default: DefaultValue) -> [Key; N] {
    let mut i = 0;
    while !is_same(keys[i].name, name) {
        i += 1;
    }
    keys[i].default = default;
    keys
}

/// Dimensions that are JSON in `config.json`, and its text in a recipe.
pub const JSON: [&str; 3] = ["rope_scaling", "no_rope_layers", "layer_types"];

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
    /// The activation of the MLP, where its family has this one by default.
    ///
    /// # Errors
    /// When no operator computes it.
    pub fn mlp_activation(&self, default: &str) -> Result<Activation, String> {
        let name = self.activation.as_deref().unwrap_or(default);
        Activation::named(name).ok_or_else(|| format!("activation = \"{name}\" is not supported"))
    }

    /// The rotation of heads of `head_dim` elements, of which a part is turned.
    ///
    /// # Errors
    /// When the part is no pairs, or `rope_scaling` cannot be read.
    pub fn rope(&self, head_dim: usize) -> Result<Rope, String> {
        let fraction = self.partial_rotary_factor.unwrap_or(1.0);
        let turned = (head_dim as f64 * fraction) as usize;
        if turned == 0 || turned.next_multiple_of(2) > head_dim {
            return Err(format!(
                "partial_rotary_factor {fraction} of heads of {head_dim} elements: rotary positions turn pairs of \
                 elements, and these are {turned}; change it"
            ));
        }
        let scaling = self.scaling().and_then(|scaling| scaling.check(turned).map(|()| scaling));
        let scaling = scaling.map_err(|e| format!("rope_scaling: {e}"))?;
        let pairs = Pairs { head_dim, dimension: turned, neighbours: false };
        Ok(Rope { pairs, theta: self.rope_theta(), scaling })
    }

    fn scaling(&self) -> Result<Scaling, String> {
        let Some(text) = &self.rope_scaling else { return Ok(Scaling::None) };
        let table = serde_json::from_str(text).map_err(|e| format!("it is no table of JSON: {e}"))?;
        let RopeParameters { scaling, .. } =
            RopeParameters::read(&table, self.max_position_embeddings(), None)?;
        Ok(scaling)
    }

    /// The window of each layer: of those that `layer_types` names, or else of those that have one `by_default`.
    ///
    /// # Errors
    /// When `layer_types` cannot be read.
    pub fn windows(&self, by_default: impl Fn(usize) -> bool) -> Result<Vec<Option<usize>>, String> {
        let layers = self.num_hidden_layers();
        let slides = match &self.layer_types {
            None => (0..layers).map(by_default).collect(),
            Some(text) => {
                let types: Vec<String> = serde_json::from_str(text)
                    .map_err(|e| format!("layer_types must be a list with the type of each layer: {e}"))?;
                let known = ["full_attention", "sliding_attention"];
                if let Some(other) = types.iter().find(|kind| !known.contains(&kind.as_str())) {
                    return Err(format!(
                        "layer_types has \"{other}\"; known are full_attention and sliding_attention"
                    ));
                }
                if types.len() != layers {
                    return Err(format!("layer_types has {} types of {layers} layers", types.len()));
                }
                types.iter().map(|kind| kind == known[1]).collect::<Vec<bool>>()
            }
        };
        Ok(slides.into_iter().map(|slides| self.sliding_window.filter(|_| slides)).collect())
    }
}

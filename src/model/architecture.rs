//! [`Architecture`]: a decoder, or an encoder and a decoder, as data: its parts and their sizes, and the names that they have in Hugging Face's files.

mod derived;

use std::sync::Arc;

pub use derived::{with_scales, with_windows};

use crate::ops::activation::Activation;
use crate::ops::attention::relative::Buckets;
use crate::ops::attention::{HeadSizes, Scores};
use crate::ops::cost::Setting;
use crate::ops::cross_entropy::Logits;
use crate::ops::dense::WeightLayout;
use crate::ops::rope::{Pairs, Scaling};

/// A language model: an embedding, layers, a norm and a head.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    pub vocab_size: usize,
    pub hidden_size: usize,
    /// Longest sequence, in tokens.
    pub max_positions: usize,
    pub embedding: Embedding,
    /// What reads a source before the decoder reads a target.
    pub encoder: Option<Encoder>,
    /// Name of the decoder's list of layers; a layer's number follows it.
    pub blocks: &'static str,
    /// Those of an encoder before the decoder's. Equal ones may be one.
    pub layers: Vec<Arc<Layer>>,
    /// The norm after the last layer, with its name.
    pub final_norm: (&'static str, Norm),
    pub head: Head,
    /// How the weights of linear layers lie.
    pub layout: WeightLayout,
    /// Whether random weights whose products are added to the residual stream are smaller by √(2 · layers)
    /// (Radford et al. 2019).
    pub small_residual_weights: bool,
}

/// The first layers, which read a source, and the norm of what they give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Encoder {
    /// Name of its list of layers.
    pub blocks: &'static str,
    /// How many of all layers are its.
    pub layers: usize,
    pub final_norm: (&'static str, Norm),
    /// Of its layers, and of the decoder's.
    pub relative_biases: [RelativeBias; 2],
    /// The token that a target begins with, before the first that is predicted.
    pub start: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Embedding {
    pub name: &'static str,
    /// What the tokens' vectors are multiplied by.
    pub scale: Option<f64>,
    pub positions: Positions,
}

/// What is added to the tokens' vectors for their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    None,
    /// Rows of a table of this name; that of position p is p + `offset`.
    Learned {
        name: &'static str,
        rows: usize,
        offset: usize,
    },
    /// Fixed sines and cosines.
    Sinusoidal,
}

/// Attention and an MLP around a residual stream; between them a decoder's attention to the encoder's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Every norm but those of queries and keys.
    pub norm: Norm,
    pub place: Place,
    /// What is added to the residual stream is multiplied by this.
    pub residual_scale: Option<f64>,
    pub attention: Attention,
    /// With the norm before it.
    pub cross_attention: Option<(&'static str, Attention)>,
    pub mlp: Mlp,
}

/// So many layers of this kind, which are one in memory.
pub fn alike(layer: Layer, count: usize) -> Vec<Arc<Layer>> {
    std::iter::repeat_n(Arc::new(layer), count).collect()
}

/// Where the norms of a layer stand, with their names: f is attention, and then the MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// x + f(norm(x)), with a norm of each.
    Pre([&'static str; 2]),
    /// x + norm(f(x)), with a norm of each.
    Post([&'static str; 2]),
    /// x + norm(f(norm(x))): before and after attention, before and after the MLP.
    PreAndPost([&'static str; 4]),
    /// x + attention(norm(x)) + MLP(norm(x)): one norm for both, or a second of the MLP.
    Parallel(&'static str, Option<&'static str>),
}

impl Place {
    /// The names of the norms before and after attention, and before and after the MLP.
    pub fn names(self) -> [Option<&'static str>; 4] {
        match self {
            Self::Pre([attention, mlp]) => [Some(attention), None, Some(mlp), None],
            Self::Post([attention, mlp]) => [None, Some(attention), None, Some(mlp)],
            Self::PreAndPost(names) => names.map(Some),
            Self::Parallel(attention, mlp) => [Some(attention), None, mlp, None],
        }
    }
}

/// Which norm, with what is added before its root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// `plus_one`: whether the factor is one more than the weight.
    Rms {
        eps: f64,
        plus_one: bool,
    },
    Layer {
        eps: f64,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Of its module.
    pub name: &'static str,
    pub projections: Projections,
    /// Whether the projections to queries, keys and values have biases.
    pub bias: bool,
    /// Name of the output projection.
    pub output: &'static str,
    pub output_bias: bool,
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    pub head_dim: usize,
    pub qk_norm: Option<QkNorm>,
    pub rope: Option<Rope>,
    pub scores: Scores,
    pub sees: Sees,
    /// Whether its stack's [`RelativeBias`] is added to its scores.
    pub relative_bias: bool,
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// Those that are not after it.
    Earlier,
    All,
    /// Those of the encoder's result.
    Encoder,
}

/// A bias of the scores by the distance of a query and a key, which the layers of a stack share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeBias {
    /// Of its table [buckets, heads].
    pub name: &'static str,
    pub buckets: Buckets,
    pub heads: usize,
}

/// The linear layers that give queries, keys and values, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projections {
    /// One of each.
    Apart([&'static str; 3]),
    /// One, whose outputs are all queries, all keys and all values.
    Fused(&'static str),
    /// One, whose outputs are the query, the key and the value of each head.
    FusedByHead(&'static str),
}

impl Projections {
    pub fn names(&self) -> &[&'static str] {
        match self {
            Self::Apart(names) => names,
            Self::Fused(name) | Self::FusedByHead(name) => std::slice::from_ref(name),
        }
    }
}

/// A norm of queries and one of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QkNorm {
    pub names: [&'static str; 2],
    pub norm: Norm,
    /// Whether each head is a row, or all of a token's heads are.
    pub by_head: bool,
}

/// Rotations of pairs of every head.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub pairs: Pairs,
    /// Base of the wavelengths.
    pub theta: f64,
    pub scaling: Scaling,
}

impl Rope {
    /// Of all numbers of a head, in pairs of its halves.
    pub fn halves(head_dim: usize, theta: f64) -> Self {
        Self { pairs: Pairs::halves(head_dim), theta, scaling: Scaling::None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mlp {
    /// Of its module; empty where its layers are the block's own.
    pub name: &'static str,
    pub layers: MlpLayers,
    pub intermediate_size: usize,
    pub activation: Activation,
    pub bias: bool,
}

/// The linear layers of an MLP, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlpLayers {
    /// down(activation(gate(x)) · up(x)): gate, up and down.
    Gated([&'static str; 3]),
    /// The same, with gate and up as one layer.
    GatedFused([&'static str; 2]),
    /// second(activation(first(x)))
    Plain([&'static str; 2]),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    pub name: &'static str,
    /// Whether its weight is the embedding.
    pub tied: bool,
    /// Whether it has a bias, where it is not the embedding.
    pub bias: bool,
    pub logits: Logits,
}

impl Head {
    /// A matrix of its own without a bias.
    pub const LM_HEAD: Self =
        Self { name: "lm_head", tied: false, bias: false, logits: Logits { scale: 1.0, soft_cap: None } };
}

impl Attention {
    /// Without biases, norms and positions, with a key head for each query head.
    pub fn even(heads: usize, head_dim: usize) -> Self {
        Self {
            name: "",
            projections: Projections::Fused(""),
            bias: false,
            output: "",
            output_bias: false,
            heads,
            kv_heads: heads,
            head_dim,
            qk_norm: None,
            rope: None,
            scores: Scores::default(),
            sees: Sees::Earlier,
            relative_bias: false,
        }
    }

    /// The sizes of a rank's part of the heads.
    pub fn head_sizes(&self, setting: &Setting) -> HeadSizes {
        let [heads, kv_heads] = [self.heads, self.kv_heads].map(|heads| setting.part(heads as u64));
        HeadSizes { heads, kv_heads, head_dim: self.head_dim as u64 }
    }

    /// Columns of all queries, and of all keys.
    pub fn columns(&self) -> [usize; 2] {
        [self.heads, self.kv_heads].map(|heads| heads * self.head_dim)
    }
}

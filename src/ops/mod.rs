//! Operators with hand-written backward, and the recipe keys that choose among them:
//! `[checkpoint]` and `[ops]`.

pub mod activation;
pub mod attention;
pub mod autocast;
pub mod backend;
pub mod bias;
pub mod checkpoint;
pub mod cost;
pub mod cross_entropy;
pub mod dense;
pub mod dropout;
pub mod embedding;
pub mod flat;
pub mod function;
pub mod gate;
pub mod gated_mlp;
pub mod kernels;
pub mod largest;
pub mod lora;
pub mod mean_square;
pub mod name;
pub mod nf4;
pub mod norm;
pub mod parameters;
pub mod product;
pub mod residual;
pub mod rope;
pub mod rows;
pub mod segment;
pub mod slices;
pub mod tensor_parallel;
pub mod virtual_tokens;

use std::fmt;

use burn::tensor::{DType, FloatDType, Tensor};
pub use largest::largest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::keys::key::DefaultValue::{Number, Whole, Word};
use crate::keys::key::Role;
use crate::keys::section::section;
use crate::keys::values::{COUNT_OR_ZERO, Values};
use crate::keys::{Key, Section};

section! {
    /// What is kept from forward for backward, and what is recomputed.
    #[derive(Copy, Default)]
    pub struct Checkpoint: Section::new("checkpoint") => {
        /// 0: SwiGLU keeps every intermediate result; 0.5: it recomputes element-wise ones; 1: all.
        pub level: Level = Key::method(Values::Numbers(&[0.0, 0.5, 1.0]))
            .default(Number(0.0)),
        /// Blocks of a segment: only its input is kept, and backward computes it again; 0: no segments.
        pub blocks: usize = Key::method(COUNT_OR_ZERO)
            .default(Whole(0)).called("checkpoint blocks"),
    }
}

/// Reads in the place of 0 blocks where those that move are recomputed all the same.
pub const MOVING: &str = "moving";

impl Checkpoint {
    /// Whether all results of products stay until their backward.
    pub fn keeps_all(self) -> bool {
        self.blocks == 0 && self.level != Level::Full
    }
}

/// How much of an operator's intermediate results is recomputed in backward instead of kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Level 0: keep every intermediate result.
    #[default]
    Keep,
    /// Level 0.5: keep the matmul results, recompute the element-wise ones.
    Elementwise,
    /// Level 1: keep only the input, recompute everything.
    Full,
}

impl Level {
    pub const ALL: [Self; 3] = [Self::Keep, Self::Elementwise, Self::Full];

    /// The number a recipe writes.
    pub fn number(self) -> f64 {
        match self {
            Self::Keep => 0.0,
            Self::Elementwise => 0.5,
            Self::Full => 1.0,
        }
    }

    /// # Errors
    /// For any number but 0, 0.5 and 1.
    fn from_number(number: f64) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|level| level.number() == number)
            .ok_or_else(|| format!("a checkpoint level must be 0, 0.5 or 1, not {number}"))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        // As a user types them: 0 and 1 are whole numbers.
        match self {
            Self::Elementwise => s.serialize_f64(self.number()),
            Self::Keep | Self::Full => s.serialize_u64(self.number() as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Level;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("0, 0.5 or 1")
            }
            fn visit_f64<E: de::Error>(self, x: f64) -> Result<Level, E> {
                Level::from_number(x).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Level, E> {
                self.visit_f64(n as f64)
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Level, E> {
                self.visit_f64(n as f64)
            }
        }
        d.deserialize_any(Visitor)
    }
}

section! {
    /// Which implementation of each operator runs: `custom`, with a backward written by hand, or `plain`,
    /// composed of Burn's operators.
    #[derive(Copy)]
    pub struct Ops: Section::new("ops"), Default => {
        /// The gated feed-forward network, such as SwiGLU.
        pub swiglu: Operator = OPERATOR,
        /// Scaled dot-product attention.
        pub attention: Operator = OPERATOR,
        /// Whether custom attention in bf16 or fp16 is fused on CUDA: one kernel that keeps no scores in memory.
        pub fused_attention: bool =
            Key::flag(true).called("fused attention"),
        /// The language-model head with its cross-entropy.
        pub loss: Operator = OPERATOR,
        /// RMSNorm and LayerNorm.
        pub norm: Operator = OPERATOR,
        /// Rotary positions.
        pub rope: Operator = OPERATOR,
        /// The activation of a feed-forward network without a gate, such as GELU.
        pub gelu: Operator = OPERATOR,
    }
}

/// An operator of our own, or the same formula composed of Burn's operators and differentiated by Burn.
/// Both multiply matrices the same way, so that the two differ in the operator alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operator {
    #[default]
    Custom,
    Plain,
}

const OPERATOR: Key =
    Key::method(Values::Words(&["custom", "plain"])).default(Word("custom")).role(Role::Operator);

impl Ops {
    /// The operators by their names in the recipe.
    pub fn all(&self) -> [(&'static str, Operator); 6] {
        [
            ("swiglu", self.swiglu),
            ("attention", self.attention),
            ("loss", self.loss),
            ("norm", self.norm),
            ("rope", self.rope),
            ("gelu", self.gelu),
        ]
    }
}

/// The tensor in the type that statistics and sums are computed in: fp32, or fp64 where it is that.
pub fn wide<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    match tensor.dtype() {
        DType::F32 | DType::F64 => tensor,
        _ => tensor.cast(FloatDType::F32),
    }
}

/// The tensor as `dtype`.
pub fn narrow<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    if tensor.dtype() == dtype { tensor } else { tensor.cast(FloatDType::from(dtype)) }
}

/// As [`narrow`], of a tensor outside of autodiff's graph: Burn aligns the rows of what it makes on CUDA, which our
/// kernel does not.
pub fn rounded<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    match backend::on_cuda(&tensor) {
        true => backend::uncube(kernels::elementwise::cast(backend::cube(tensor), dtype)),
        false => narrow(tensor, dtype),
    }
}

/// A matrix to be written, on the device of `like`; the CPU's holds zeros, to which parts may be added. Burn would align its
/// rows on CUDA, and what reads it next would first copy it without the gaps.
pub fn unwritten<const D: usize>(dims: [usize; 2], dtype: DType, like: &Tensor<D>) -> Tensor<2> {
    match backend::on_cuda(like) {
        true => backend::uncube(kernels::launch::empty(&backend::cube(like.clone()), dims, dtype)),
        false => Tensor::zeros(dims, (&like.device(), dtype)),
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

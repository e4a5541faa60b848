//! [`Logits`]: how logits follow from the products of hidden states and the head's rows.

use burn::tensor::Tensor;

use super::cpu;
use super::cuda as kernels;
use crate::ops::backend::{cube, on_cuda, uncube};
use crate::ops::dense::Arithmetic;

/// logits = c · tanh(s · z / c) of the products z = hWᵀ, or s · z without a soft cap c (Gemma 2 has a cap, and Granite a
/// scale s). From a logit y, dy/dz = s · (1 − (y / c)²).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logits {
    pub scale: f64,
    pub soft_cap: Option<f64>,
}

impl Default for Logits {
    fn default() -> Self {
        Self { scale: 1.0, soft_cap: None }
    }
}

impl Logits {
    /// Of products outside of the graph in fp32, in their memory where nobody else holds it.
    pub fn apply(self, products: Tensor<2>) -> Tensor<2> {
        match self == Self::default() {
            true => products,
            false if on_cuda(&products) => uncube(kernels::logits(cube(products), self)),
            false => cpu::logits(products, self),
        }
    }

    /// The same by Burn's operators.
    pub(super) fn composed(self, products: Tensor<2>) -> Tensor<2> {
        match self {
            Self { scale: 1.0, soft_cap: None } => products,
            Self { scale, soft_cap: None } => products * scale,
            Self { scale, soft_cap: Some(cap) } => (products * (scale / cap)).tanh() * cap,
        }
    }
}

/// How the head multiplies, and what its logits are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadArithmetic {
    pub arithmetic: Arithmetic,
    pub logits: Logits,
}

impl HeadArithmetic {
    /// The same in the type of the autocast region around the call.
    #[must_use]
    pub fn in_region(self) -> Self {
        Self { arithmetic: self.arithmetic.in_region(), ..self }
    }
}

impl From<Arithmetic> for HeadArithmetic {
    fn from(arithmetic: Arithmetic) -> Self {
        Self { arithmetic, logits: Logits::default() }
    }
}

//! [`Norm`]: RMSNorm or LayerNorm as a module.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::{Computation, Context};
use crate::model::architecture;
use crate::ops::cost::{Cost, Setting};
use crate::ops::norm::{self, Terms, norm};
use crate::params::source::{Init, Source};

/// RMSNorm, or LayerNorm where there is a bias.
#[derive(Module, Debug)]
pub struct Norm {
    pub weight: Param<Tensor<1>>,
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    terms: Terms,
}

impl architecture::Norm {
    /// What it adds.
    pub fn terms(self) -> Terms {
        match self {
            Self::Rms { eps: epsilon, plus_one } => Terms { epsilon, plus_one },
            Self::Layer { eps } => eps.into(),
        }
    }

    /// What a norm of each of `heads` rows of a token costs: it keeps a number of each for backward, or mean and root.
    pub fn cost(self, setting: &Setting, [heads, columns]: [u64; 2]) -> Cost {
        let numbers = match self {
            Self::Rms { .. } => 1,
            Self::Layer { .. } => 2,
        };
        norm::cost(setting, [heads, columns], numbers)
    }
}

impl Norm {
    pub fn new(source: &Source, size: usize, kind: architecture::Norm) -> Self {
        let parameter = |name, value| source.parameter(name, [size], Init::Constant(value));
        match kind {
            architecture::Norm::Rms { plus_one, .. } => {
                let weight = parameter("weight", if plus_one { 0.0 } else { 1.0 });
                Self { weight, bias: None, terms: kind.terms() }
            }
            architecture::Norm::Layer { .. } => Self {
                weight: parameter("weight", 1.0),
                bias: Some(parameter("bias", 0.0)),
                terms: kind.terms(),
            },
        }
    }

    /// In the compute type: what follows is a product.
    pub fn forward(&self, x: Tensor<2>, computation: &Computation) -> Tensor<2> {
        self.with_weights(self.weight.val(), self.bias.as_ref().map(Param::val), x, computation)
    }

    /// [`forward`](Self::forward) of a rank's heads, each of which is a row: the weight, which every rank has, gets the
    /// gradient of all heads.
    pub fn forward_of_heads(&self, x: Tensor<2>, context: &Context) -> Tensor<2> {
        if context.ranks.size() == 1 {
            return self.forward(x, &context.computation);
        }
        let copied = |vector: &Param<Tensor<1>>| context.copied(vector.val().unsqueeze_dim(0)).squeeze_dim(0);
        self.with_weights(copied(&self.weight), self.bias.as_ref().map(copied), x, &context.computation)
    }

    fn with_weights(
        &self,
        weight: Tensor<1>,
        bias: Option<Tensor<1>>,
        x: Tensor<2>,
        computation: &Computation,
    ) -> Tensor<2> {
        let Computation { arithmetic, ops, .. } = computation;
        norm(x, weight, bias, self.terms, arithmetic.in_region().dtype, ops.norm)
    }
}

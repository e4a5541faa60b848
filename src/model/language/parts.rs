//! The layers that language models are made of. Fields carry Hugging Face's names, so that the path
//! of a parameter in a module is its name in a file of weights.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::Computation;
use crate::ops::autocast::weight;
use crate::ops::dense::{WeightLayout, dense};
use crate::ops::embedding::{Ids, embedding};
use crate::ops::norm::{layer_norm, rms_norm};
use crate::params::source::{Init, Source};

/// Standard deviation of random weights, as transformers draws them.
const DEVIATION: f64 = 0.02;

/// y = xWᵀ + b, weight [outputs, inputs].
#[derive(Module, Debug)]
pub struct Linear {
    pub weight: Param<Tensor<2>>,
    pub bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    pub fn new(source: &Source, name: &str, outputs: usize, inputs: usize, bias: bool) -> Self {
        let weight = source.parameter(&format!("{name}.weight"), [outputs, inputs], Init::Normal(DEVIATION));
        let bias = bias.then(|| source.parameter(&format!("{name}.bias"), [outputs], Init::Constant(0.0)));
        Self { weight, bias }
    }

    pub fn forward(&self, x: Tensor<2>, computation: &Computation) -> Tensor<2> {
        let bias = self.bias.as_ref().map(Param::val);
        dense(x, weight(&self.weight), bias, WeightLayout::OutIn, computation.arithmetic)
    }
}

/// GPT-2's linear layer y = xW + b, weight [inputs, outputs].
#[derive(Module, Debug)]
pub struct Conv1d {
    pub weight: Param<Tensor<2>>,
    pub bias: Param<Tensor<1>>,
}

impl Conv1d {
    /// `depth`: layers whose results are added up, when this layer's is one of them; the weights are
    /// then smaller by √(2 depth) (Radford et al. 2019).
    pub fn new(source: &Source, name: &str, inputs: usize, outputs: usize, depth: Option<usize>) -> Self {
        let deviation = depth.map_or(DEVIATION, |depth| DEVIATION / (2.0 * depth as f64).sqrt());
        Self {
            weight: source.parameter(&format!("{name}.weight"), [inputs, outputs], Init::Normal(deviation)),
            bias: source.parameter(&format!("{name}.bias"), [outputs], Init::Constant(0.0)),
        }
    }

    pub fn forward(&self, x: Tensor<2>, computation: &Computation) -> Tensor<2> {
        let bias = Some(self.bias.val());
        dense(x, weight(&self.weight), bias, WeightLayout::InOut, computation.arithmetic)
    }
}

/// Rows of a table.
#[derive(Module, Debug)]
pub struct Embedding {
    pub weight: Param<Tensor<2>>,
}

impl Embedding {
    pub fn new(source: &Source, name: &str, rows: usize, columns: usize) -> Self {
        Self { weight: source.parameter(&format!("{name}.weight"), [rows, columns], Init::Normal(DEVIATION)) }
    }

    /// [tokens, columns] in the type the table is stored in.
    pub fn forward(&self, ids: &Ids) -> Tensor<2> {
        let weight = self.weight.val();
        let dtype = weight.dtype();
        embedding(weight, ids, dtype)
    }
}

#[derive(Module, Debug)]
pub struct RmsNorm {
    pub weight: Param<Tensor<1>>,
    #[module(skip)]
    epsilon: f64,
}

impl RmsNorm {
    pub fn new(source: &Source, name: &str, size: usize, epsilon: f64) -> Self {
        Self { weight: source.parameter(&format!("{name}.weight"), [size], Init::Constant(1.0)), epsilon }
    }

    /// In the compute type: what follows is a product.
    pub fn forward(&self, x: Tensor<2>, computation: &Computation) -> Tensor<2> {
        let dtype = computation.arithmetic.in_region().dtype;
        rms_norm(x, self.weight.val(), self.epsilon, dtype, computation.ops.norm)
    }
}

#[derive(Module, Debug)]
pub struct LayerNorm {
    pub weight: Param<Tensor<1>>,
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    epsilon: f64,
}

impl LayerNorm {
    pub fn new(source: &Source, name: &str, size: usize, epsilon: f64) -> Self {
        Self {
            weight: source.parameter(&format!("{name}.weight"), [size], Init::Constant(1.0)),
            bias: source.parameter(&format!("{name}.bias"), [size], Init::Constant(0.0)),
            epsilon,
        }
    }

    /// In the compute type: what follows is a product.
    pub fn forward(&self, x: Tensor<2>, computation: &Computation) -> Tensor<2> {
        let dtype = computation.arithmetic.in_region().dtype;
        layer_norm(x, self.weight.val(), self.bias.val(), self.epsilon, dtype, computation.ops.norm)
    }
}

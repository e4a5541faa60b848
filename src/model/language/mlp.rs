//! [`Mlp`]: two linear layers with an activation between them, or three with a gate. A gated one is one operator; with
//! adapters or biases, or with weights in 4 bits, it is linear layers and their gate.

use burn::module::Module;
use burn::tensor::Tensor;

use super::parts::{self, Linear, apart_cost, linear_cost};
use super::{Computation, Context};
use crate::model::architecture::{self, Architecture, MlpLayers};
use crate::ops::Operator;
use crate::ops::activation;
use crate::ops::autocast::weight;
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::WeightLayout;
use crate::ops::gated_mlp::{self, GatedMlp, gated, gated_columns, gated_columns_cost, gated_cost};
use crate::ops::residual::{residual, residual_in_product};
use crate::ops::tensor_parallel::sum_over_ranks;
use crate::params::source::Source;
use crate::params::split::Side;
use crate::params::table::Tuning;

#[derive(Module, Debug)]
pub struct Mlp {
    /// In the order of their names.
    layers: Vec<Linear>,
    #[module(skip)]
    shape: architecture::Mlp,
    #[module(skip)]
    layout: WeightLayout,
}

impl Mlp {
    /// `source`: of the block.
    pub fn new(architecture: &Architecture, shape: &architecture::Mlp, source: &Source) -> Self {
        let source = if shape.name.is_empty() { source.clone() } else { source.at(shape.name) };
        let (hidden, inner, layout) =
            (architecture.hidden_size, shape.intermediate_size, architecture.layout);
        let by_outputs = |name, parts| {
            let source = source.at(name).divided_by(Side::Outputs { parts });
            Linear::new(&source, [hidden, parts * inner], layout, source.deviation(), shape.bias)
        };
        let by_inputs = |name| {
            let source = source.at(name).divided_by(Side::Inputs);
            let deviation = architecture.residual_deviation(source.deviation());
            Linear::new(&source, [inner, hidden], layout, deviation, shape.bias)
        };
        let layers = match shape.layers {
            MlpLayers::Gated([gate, up, down]) => {
                vec![by_outputs(gate, 1), by_outputs(up, 1), by_inputs(down)]
            }
            MlpLayers::GatedFused([both, down]) => vec![by_outputs(both, 2), by_inputs(down)],
            MlpLayers::Plain([first, second]) => vec![by_outputs(first, 1), by_inputs(second)],
        };
        Self { layers, shape: *shape, layout }
    }

    /// [batch · sequence, hidden_size] → the same shape. x is [copied](Context::copied) to the ranks.
    pub fn forward(&self, x: Tensor<2>, context: &Context) -> Tensor<2> {
        match &self.layers[..] {
            [gate, up, down] if self.is_one_operator() => self.swiglu([gate, up, down], x, context),
            [.., last] => last.forward_summed(self.inner(x, context), context),
            [] => unreachable!("an MLP has layers"),
        }
    }

    /// The residual stream plus [`forward`](Self::forward) of x.
    pub fn forward_onto(&self, stream: Tensor<2>, x: Tensor<2>, context: &Context) -> Tensor<2> {
        let Context { computation, ranks, .. } = context;
        match &self.layers[..] {
            [gate, up, down] if self.is_one_operator() => {
                let linears = [gate, up, down];
                if computation.ops.swiglu == Operator::Plain || ranks.size() > 1 {
                    return residual(stream, self.swiglu(linears, x, context));
                }
                let mlp = self.gated(computation);
                let weights = linears.map(|linear| weight(&linear.weight));
                residual_in_product(stream, mlp.arithmetic.dtype, |stream| {
                    mlp.forward_onto(x, weights, stream)
                })
            }
            [.., last] => last.forward_onto(stream, self.inner(x, context), context),
            [] => unreachable!("an MLP has layers"),
        }
    }

    /// Whether its layers are one operator: three, as they are stored and without biases.
    fn is_one_operator(&self) -> bool {
        self.layers.iter().all(|layer| layer.is_plain() && layer.bias.is_none())
    }

    /// The gated MLP as one operator.
    fn swiglu(&self, linears: [&Linear; 3], x: Tensor<2>, context: &Context) -> Tensor<2> {
        let Context { computation, ranks, .. } = context;
        let weights = linears.map(|linear| weight(&linear.weight));
        sum_over_ranks(self.gated(computation).forward(x, weights, computation.ops.swiglu), None, ranks)
    }

    /// As one operator.
    fn gated(&self, computation: &Computation) -> GatedMlp {
        GatedMlp {
            activation: self.shape.activation,
            layout: self.layout,
            level: computation.checkpoint.level,
            arithmetic: computation.arithmetic.in_region(),
        }
    }

    /// What the last layer reads.
    fn inner(&self, x: Tensor<2>, context: &Context) -> Tensor<2> {
        let computation = &context.computation;
        match self.shape.layers {
            MlpLayers::Gated(_) => {
                let [gate, up] = [0, 1].map(|layer| self.layers[layer].forward(x.clone(), computation));
                gated(gate, up, self.shape.activation)
            }
            MlpLayers::GatedFused(_) => {
                gated_columns(self.layers[0].forward(x, computation), self.shape.activation)
            }
            MlpLayers::Plain(_) => self.layers[0].forward_activated(x, self.shape.activation, computation),
        }
    }

    /// What an MLP costs, without the norm before it.
    pub fn cost(
        architecture: &Architecture,
        shape: &architecture::Mlp,
        setting: &Setting,
        tuning: &Tuning,
    ) -> Vec<Cost> {
        let (hidden, layout) = (architecture.hidden_size as u64, architecture.layout);
        let inner = setting.part(shape.intermediate_size as u64);
        let linear = |layer, sizes| linear_cost(setting, tuning, layer, sizes, shape.bias, layout);
        let first = |name, parts| linear((name, Side::Outputs { parts }), [hidden, parts as u64 * inner]);
        let last = |name| linear((name, Side::Inputs), [inner, hidden]);
        match shape.layers {
            MlpLayers::Gated(_) if !tuning.opens_swiglu() && !shape.bias => {
                vec![gated_mlp::cost(setting, shape.activation, [hidden, inner], layout)]
            }
            MlpLayers::Gated([gate, up, down]) => vec![Cost::sequence(&[
                Cost::fan(&[first(gate, 1), first(up, 1)]),
                gated_cost(setting, inner),
                last(down),
            ])],
            MlpLayers::GatedFused([both, down]) => {
                let both = first(both, 2);
                match setting.on_cuda() {
                    true => vec![both, apart_cost(setting, both, 2), gated_cost(setting, inner), last(down)],
                    false => vec![both, gated_columns_cost(setting, inner), last(down)],
                }
            }
            MlpLayers::Plain([into, out]) => {
                vec![first(into, 1), activation::cost(setting, shape.activation, inner), last(out)]
            }
        }
    }

    /// Whether the last product adds the residual stream.
    pub fn adds_residual(shape: &architecture::Mlp, setting: &Setting, tuning: &Tuning) -> bool {
        match shape.layers {
            MlpLayers::Gated([.., down]) => {
                let has_product =
                    tuning.opens_swiglu() || shape.bias || setting.ops.swiglu == Operator::Custom;
                has_product && parts::adds_residual(setting, tuning, down)
            }
            MlpLayers::GatedFused([_, last]) | MlpLayers::Plain([_, last]) => {
                parts::adds_residual(setting, tuning, last)
            }
        }
    }
}

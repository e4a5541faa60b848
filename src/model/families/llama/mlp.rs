//! The MLP of a Llama-like block: SwiGLU as one operator; with adapters, or with weights in 4 bits, as linear layers and
//! their gate.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::model::language::Context;
use crate::model::language::parts::{self, Linear, linear_cost};
use crate::ops::Operator;
use crate::ops::autocast::weight;
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::WeightLayout;
use crate::ops::residual::{residual, residual_in_product};
use crate::ops::swiglu::{self, gated, gated_cost, swiglu, swiglu_onto};
use crate::ops::tensor_parallel::sum_over_ranks;
use crate::params::source::Source;
use crate::params::split::Side;
use crate::params::table::Tuning;

const LAYERS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];
const LAYOUT: WeightLayout = WeightLayout::OutIn;

#[derive(Module, Debug)]
pub struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Mlp {
    pub fn new(source: &Source, hidden: usize, inner: usize) -> Self {
        let [gate, up, down] = LAYERS;
        let columns = source.divided_by(Side::Outputs { parts: 1 });
        Self {
            gate_proj: Linear::new(&columns.at(gate), hidden, inner, false),
            up_proj: Linear::new(&columns.at(up), hidden, inner, false),
            down_proj: Linear::new(&source.at(down).divided_by(Side::Inputs), inner, hidden, false),
        }
    }

    /// The residual stream plus the MLP of x, [batch · sequence, hidden_size] each.
    pub fn forward_onto(&self, stream: Tensor<2>, x: Tensor<2>, context: &Context) -> Tensor<2> {
        let Context { computation, ranks, .. } = context;
        let x = context.copied(x);
        let linears = [&self.gate_proj, &self.up_proj, &self.down_proj];
        if !linears.iter().all(|linear| linear.is_plain()) {
            let [gate, up] = [linears[0], linears[1]].map(|linear| linear.forward(x.clone(), computation));
            return self.down_proj.forward_onto(stream, gated(gate, up), context);
        }
        let weights = linears.map(|linear| weight(&linear.weight));
        let (operator, level) = (computation.ops.swiglu, computation.checkpoint.level);
        let arithmetic = computation.arithmetic.in_region();
        if operator == Operator::Plain || ranks.size() > 1 {
            let [gate, up, down] = weights;
            let y = swiglu(x, gate, up, down, LAYOUT, level, operator, arithmetic);
            return residual(stream, sum_over_ranks(y, None, ranks));
        }
        residual_in_product(stream, arithmetic.dtype, |stream| {
            swiglu_onto(x, weights, LAYOUT, level, arithmetic, stream)
        })
    }
}

/// What an MLP of `hidden` columns with `inner` inside costs.
pub fn cost(setting: &Setting, tuning: &Tuning, [hidden, inner]: [u64; 2]) -> Cost {
    if !tuning.opens_swiglu() {
        return swiglu::cost(setting, [hidden, inner], LAYOUT);
    }
    let linear = |layer, sizes| linear_cost(setting, tuning, layer, sizes, false, LAYOUT);
    let ([gate, up, down], columns) = (LAYERS, Side::Outputs { parts: 1 });
    Cost::sequence(&[
        Cost::fan(&[linear((gate, columns), [hidden, inner]), linear((up, columns), [hidden, inner])]),
        gated_cost(setting, inner),
        linear((down, Side::Inputs), [inner, hidden]),
    ])
}

/// Whether the last product adds the residual stream.
pub fn adds_residual(setting: &Setting, tuning: &Tuning) -> bool {
    let has_product = tuning.opens_swiglu() || setting.ops.swiglu == Operator::Custom;
    has_product && parts::adds_residual(setting, tuning, LAYERS[2])
}

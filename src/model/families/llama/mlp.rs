//! The MLP of a Llama-like block: SwiGLU as one operator; with adapters, or with weights in 4 bits, as linear layers and
//! their gate.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::model::language::Context;
use crate::model::language::parts::{Linear, linear_cost};
use crate::ops::autocast::weight;
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::WeightLayout;
use crate::ops::swiglu::{self, gated, gated_cost, swiglu};
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

    /// [batch · sequence, hidden_size] → the same shape.
    pub fn forward(&self, x: Tensor<2>, context: &Context) -> Tensor<2> {
        let (x, computation) = (context.copied(x), &context.computation);
        let linears = [&self.gate_proj, &self.up_proj, &self.down_proj];
        if !linears.iter().all(|linear| linear.is_plain()) {
            let [gate, up] = [linears[0], linears[1]].map(|linear| linear.forward(x.clone(), computation));
            return self.down_proj.forward_summed(gated(gate, up), context);
        }
        let [gate, up, down] = linears.map(|linear| weight(&linear.weight));
        let (ops, level) = (computation.ops, computation.checkpoint.level);
        let y = swiglu(x, gate, up, down, LAYOUT, level, ops.swiglu, computation.arithmetic);
        sum_over_ranks(y, None, &context.ranks)
    }
}

/// What an MLP of `hidden` columns with `inner` inside costs.
pub fn cost(setting: &Setting, tuning: &Tuning, [hidden, inner]: [u64; 2]) -> Cost {
    if !tuning.packs && !LAYERS.iter().any(|name| tuning.adapts(name)) {
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

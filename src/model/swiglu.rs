//! A stack of SwiGLU MLPs trained to reproduce a random target: the network of the
//! checkpoint-level study.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::{Inputs, Network};
use crate::common::Compute;
use crate::device::cuda::Input;
use crate::keys::section::section;
use crate::keys::values::{COUNT, LAYERS};
use crate::keys::{Key, Section};
use crate::measure::Evaluation;
use crate::ops::activation::Activation;
use crate::ops::cost::Operators;
use crate::ops::cost::Setting;
use crate::ops::dense::{Arithmetic, WeightLayout};
use crate::ops::gated_mlp::{self, GatedMlp};
use crate::ops::mean_square::{self, mean_square};
use crate::ops::segment::in_segments;
use crate::ops::tensor_parallel::{copy_cost, copy_to_ranks, sum_cost, sum_over_ranks};
use crate::ops::{Checkpoint, Operator};
use crate::params::source::{Init, Source};
use crate::params::split::Split;
use crate::params::table::{Group, Table};
use crate::world::ProcessGroup;

section! {
    /// A stack of SwiGLU feed-forward networks that learns to reproduce a random target.
    pub struct SwigluConfig: Section::of("model", "kind", &["swiglu"]) => {
        /// Columns of the input and the output.
        pub hidden_size: usize = Key::size(COUNT),
        /// Columns inside a layer.
        pub intermediate_size: usize = Key::size(COUNT),
        /// Layers, one after the other.
        pub num_hidden_layers: usize = Key::size(LAYERS).called("layers"),
    }
}

/// W and V [hidden, intermediate], U [intermediate, hidden].
#[derive(Module, Debug)]
pub struct SwigluLayer {
    w: Param<Tensor<2>>,
    v: Param<Tensor<2>>,
    u: Param<Tensor<2>>,
}

/// The layers one after the other: x ← FFN(x).
#[derive(Module, Debug)]
pub struct SwigluStack {
    layers: Vec<SwigluLayer>,
    #[module(skip)]
    table: Arc<Table>,
    #[module(skip)]
    checkpoint: Checkpoint,
    #[module(skip)]
    operator: Operator,
    #[module(skip)]
    arithmetic: Arithmetic,
    /// Those that layers are divided among.
    #[module(skip)]
    ranks: ProcessGroup,
}

/// Input and target, [tokens, hidden] each.
#[derive(Clone, Debug)]
pub struct Regression {
    pub x: Tensor<2>,
    pub target: Tensor<2>,
    /// The micro-batch's part of the step's mean loss.
    pub part: f64,
}

impl SwigluConfig {
    pub fn parameters(&self) -> u64 {
        (self.num_hidden_layers as u64)
            .saturating_mul(3)
            .saturating_mul(self.hidden_size as u64)
            .saturating_mul(self.intermediate_size as u64)
    }

    /// x ← FFN(x) in each block, and the distance to the target.
    pub fn operators(&self, setting: &Setting) -> Operators {
        let sizes = [self.hidden_size, self.intermediate_size].map(|size| size as u64);
        let [hidden, inner] = [sizes[0], setting.part(sizes[1])];
        let layer = gated_mlp::cost(setting, Activation::Silu, [hidden, inner], WeightLayout::InOut);
        let (copy, sum) = (copy_cost(setting, hidden), sum_cost(setting, hidden, setting.element()));
        Operators {
            blocks: vec![[copy, vec![layer], sum].concat().into(); self.num_hidden_layers],
            last: vec![mean_square::cost(setting, sizes[0])],
            // Input and target.
            batch: 2 * setting.activation(sizes[0]),
            ..Operators::default()
        }
    }
}

impl Network for SwigluStack {
    type Batch = Regression;

    fn inputs(batch: &Regression) -> Option<Inputs> {
        let Regression { x, target, part } = batch;
        let [tokens, hidden] = x.dims();
        let flat = |tensor: &Tensor<2>| Input::Float(tensor.clone().reshape([tokens * hidden]));
        Some(Inputs { tensors: vec![flat(x), flat(target)], form: vec![tokens as u64, part.to_bits()] })
    }

    /// The mean squared distance to the target, times the micro-batch's part.
    fn loss(&self, batch: &Regression) -> Tensor<1> {
        let x = batch.x.clone();
        // Inside a larger network the layer below wants this gradient too, so it is computed here.
        let trains = self.layers.iter().any(|layer| layer.w.val().device().is_autodiff());
        let y = self.forward(if trains { x.autodiff().require_grad() } else { x });
        let loss = mean_square(y, batch.target.clone());
        if batch.part == 1.0 { loss } else { loss * batch.part }
    }

    fn parameters(&self) -> &Arc<Table> {
        &self.table
    }

    fn evaluate(&self, _batch: &Regression) -> (Evaluation, f64) {
        unreachable!("nothing is held out of a fixed problem")
    }
}

impl SwigluStack {
    /// The stack whose parameters the source has.
    pub fn new(
        config: &SwigluConfig,
        checkpoint: Checkpoint,
        operator: Operator,
        compute: Compute,
        source: &Source,
    ) -> Self {
        let (h, i) = (config.hidden_size, config.intermediate_size);
        let layer = |number: usize| {
            let source = source.at("layers").at(number.to_string()).within(Group::Block(number));
            // N(0, 1/rows) keeps the size of the activations through the product.
            let matrix = |name, [rows, columns]: [usize; 2], axis| {
                let init = Init::Normal(1.0 / (rows as f64).sqrt());
                source.divided(name, [rows, columns], Some(Split { axis, parts: 1 }), init)
            };
            SwigluLayer { w: matrix("w", [h, i], 1), v: matrix("v", [h, i], 1), u: matrix("u", [i, h], 0) }
        };
        let layers = (0..config.num_hidden_layers).map(layer).collect();
        let (table, arithmetic) = (Arc::new(source.table()), Arithmetic::of(compute));
        let ranks = source.ranks().clone();
        Self { layers, table, checkpoint, operator, arithmetic, ranks }
    }

    /// x [tokens, hidden] → [tokens, hidden]
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let (Checkpoint { level, blocks }, operator, arithmetic) =
            (self.checkpoint, self.operator, self.arithmetic);
        let ranks = self.ranks.clone();
        in_segments(&self.layers, blocks, x, move |layer, x| {
            let (w, v, u) = (layer.w.val(), layer.v.val(), layer.u.val());
            let x = copy_to_ranks(x, &ranks);
            let mlp = GatedMlp::swiglu(WeightLayout::InOut, level, arithmetic);
            let y = mlp.forward(x, [w, v, u], operator);
            sum_over_ranks(y, None, &ranks)
        })
    }
}

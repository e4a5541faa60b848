//! A stack of SwiGLU MLPs trained to reproduce a random target: the network of the
//! checkpoint-level study.

use burn::module::{Module, Param};
use burn::tensor::{Device, Distribution, Tensor};
use serde::{Deserialize, Serialize};

use super::{Flops, Network};
use crate::device::dtype;
use crate::measure::{Estimate, Evaluation, Ledger};
use crate::ops::dense::{Arithmetic, WeightLayout};
use crate::ops::mean_square::mean_square;
use crate::ops::swiglu::{memory::Sizes, swiglu};
use crate::ops::{Level, Operator};
use crate::recipe::Cell;
use crate::words::key::{COUNT, DefaultValue, Key, LAYERS, Section};
use crate::words::{Compute, values};

/// `[model] kind = "swiglu"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwigluConfig {
    #[serde(deserialize_with = "values::count")]
    pub hidden_size: usize,
    #[serde(deserialize_with = "values::count")]
    pub intermediate_size: usize,
    #[serde(deserialize_with = "values::layers")]
    pub num_hidden_layers: usize,
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
    level: Level,
    #[module(skip)]
    operator: Operator,
    #[module(skip)]
    arithmetic: Arithmetic,
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
    pub const SECTION: Section = Section::of(
        "model",
        "kind",
        &["swiglu"],
        "A stack of SwiGLU feed-forward networks that learns to reproduce a random target.",
        &[
            Key::size("hidden_size", COUNT, DefaultValue::Required, "Columns of the input and the output."),
            Key::size("intermediate_size", COUNT, DefaultValue::Required, "Columns inside a layer."),
            Key::size("num_hidden_layers", LAYERS, DefaultValue::Required, "Layers, one after the other.")
                .called("layers"),
        ],
    );

    pub fn parameters(&self) -> u64 {
        (self.num_hidden_layers as u64)
            .saturating_mul(3)
            .saturating_mul(self.hidden_size as u64)
            .saturating_mul(self.intermediate_size as u64)
    }

    /// Three matmuls of N·H·I multiply-adds a layer forward and six backward; level 1 repeats two. N are the
    /// tokens of all micro-batches.
    pub fn flops(&self, cell: &Cell) -> Flops {
        let tokens = (cell.train.tokens() * cell.train.accumulation_steps) as f64;
        let matmul = 2.0 * tokens * self.hidden_size as f64 * self.intermediate_size as f64;
        let layers = self.num_hidden_layers as f64;
        let repeated = match cell.checkpoint.level {
            Level::Full => 2.0,
            Level::Keep | Level::Elementwise => 0.0,
        };
        Flops {
            forward: 3.0 * matmul * layers,
            backward: 6.0 * matmul * layers,
            recompute: repeated * matmul * layers,
        }
    }

    /// Walks through the last micro-batch of one step: batch, forward, loss, backward, optimizer.
    pub fn estimate(&self, cell: &Cell) -> Estimate {
        let sizes = self.sizes(cell);
        let (level, operator) = (cell.checkpoint.level, cell.ops.swiglu);
        let layers = self.num_hidden_layers;
        let weights = 3 * sizes.weight * layers as u64;
        let (optimizer, memory) = (&cell.train.optimizer, cell.offload.optimizer);

        let mut ledger = Ledger::new(cell.precision.compute, cell.device_id());
        ledger.now.weights = weights;
        // Optimizers compute in fp32, whatever the weights are stored in.
        let fp32 = |bytes: u64| bytes / cell.precision.compute.bytes() * 4;
        ledger.now.optimizer = optimizer.state_tensors(memory) * fp32(weights);
        ledger.now.host = cell.offload.host_bytes(cell);
        if cell.train.accumulation_steps > 1 {
            // Those of earlier micro-batches, to which more are added.
            ledger.now.gradients = weights;
        }
        // Input and target of every micro-batch.
        ledger.take(2 * sizes.x * cell.train.accumulation_steps as u64);
        for _ in 0..layers {
            sizes.forward(&mut ledger, level, operator);
            // y is the next layer's input; after the last layer it becomes the difference to the
            // target, which the square keeps.
            ledger.give(sizes.x);
            ledger.now.activations += sizes.x;
        }
        // The gradient of the loss with respect to y takes the place of the difference.
        ledger.now.activations -= sizes.x;
        ledger.take(sizes.x);
        for layer in (0..layers).rev() {
            sizes.backward(&mut ledger, level, operator);
            if layer > 0 {
                ledger.now.activations -= sizes.x;
            }
        }
        ledger.take(optimizer.workspace_tensors(memory) * fp32(sizes.weight));
        ledger.peak()
    }

    /// Bytes of one layer's tensors.
    pub fn sizes(&self, cell: &Cell) -> Sizes {
        Sizes::new(
            cell.train.tokens() as u64,
            self.hidden_size as u64,
            self.intermediate_size as u64,
            cell.precision.compute.bytes(),
        )
    }
}

impl Network for SwigluStack {
    type Batch = Regression;

    /// The mean squared distance to the target, times the micro-batch's part.
    fn loss(&self, batch: &Regression) -> Tensor<1> {
        // Inside a larger network the layer below wants this gradient too, so it is computed here.
        let y = self.forward(batch.x.clone().autodiff().require_grad());
        let loss = mean_square(y, batch.target.clone());
        if batch.part == 1.0 { loss } else { loss * batch.part }
    }

    fn evaluate(&self, _batch: &Regression) -> Evaluation {
        unreachable!("nothing is held out of a fixed problem")
    }
}

impl SwigluStack {
    /// Random weights on an autodiff device.
    pub fn new(
        config: &SwigluConfig,
        level: Level,
        operator: Operator,
        compute: Compute,
        device: &Device,
    ) -> Self {
        let (h, i) = (config.hidden_size, config.intermediate_size);
        // N(0, 1/rows) keeps the size of the activations through the product.
        let matrix = |rows: usize, columns: usize| {
            let scale = Distribution::Normal(0.0, 1.0 / (rows as f64).sqrt());
            Param::from_tensor(
                Tensor::random([rows, columns], scale, (device, dtype(compute))).require_grad(),
            )
        };
        let layers = (0..config.num_hidden_layers)
            .map(|_| SwigluLayer { w: matrix(h, i), v: matrix(h, i), u: matrix(i, h) })
            .collect();
        Self { layers, level, operator, arithmetic: Arithmetic::of(compute) }
    }

    /// x [tokens, hidden] → [tokens, hidden]
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.layers.iter().fold(x, |x, layer| {
            let (w, v, u) = (layer.w.val(), layer.v.val(), layer.u.val());
            swiglu(x, w, v, u, WeightLayout::InOut, self.level, self.operator, self.arithmetic)
        })
    }
}

//! The layers that language models are made of. Fields carry Hugging Face's names.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::{Computation, Context};
use crate::ops::Operator;
use crate::ops::activation::{Activation, activate};
use crate::ops::autocast::weight;
use crate::ops::backend::has_blas;
use crate::ops::cost::{Cost, Moment, Setting};
use crate::ops::dense::{self, LAYERS, Layer, Weight, WeightLayout, dense_activated, dense_side_by_side};
use crate::ops::embedding::{Ids, embedding, embedding_of_part};
use crate::ops::lora::{self, LoraLayer, lora_side_by_side};
use crate::ops::residual::{residual, residual_in_product};
use crate::ops::tensor_parallel::{sent_of_copy, sum_over_ranks};
use crate::params::source::{Init, Source};
use crate::params::split::{Side, Split};
use crate::params::table::Tuning;
use crate::params::tuning::Adapter;
use crate::world::ProcessGroup;

/// y = xW (+ b), with an adapter where the source's tuning gives it one.
#[derive(Module, Debug)]
pub struct Linear {
    pub weight: Param<Tensor<2>>,
    pub bias: Option<Param<Tensor<1>>>,
    pub adapter: Option<Adapter>,
    #[module(skip)]
    layout: WeightLayout,
    /// The weight's shape where it is stored in 4 bits.
    #[module(skip)]
    packed: Option<[usize; 2]>,
}

impl Linear {
    /// Its random weights have this standard deviation.
    pub fn new(
        source: &Source,
        [inputs, outputs]: [usize; 2],
        layout: WeightLayout,
        deviation: f64,
        bias: bool,
    ) -> Self {
        let (shape, init) = (layout.shape(inputs, outputs), Init::Normal(deviation));
        let packed = source.packs().then_some(shape);
        let [by_weight, by_bias] = splits(source.side(), layout);
        let weight = match packed {
            None => source.divided("weight", shape, by_weight, init),
            Some(shape) => source.packed("weight", shape, init),
        };
        let bias = bias.then(|| source.divided("bias", [outputs], by_bias, Init::Constant(0.0)));
        let own = || (Weight { packed, ..Weight::from(weight.val()) }, layout);
        let adapter = Adapter::new(source, [inputs, outputs], own);
        Self { weight, bias, adapter, layout, packed }
    }

    /// Of what the last norm gives: weight [outputs, inputs].
    pub fn head(source: &Source, sizes: [usize; 2], bias: bool) -> Self {
        Self::new(source, sizes, WeightLayout::OutIn, source.deviation(), bias)
    }

    /// Whether the layer is its weight and its bias as they are stored: operators of several layers can take those.
    pub fn is_plain(&self) -> bool {
        self.adapter.is_none() && self.packed.is_none()
    }

    fn weight(&self) -> Weight {
        match self.packed {
            None => weight(&self.weight),
            packed => Weight { packed, ..Weight::from(self.weight.val()) },
        }
    }

    pub fn forward(&self, x: Tensor<2>, computation: &Computation) -> Tensor<2> {
        self.with_bias(self.bias.as_ref().map(weight), x, computation)
    }

    /// [`forward`](Self::forward) of a layer whose inputs divide among ranks: their results are added, and then the bias.
    pub fn forward_summed(&self, x: Tensor<2>, context: &Context) -> Tensor<2> {
        let Context { computation, ranks, .. } = context;
        if ranks.size() == 1 {
            return self.forward(x, computation);
        }
        sum_over_ranks(self.with_bias(None, x, computation), self.bias.as_ref().map(weight), ranks)
    }

    /// The residual stream x plus [`forward_summed`](Self::forward_summed) of `input`.
    pub fn forward_onto(&self, x: Tensor<2>, input: Tensor<2>, context: &Context) -> Tensor<2> {
        let Context { computation, ranks, .. } = context;
        if ranks.size() > 1 || self.adapter.is_some() {
            return residual(x, self.forward_summed(input, context));
        }
        let layer = self.layer(self.bias.as_ref().map(weight), computation);
        residual_in_product(x, layer.arithmetic.in_region().dtype, |x| layer.forward_onto(input, x))
    }

    fn layer(&self, bias: Option<Weight<1>>, computation: &Computation) -> Layer {
        Layer { weight: self.weight(), bias, layout: self.layout, arithmetic: computation.arithmetic }
    }

    fn with_bias(&self, bias: Option<Weight<1>>, x: Tensor<2>, computation: &Computation) -> Tensor<2> {
        let layer = self.layer(bias, computation);
        match &self.adapter {
            None => layer.forward(x),
            Some(adapter) => adapter.forward(x, layer, computation.masks),
        }
    }

    /// The layers' results side by side, by one operator on CUDA: of plain layers, or of frozen ones with low-rank adapters,
    /// all with a bias or none. `None` where there is no such operator.
    pub fn side_by_side(
        layers: [&Self; LAYERS],
        x: &Tensor<2>,
        computation: &Computation,
    ) -> Option<Tensor<2>> {
        let layout = layers[0].layout;
        if layers.iter().all(|layer| layer.is_plain()) {
            let of = |layer: &Self| (weight(&layer.weight), layer.bias.as_ref().map(weight));
            return has_blas(x)
                .then(|| dense_side_by_side(x.clone(), layers.map(of), layout, computation.arithmetic));
        }
        let of = |layer: &&Self| {
            let frozen = layer.adapter.is_some() || !layer.weight.val().is_require_grad();
            let low_rank = match &layer.adapter {
                None => None,
                Some(adapter) => Some(adapter.low_rank(computation.masks)?),
            };
            let bias = layer.bias.as_ref().map(weight);
            frozen.then(|| LoraLayer { layer: layer.layer(bias, computation), low_rank })
        };
        let layers: Vec<_> = layers.iter().map(of).collect::<Option<_>>()?;
        lora::lies_side_by_side(x, &layers).then(|| lora_side_by_side(x.clone(), layers))
    }

    /// The activation of [`Linear::forward`].
    pub fn forward_activated(
        &self,
        x: Tensor<2>,
        activation: Activation,
        computation: &Computation,
    ) -> Tensor<2> {
        let operator = computation.ops.gelu;
        match (&self.bias, self.is_plain(), operator) {
            (Some(bias), true, Operator::Custom) => {
                let (weight, bias) = (weight(&self.weight), weight(bias));
                dense_activated(x, weight, bias, activation, self.layout, computation.arithmetic)
            }
            _ => activate(self.forward(x, computation), activation, operator),
        }
    }
}

/// How the weight and the bias of a layer divide that divides by this side.
fn splits(side: Option<Side>, layout: WeightLayout) -> [Option<Split>; 2] {
    let [inputs, outputs] = match layout {
        WeightLayout::InOut => [0, 1],
        WeightLayout::OutIn => [1, 0],
    };
    let along = |axis, parts| Some(Split { axis, parts });
    match side {
        None => [None; 2],
        Some(Side::Outputs { parts }) => [along(outputs, parts), along(0, parts)],
        Some(Side::Inputs) => [along(inputs, 1), None],
    }
}

/// What a copy of the result of this layer in another order costs.
pub fn copied_cost(setting: &Setting, layer: Cost) -> Cost {
    let made = Moment::workspace(layer.output);
    let launches = if setting.on_cuda() { [1, 1] } else { [0; 2] };
    Cost { input: layer.output, output: layer.output, launches, ..Cost::new(made, made) }
}

/// What it costs to take the result of this layer apart: each part's gradient is that of the whole, with zeros, before they
/// are added.
pub fn apart_cost(setting: &Setting, layer: Cost, parts: u64) -> Cost {
    let whole = layer.output;
    let launches = if setting.on_cuda() { [parts as u32, 3 * parts as u32] } else { [0; 2] };
    let moments = Cost::new(Moment::default(), Moment::workspace(parts * whole));
    Cost { input: whole, output: whole, launches, ..moments }
}

/// What the linear layer of this name, which divides by this side, costs in a block, with the adapter that `tuning` gives it.
pub fn linear_cost(
    setting: &Setting,
    tuning: &Tuning,
    (name, side): (&str, Side),
    sizes: [u64; 2],
    bias: bool,
    layout: WeightLayout,
) -> Cost {
    match tuning.method(name) {
        None => dense::cost(setting, sizes, bias, layout),
        Some(method) => {
            let cost = method.cost(setting, sizes, bias, layout);
            let [inputs, outputs] = sizes.map(|size| size as usize);
            let all = method.matrices(inputs, outputs);
            let whole = all.iter().enumerate().filter(|(i, _)| method.axis(*i, side).is_none());
            let elements = whole.map(|(_, (_, shape, _))| shape.iter().product::<usize>() as u64).sum();
            Cost { sent: cost.sent + sent_of_copy(setting, elements), ..cost }
        }
    }
}

/// Whether the layer of this name adds the residual stream in its product ([`Linear::forward_onto`]).
pub fn adds_residual(setting: &Setting, tuning: &Tuning, name: &str) -> bool {
    setting.on_cuda() && setting.stored == setting.element() && setting.tensor == 1 && !tuning.adapts(name)
}

/// Rows of a table.
#[derive(Module, Debug)]
pub struct Embedding {
    pub weight: Param<Tensor<2>>,
}

impl Embedding {
    pub fn new(source: &Source, rows: usize, columns: usize) -> Self {
        Self { weight: source.parameter("weight", [rows, columns], Init::Normal(source.deviation())) }
    }

    /// Of a table whose rows divide among ranks.
    pub fn divided(source: &Source, rows: usize, columns: usize) -> Self {
        let by_rows = Some(Split { axis: 0, parts: 1 });
        let init = Init::Normal(source.deviation());
        Self { weight: source.divided("weight", [rows, columns], by_rows, init) }
    }

    /// As [`forward`](Self::forward), from the `weight` of a table whose rows divide among ranks: a rank has 0 for the rows
    /// of others.
    pub fn forward_summed(weight: Tensor<2>, ids: &Ids, ranks: &ProcessGroup) -> Tensor<2> {
        let dtype = weight.dtype();
        if ranks.size() == 1 {
            return embedding(weight, ids, dtype);
        }
        sum_over_ranks(embedding_of_part(weight, ids, [ranks.place(), ranks.size()], dtype), None, ranks)
    }

    /// [tokens, columns] in the type the table is stored in.
    pub fn forward(&self, ids: &Ids) -> Tensor<2> {
        let weight = self.weight.val();
        let dtype = weight.dtype();
        embedding(weight, ids, dtype)
    }
}

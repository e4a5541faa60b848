//! LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"), with PEFT's names and first values.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::{DType, Tensor, TensorData};
use itertools::Itertools;

use super::{LinearLayer, Masks, Matrix, Method, Tunes};
use crate::keys::key::DefaultValue::{Nothing, Number, Whole, Word};
use crate::keys::section::section;
use crate::keys::values::{COUNT, FRACTION, POSITIVE, Values};
use crate::keys::{Key, Rule, Section};
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::{Layer, Weight, WeightLayout};
use crate::ops::dropout::Dropout;
use crate::ops::lora::{self, LowRank, lora};
use crate::params::peft::PeftType;
use crate::params::source::Init;
use crate::params::split::Side;

section! {
    /// Low-rank matrices added to frozen linear layers: y = xW + alpha / rank · (xAᵀ)Bᵀ with trained A and B.
    pub struct Lora: Section::of("tuning", "method", &["lora", "qlora"]), Default => {
        /// Rows of A and columns of B; at most the inputs and the outputs of each layer.
        pub rank: usize = Key::method(COUNT).default(Whole(8)),
        /// The adapter's result is multiplied by alpha / rank.
        pub alpha: f64 = Key::method(POSITIVE).default(Number(16.0)),
        /// Share of the elements of A's input that are dropped in training.
        pub dropout: f64 = Key::method(FRACTION)
            .default(Number(0.0))
            .called("adapter dropout"),
        /// Names of the linear layers that have an adapter, separated by commas.
        pub target_modules: String = Key::method(Values::Text)
            .default(Word("q_proj, k_proj, v_proj, o_proj")),
        /// PEFT folder whose A and B training begins with. Without it A is drawn from the seed and B is 0.
        pub adapter: Option<String> =
            Key::method(Values::Text).default(Nothing).called("first adapter"),
    }
}

/// The names of A and B within their layer, as PEFT has them.
const MATRICES: [&str; 2] = ["lora_A.weight", "lora_B.weight"];

impl Lora {
    /// The names in `target_modules`.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.target_modules.split(',').map(str::trim).filter(|name| !name.is_empty())
    }

    /// What A and B are multiplied by.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }
}

impl Tunes for Lora {
    fn adapter(&self) -> Option<Arc<dyn Method>> {
        Some(Arc::new(self.clone()))
    }

    fn folder(&self) -> Option<&Path> {
        self.adapter.as_deref().map(Path::new)
    }

    fn peft_type(&self) -> Option<PeftType<'_>> {
        Some(PeftType::Lora(self))
    }
}

impl Method for Lora {
    fn adapts(&self, layer: &str) -> bool {
        self.targets().any(|target| target == layer)
    }

    /// `kaiming_uniform_(a = √5)` of A is uniform within ±1/√inputs, as PEFT draws it; B is 0.
    fn matrices(&self, inputs: usize, outputs: usize) -> Vec<Matrix> {
        let [a, b] = MATRICES;
        let bound = (inputs as f64).sqrt().recip();
        vec![(a, [self.rank, inputs], Init::Uniform(bound)), (b, [outputs, self.rank], Init::Constant(0.0))]
    }

    /// A's columns are the layer's inputs, and B's rows its outputs.
    fn axis(&self, matrix: usize, side: Side) -> Option<usize> {
        match (matrix, side) {
            (0, Side::Inputs) => Some(1),
            (1, Side::Outputs { .. }) => Some(0),
            _ => None,
        }
    }

    fn forward(&self, x: Tensor<2>, layer: Layer, matrices: Vec<Weight>, masks: Masks) -> Tensor<2> {
        lora(x, layer, self.low_rank(matrices, masks).expect("of every LoRA"))
    }

    fn low_rank(&self, matrices: Vec<Weight>, masks: Masks) -> Option<LowRank> {
        let [a, b] = matrices.try_into().expect("A and B");
        let dropout = Dropout::new(self.dropout, masks.seed, masks.layer);
        Some(LowRank { a, b, scale: self.scale(), dropout })
    }

    fn cost(&self, setting: &Setting, sizes: [u64; 2], bias: bool, layout: WeightLayout) -> Cost {
        lora::cost(setting, sizes, bias, layout, self.rank as u64, self.dropout > 0.0)
    }

    fn check(&self, layers: &[LinearLayer]) -> Result<(), Rule> {
        let names: Vec<&str> = layers.iter().map(|(name, _)| name.as_str()).collect();
        let unknown = self.targets().find(|target| !names.contains(target));
        if self.targets().next().is_none() || unknown.is_some() {
            let what = unknown.map_or("names no layer".into(), |name| format!("names {name}"));
            let known = names.iter().sorted().dedup().join(", ");
            return Err(Rule::new(
                &["tuning.target_modules", "tuning.method"],
                format!("tuning.target_modules {what}, and this model's linear layers are {known}"),
                format!("write target_modules = \"{known}\", or some of them"),
            ));
        }
        let targets: Vec<&str> = self.targets().collect();
        if let Some(twice) = targets.iter().duplicates().next() {
            return Err(Rule::new(
                &["tuning.target_modules"],
                format!("tuning.target_modules names {twice} twice, and a layer has one adapter"),
                format!("write target_modules = \"{}\"", targets.iter().unique().join(", ")),
            ));
        }
        let small =
            layers.iter().find(|(name, sizes)| self.adapts(name) && sizes.iter().min() < Some(&self.rank));
        small.map_or(Ok(()), |(name, [inputs, outputs])| {
            Err(Rule::new(
                &["tuning.rank"],
                format!(
                    "tuning.rank = {} is larger than {name}, which has {inputs} inputs and {outputs} outputs: no \
                     matrix of that shape has a higher rank than {}",
                    self.rank,
                    inputs.min(outputs)
                ),
                format!("set tuning.rank to {} or less, or leave {name} out of target_modules", inputs.min(outputs)),
            ))
        })
    }

    fn merges(&self) -> bool {
        true
    }

    /// W + alpha / rank · BA, in fp32 and rounded once.
    fn merged(
        &self,
        weight: TensorData,
        layout: WeightLayout,
        matrix: &mut dyn FnMut(&str) -> TensorData,
    ) -> TensorData {
        let numbers = |data: TensorData| {
            data.convert_dtype(DType::F32).try_into_vec::<f32>().expect("of the type they were converted to")
        };
        let [a, b] = MATRICES.map(|name| numbers(matrix(name)));
        let (dtype, shape) = (weight.dtype(), weight.shape().clone());
        let mut weight = numbers(weight);
        let [inputs, outputs] = [a.len() / self.rank, b.len() / self.rank];
        let scale = self.scale() as f32;
        let mut row = vec![0.0f32; inputs];
        for (output, factors) in b.chunks(self.rank).enumerate() {
            row.fill(0.0);
            for (factor, a) in factors.iter().zip(a.chunks(inputs)) {
                row.iter_mut().zip(a).for_each(|(sum, a)| *sum += factor * a);
            }
            for (input, sum) in row.iter().enumerate() {
                let place = match layout {
                    WeightLayout::OutIn => output * inputs + input,
                    WeightLayout::InOut => input * outputs + output,
                };
                weight[place] += scale * sum;
            }
        }
        TensorData::new(weight, shape).convert_dtype(dtype)
    }
}

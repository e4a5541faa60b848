//! LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"), with PEFT's names and first values.

mod check;
mod merged;
mod targets;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::{Adapters, LinearLayer, Masks, Matrix, Method, Own, Tunes};
use crate::keys::key::DefaultValue::{Nothing, Number, Whole, Word};
use crate::keys::section::section;
use crate::keys::values::{COUNT, FRACTION, POSITIVE, Values};
use crate::keys::{Key, Rule, Section};
use crate::ops::bias::{self, add_bias};
use crate::ops::cost::{Cost, Setting, Trained};
use crate::ops::dense::{Layer, Weight, WeightLayout};
use crate::ops::dropout::Dropout;
use crate::ops::lora::dora::{self, dora};
use crate::ops::lora::{self, LowRank, lora};
use crate::params::peft::PeftType;
use crate::params::source::Init;
use crate::params::split::Side;
pub use targets::{Targets, patterns};

section! {
    /// Low-rank matrices added to frozen linear layers: y = xW + s · (xAᵀ)Bᵀ with trained A and B; qlora keeps W in 4 bits.
    pub struct Lora: Section::of("tuning", "method", &["lora", "qlora"]), Default => {
        /// Rows of A and columns of B; at most the inputs and the outputs of each layer.
        pub rank: usize = Key::method(COUNT).default(Whole(8)),
        /// The adapter's result is multiplied by s = alpha / rank.
        pub alpha: f64 = Key::method(POSITIVE).default(Number(16.0)),
        /// Share of the elements of A's input that are dropped in training.
        pub dropout: f64 = Key::method(FRACTION)
            .default(Number(0.0))
            .called("adapter dropout"),
        /// Linear layers of blocks that have an adapter: their names or the ends of their paths, separated by commas;
        /// all-linear; or a regular expression of whole paths.
        pub target_modules: String = Key::method(Values::Text)
            .default(Word("q_proj, k_proj, v_proj, o_proj")),
        /// Numbers of the blocks whose layers have an adapter, separated by commas. Without it all have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub layers_to_transform: Option<String> = Key::method(Values::Text).default(Nothing),
        /// Other ranks of some layers: "q_proj = 4, layers.0.*v_proj = 16". What is before = is a regular expression of the
        /// end of a layer's path; the first that fits counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rank_pattern: Option<String> = Key::method(Values::Text).default(Nothing),
        /// Other alphas of some layers, written as rank_pattern.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub alpha_pattern: Option<String> = Key::method(Values::Text).default(Nothing),
        /// Whether s is alpha / √rank (rsLoRA, Kalajdzievski 2023).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub use_rslora: bool = Key::flag(false),
        /// Whether the rows of each adapted weight have trained lengths (DoRA, Liu et al. 2024).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub use_dora: bool = Key::flag(false),
        /// Biases of the model that are trained too: of all layers, or of those with an adapter.
        #[serde(default, skip_serializing_if = "Biases::are_frozen")]
        pub bias: Biases = Key::method(Values::Words(Biases::WORDS)).default(Word("none")).called("trained biases"),
        /// Modules beside the blocks that are trained as a whole and saved with the adapter, separated by commas:
        /// "embed_tokens, lm_head".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub modules_to_save: Option<String> = Key::method(Values::Text).default(Nothing),
        /// PEFT folder whose A and B training begins with. Without it A is drawn from the seed and B is 0.
        pub adapter: Option<String> =
            Key::method(Values::Text).default(Nothing).called("first adapter"),
    }
}

/// `tuning.bias`: which biases of the model are trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Biases {
    #[default]
    None,
    All,
    LoraOnly,
}

impl Biases {
    pub const WORDS: &[&str] = &["none", "all", "lora_only"];

    pub fn are_frozen(&self) -> bool {
        *self == Self::None
    }
}

/// The names of A, B and the magnitude within their layer, as PEFT's files have them.
const MATRICES: [&str; 3] = ["lora_A.weight", "lora_B.weight", MAGNITUDE];
pub const MAGNITUDE: &str = "lora_magnitude_vector";

impl Lora {
    /// What the adapter's result is multiplied by.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.use_rslora { rank.sqrt() } else { rank }
    }

    fn product(&self, [a, b]: [Weight; 2], masks: Masks) -> LowRank {
        let dropout = Dropout::new(self.dropout, masks.seed, masks.layer);
        LowRank { a, b, scale: self.scale(), dropout }
    }

    /// The modules in `modules_to_save`.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        listed(self.modules_to_save.as_deref().unwrap_or_default())
    }
}

/// What is separated by commas.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

impl Tunes for Lora {
    fn trained(&self) -> Trained {
        if self.bias == Biases::All { Trained::BIASES } else { Trained::NONE }
    }

    fn adapter(&self) -> Option<Arc<dyn Method>> {
        Some(Arc::new(self.clone()))
    }

    fn adapters(&self, own: Own<'_>) -> Option<Adapters> {
        Some(self.by_layer(own))
    }

    fn saved(&self, own: Own<'_>) -> BTreeSet<String> {
        self.saved_of(own)
    }

    fn check(&self, layers: &[LinearLayer], own: Own<'_>) -> Result<(), Rule> {
        self.check_targets(layers, own)?;
        self.check_saved(own)
    }

    fn folder(&self) -> Option<&Path> {
        self.adapter.as_deref().map(Path::new)
    }

    fn peft_type(&self) -> Option<PeftType<'_>> {
        Some(PeftType::Lora(self))
    }
}

impl Method for Lora {
    /// Where all layers of a name are alike.
    fn adapts(&self, layer: &str) -> bool {
        self.targets().is_ok_and(|targets| targets.has(layer))
    }

    /// `kaiming_uniform_(a = √5)` of A is uniform within ±1/√inputs, as PEFT draws it; B is 0.
    fn matrices(&self, inputs: usize, outputs: usize) -> Vec<Matrix> {
        let [a, b, magnitude] = MATRICES;
        let bound = (inputs as f64).sqrt().recip();
        let mut matrices = vec![
            (a, [self.rank, inputs], Init::Uniform(bound)),
            (b, [outputs, self.rank], Init::Constant(0.0)),
        ];
        matrices.extend(self.use_dora.then_some((magnitude, [1, outputs], Init::RowLengths)));
        matrices
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
        let mut matrices = matrices.into_iter();
        let mut next = || matrices.next().expect("one of each");
        let low_rank = self.product([next(), next()], masks);
        if self.use_dora {
            return dora(x, layer, low_rank, next());
        }
        let Layer { bias, .. } = layer;
        let (apart, bias) = if self.bias == Biases::None { (None, bias) } else { (bias, None) };
        let y = lora(x, Layer { bias, ..layer }, low_rank);
        apart.into_iter().fold(y, add_bias)
    }

    /// `None` where what is trained has no place in it.
    fn low_rank(&self, matrices: Vec<Weight>, masks: Masks) -> Option<LowRank> {
        let matrices = matrices.try_into().ok().filter(|_| self.bias == Biases::None)?;
        Some(self.product(matrices, masks))
    }

    fn cost(&self, setting: &Setting, sizes: [u64; 2], bias: bool, layout: WeightLayout) -> Cost {
        let dropout = self.dropout > 0.0;
        let apart = bias && (self.use_dora || self.bias != Biases::None);
        let rank = self.rank as u64;
        let mut cost = lora::cost(setting, sizes, bias && !apart, layout, rank, dropout && !self.use_dora);
        if self.use_dora {
            cost = dora::cost(setting, sizes, layout, cost, dropout);
        }
        match apart {
            true => Cost::sequence(&[cost, bias::cost(setting, sizes[1], self.bias != Biases::None)]),
            false => cost,
        }
    }

    fn merges(&self) -> bool {
        true
    }

    fn merged(
        &self,
        weight: TensorData,
        layout: WeightLayout,
        matrix: &mut dyn FnMut(&str) -> TensorData,
    ) -> TensorData {
        let [a, b, magnitude] = MATRICES;
        let magnitude = self.use_dora.then(|| matrix(magnitude));
        merged::merged((weight, layout), [matrix(a), matrix(b)], self.scale() as f32, magnitude)
    }
}

//! Adapters (Houlsby et al. 2019, "Parameter-Efficient Transfer Learning for NLP"): a small network after attention and
//! after the MLP of each block, y ← y + GELU(yDᵀ + d)Uᵀ + u.

use std::sync::Arc;

use burn::tensor::Tensor;

use super::{LinearLayer, Masks, Matrix, Method, Tunes};
use crate::keys::key::DefaultValue::Whole;
use crate::keys::section::section;
use crate::keys::values::COUNT;
use crate::keys::{Key, Rule, Section};
use crate::ops::Operator;
use crate::ops::activation::{self, Activation, activate};
use crate::ops::cost::{Cost, Setting, Trained};
use crate::ops::dense::{self, Layer, Weight, WeightLayout, dense};
use crate::ops::residual::residual;
use crate::params::source::Init;

section! {
    /// A small network after attention and after the MLP of each block, which alone is trained.
    #[derive(Copy)]
    pub struct Bottleneck: Section::of("tuning", "method", &["adapter"]) => {
        /// Its inner columns, at most the hidden size.
        pub bottleneck: usize = Key::method(COUNT).default(Whole(64)),
    }
}

/// The last layer of attention and of the MLP, in each family.
const LAST: [&str; 10] =
    ["o_proj", "down_proj", "c_proj", "out_proj", "fc_out", "dense", "dense_4h_to_h", "fc2", "o", "wo"];
/// Between the two layers.
const ACTIVATION: Activation = Activation::GeluTanh;

impl Tunes for Bottleneck {
    fn adapter(&self) -> Option<Arc<dyn Method>> {
        Some(Arc::new(*self))
    }
}

impl Method for Bottleneck {
    fn adapts(&self, layer: &str) -> bool {
        LAST.contains(&layer)
    }

    /// U and the biases begin as 0: the network begins as the model.
    fn matrices(&self, _: usize, outputs: usize) -> Vec<Matrix> {
        let inside = self.bottleneck;
        let nothing = Init::Constant(0.0);
        vec![
            ("adapter_down.weight", [inside, outputs], Init::Normal(0.02)),
            ("adapter_down.bias", [1, inside], nothing),
            ("adapter_up.weight", [outputs, inside], nothing),
            ("adapter_up.bias", [1, outputs], nothing),
        ]
    }

    fn forward(&self, x: Tensor<2>, layer: Layer, matrices: Vec<Weight>, _: Masks) -> Tensor<2> {
        let [down, down_bias, up, up_bias] = matrices.try_into().expect("two layers");
        let arithmetic = layer.arithmetic;
        let through = |x, weight, bias: Weight| {
            let bias: Tensor<1> = bias.stored.squeeze_dim(0);
            dense(x, weight, Some(bias.into()), WeightLayout::OutIn, arithmetic)
        };
        let y = layer.forward(x);
        let inside = activate(through(y.clone(), down, down_bias), ACTIVATION, Operator::Custom);
        residual(y, through(inside, up, up_bias))
    }

    fn cost(&self, setting: &Setting, sizes: [u64; 2], bias: bool, layout: WeightLayout) -> Cost {
        let (outputs, inside) = (sizes[1], self.bottleneck as u64);
        let trained = Setting { trained: Trained::ALL, packs: false, ..*setting };
        let through = |sizes| dense::cost(&trained, sizes, true, WeightLayout::OutIn);
        let inner = activation::cost(&trained, ACTIVATION, inside);
        let parts = [through([outputs, inside]), inner, through([inside, outputs])];
        let own = Cost::residual(&parts, false);
        Cost::sequence(&[dense::cost(setting, sizes, bias, layout), own])
    }

    fn check(&self, layers: &[LinearLayer]) -> Result<(), Rule> {
        let columns =
            layers.iter().find(|(name, _)| self.adapts(name)).map_or(0, |(_, [_, outputs])| *outputs);
        Rule::refuse_if(
            self.bottleneck > columns,
            &["tuning.bottleneck"],
            format!(
                "tuning.bottleneck = {} is wider than the {columns} columns it stands between",
                self.bottleneck
            ),
            format!("set tuning.bottleneck to {columns} or less"),
        )
    }
}

//! DoRA (Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation"): each row of the adapted weight V = W + s BA has a
//! trained length m, as PEFT computes it.
//!
//! With c = m / n, where n = ‖V‖ is the length of each row, and g the gradient of y:
//!
//! ```text
//! y = W(x − x̃) + c ⊙ V x̃ + b        x̃ = x without dropout, so that the first term is there with dropout alone
//! dz = c ⊙ g                         dm = Σ_tokens g ⊙ z / n           z = V x̃
//! ```
//!
//! n is a constant in backward (section 4.3 of the paper). z is LoRA's operator ([`lora`](super::lora())).
//!
//! Shapes: z and y [N, O], m and n [1, O], W [O, I] or as its layout says, for N tokens.
//!
//! | kept for backward, besides what LoRA keeps | elements | for |
//! |---|---|---|
//! | z | N O | dm |
//! | c, n | O each | dz, dm |

use burn::tensor::{DType, Tensor};

use super::{LowRank, lora};
use crate::ops::bias::add_bias;
use crate::ops::cost::{Cost, Moment, Setting, Tensors, Trained};
use crate::ops::dense::{self, Layer, Weight, WeightLayout, column_sums};
use crate::ops::dropout::Dropout;
use crate::ops::function::custom;
use crate::ops::name::OperatorName;
use crate::ops::product::{Fp32Math, plain, product};
use crate::ops::residual::residual;
use crate::ops::rounded;

/// y [tokens, outputs] of a layer with a low-rank adapter and this magnitude m [1, outputs].
pub fn dora(x: Tensor<2>, layer: Layer, low_rank: LowRank, magnitude: Weight) -> Tensor<2> {
    let Layer { weight, bias, layout, arithmetic } = layer;
    let lengths = row_lengths(&weight, &low_rank, layout);
    let frozen = || Layer { weight: weight.clone(), bias: None, layout, arithmetic };
    let LowRank { dropout, .. } = low_rank;
    let low_rank = LowRank { dropout: None, ..low_rank };
    let y = match dropout {
        None => scaled(lora(x, frozen(), low_rank), magnitude, lengths),
        Some(dropout) => {
            let dropped = dropped(x.clone(), dropout);
            // One product for both terms.
            let rest = Layer { weight: weight.clone().outside(), ..frozen() }.forward(x - dropped.clone());
            residual(rest, scaled(lora(dropped, frozen(), low_rank), magnitude, lengths))
        }
    };
    match bias {
        None => y,
        Some(bias) => add_bias(y, bias),
    }
}

/// x̃, whose gradient is dropped in the same places.
fn dropped(x: Tensor<2>, dropout: Dropout) -> Tensor<2> {
    custom(OperatorName::Linear, [x.into_dispatch()], |[x]| {
        let x = dropout.apply(Tensor::<2>::from_dispatch(x));
        (x, move |g: Tensor<2>, [want_x]: [bool; 1]| [want_x.then(|| dropout.apply(g).into_dispatch())])
    })
}

/// The lengths [1, outputs] of the rows of W + s BA in fp32, outside of the graph.
fn row_lengths(weight: &Weight, LowRank { a, b, scale, .. }: &LowRank, layout: WeightLayout) -> Tensor<2> {
    let [a, b] = [a, b].map(|matrix| plain(matrix.clone().outside().narrow(DType::F32)));
    let weight = weight.clone().outside().narrow(DType::F32);
    lengths(weight, layout, product(b, a, DType::F32, Fp32Math::Exact) * *scale)
}

/// The same of a weight [outputs, inputs] and what is added to it.
fn lengths(weight: Tensor<2>, layout: WeightLayout, added: Tensor<2>) -> Tensor<2> {
    let weight = match layout {
        WeightLayout::OutIn => weight,
        WeightLayout::InOut => weight.transpose(),
    };
    let sum = weight + added;
    (sum.clone() * sum).sum_dim(1).sqrt().transpose()
}

/// The lengths of a weight's own rows, with which m begins.
pub fn first_magnitude(weight: Weight, layout: WeightLayout) -> Tensor<2> {
    let weight = weight.outside().narrow(DType::F32);
    let nothing = Tensor::zeros([1, 1], (&weight.device(), DType::F32));
    lengths(weight, layout, nothing)
}

/// z ⊙ m / n in z's type, computed in fp32.
fn scaled(z: Tensor<2>, magnitude: Weight, lengths: Tensor<2>) -> Tensor<2> {
    let Weight { stored, cast, packed } = magnitude;
    custom(OperatorName::Linear, [z.into_dispatch(), stored.into_dispatch()], |[z, stored]| {
        let [z, stored] = [z, stored].map(Tensor::<2>::from_dispatch);
        let (dtype, stored_dtype) = (z.dtype(), stored.dtype());
        let factor = Weight { stored, cast, packed }.narrow(DType::F32) / lengths.clone();
        let y = rounded(rounded(z.clone(), DType::F32) * factor.clone(), dtype);
        (y, move |g: Tensor<2>, [want_z, want_magnitude]: [bool; 2]| {
            let g = rounded(g, DType::F32);
            let dmagnitude = want_magnitude.then(|| {
                let sums = column_sums(&(g.clone() * rounded(z, DType::F32)), DType::F32);
                rounded(sums.unsqueeze_dim::<2>(0) / lengths, stored_dtype).into_dispatch()
            });
            [want_z.then(|| rounded(g * factor, dtype).into_dispatch()), dmagnitude]
        })
    })
}

/// What [`dora`] costs beside `lora`, what the low-rank adapter of the layer without a bias costs. With `dropout` the frozen
/// layer also multiplies what is dropped.
pub fn cost(
    setting: &Setting,
    [inputs, outputs]: [u64; 2],
    layout: WeightLayout,
    lora: Cost,
    dropout: bool,
) -> Cost {
    let [x, z] = [inputs, outputs].map(|columns| setting.activation(columns));
    let wide = setting.wide(outputs);
    let widened = if setting.element() < 4 { wide } else { 0 };
    // W, s BA, their sum and its squares, in fp32.
    let lengths = 4 * 4 * inputs * outputs;
    let gradients = outputs * setting.stored;
    let scaled = Cost {
        input: z,
        output: z,
        holds_input: true,
        kept: 2 * 4 * outputs,
        parameters: outputs,
        trained: Tensors::matrices(1, [1, outputs]),
        largest: outputs,
        weights: outputs * setting.stored,
        gradients,
        launches: [9, 6],
        ..Cost::new(
            Moment::workspace(lengths.max(z + 2 * widened)),
            Moment::gradients(gradients) + Moment::workspace(z + wide + 2 * widened),
        )
    }
    .named(OperatorName::Linear, setting);
    let cost = Cost::sequence(&[lora, scaled]);
    if !dropout {
        return cost;
    }
    let frozen = Setting { trained: Trained::NONE, ..*setting };
    let rest = dense::cost(&frozen, [inputs, outputs], false, layout);
    let [forward, passing] = [cost.forward, cost.passing].map(|moment| moment + Moment::workspace(2 * x + z));
    // The adapter holds x̃, which is no other operator's input.
    let (kept, backward) = (cost.kept + x, cost.backward + Moment::workspace(2 * x));
    let (flops, works) = (cost.flops + rest.flops, cost.works + rest.works);
    Cost { kept, forward, passing, backward, flops, works, holds_input: false, ..cost }
}

#[cfg(test)]
#[path = "dora_tests.rs"]
mod tests;

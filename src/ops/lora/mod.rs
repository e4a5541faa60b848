//! A linear layer with a low-rank adapter (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models") as one
//! operator with hand-written backward: y = xW + b + s (x̃Aᵀ)Bᵀ, with x̃ = x ⊙ m / (1 − p) under dropout, else x.
//!
//! W and b are frozen: they are no inputs of the graph, so that no backward can make a gradient of them. With h = x̃Aᵀ and
//! g the gradient of y:
//!
//! ```text
//! dB = s gᵀ h          dh = s g B          dA = dhᵀ x̃          dx = g Wᵀ + (dh A) ⊙ m / (1 − p)
//! ```
//!
//! Shapes: x [N, I], W [I, O] or as its layout says, A [r, I], B [O, r], h [N, r], y [N, O], for N tokens.
//!
//! | kept for backward | elements | for |
//! |---|---|---|
//! | x | N I, those of the norm before it: layers that read the same x keep it once | dA |
//! | s h | N r | dB; x̃Aᵀ again would be a product with x |
//! | W, A, B | the parameters; under autocast their casts; a W of 4-bit codes as these (QLoRA) | dx, dh |
//!
//! A W in 4 bits is turned into numbers for forward's product and again for backward's, and these are freed afterwards. No
//! activation is kept for W, which is frozen, nor for the mask, which is drawn again from its seed ([`Dropout`]). On CUDA
//! kernels of our own multiply by A and B and draw the mask as they go, for all adapted layers of one input at once
//! ([`lora_side_by_side`]).

mod cost;
pub mod dora;
pub mod low_rank;
mod many_tokens;
mod side_by_side;

use burn::tensor::{DType, Tensor};

pub use cost::cost;
pub use many_tokens::are_many;
pub use side_by_side::{LoraLayer, lies_side_by_side, lora_side_by_side};

use super::backend::on_cuda;
use super::dense::{Arithmetic, Layer, Weight, WeightLayout};
use super::dropout::Dropout;
use super::function::{Earlier, custom_adding};
use super::name::OperatorName;
use super::product::{plain, product, product_add, product_bias, transpose};
use super::rounded;

/// What is added to a linear layer.
pub struct LowRank {
    /// [r, inputs]
    pub a: Weight,
    /// [outputs, r]
    pub b: Weight,
    /// s
    pub scale: f64,
    /// The dropout of A's input.
    pub dropout: Option<Dropout>,
}

/// y [tokens, outputs] in the compute type, that of the autocast region around the call or else that of the layer.
pub fn lora(x: Tensor<2>, layer: Layer, low_rank: LowRank) -> Tensor<2> {
    let alone = [LoraLayer { layer, low_rank: Some(low_rank) }];
    if lies_side_by_side(&x, &alone) {
        return lora_side_by_side(x, alone.into());
    }
    let [LoraLayer { layer, low_rank }] = alone;
    composed(x, layer, low_rank.expect("given above"))
}

/// The same of products and element-wise operators, on any device.
fn composed(x: Tensor<2>, layer: Layer, low_rank: LowRank) -> Tensor<2> {
    let LowRank { a, b, scale, dropout } = low_rank;
    let Layer { weight, bias, layout, arithmetic } = layer;
    let arithmetic = arithmetic.in_region();
    let Arithmetic { dtype, math } = arithmetic;
    let weight = weight.outside().kept(dtype);
    let bias = bias.map(|bias| bias.outside().narrow(dtype));
    let inputs = [x, a.stored, b.stored].map(Tensor::into_dispatch);
    custom_adding(OperatorName::Linear, inputs, |inputs, _| {
        let inputs = inputs.map(Tensor::<2>::from_dispatch);
        let types = inputs.each_ref().map(Tensor::dtype);
        let [x, stored_a, stored_b] = inputs;
        let x = rounded(x, dtype);
        let [a, b] = [(stored_a, a.cast), (stored_b, b.cast)]
            .map(|(stored, cast)| Weight::new(stored, cast).narrow(dtype));
        let h = product(plain(dropped(x.clone(), dropout)), transpose(a.clone()), dtype, math) * scale;
        let (lhs, rhs) = (plain(x.clone()), layout.weight(weight.clone().narrow(dtype)));
        let y = product_bias(lhs, rhs, bias, None, dtype, math);
        let y = product_add(Some(y), plain(h.clone()), transpose(b.clone()), dtype, math);
        let kept = Kept { x, h, weight, a, b, scale, dropout, layout, arithmetic };
        (y, move |g: Tensor<2>, wanted, earlier: &mut Earlier<'_>| {
            kept.backward(rounded(g, dtype), wanted, types, earlier).map(|g| g.map(Tensor::into_dispatch))
        })
    })
}

/// x̃
fn dropped(x: Tensor<2>, dropout: Option<Dropout>) -> Tensor<2> {
    match dropout {
        None => x,
        Some(dropout) => dropout.apply(x),
    }
}

/// What one call keeps for backward, in the compute type.
struct Kept {
    x: Tensor<2>,
    /// s x̃Aᵀ
    h: Tensor<2>,
    /// In the compute type, or packed.
    weight: Weight,
    a: Tensor<2>,
    b: Tensor<2>,
    scale: f64,
    dropout: Option<Dropout>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
}

impl Kept {
    /// dx, dA and dB in these types.
    fn backward(
        self,
        g: Tensor<2>,
        [want_x, want_a, want_b]: [bool; 3],
        [x_dtype, a_dtype, b_dtype]: [DType; 3],
        earlier: &mut Earlier<'_>,
    ) -> [Option<Tensor<2>>; 3] {
        let Self { x, h, weight, a, b, scale, dropout, layout, arithmetic: Arithmetic { dtype, math } } =
            self;
        let db = want_b.then(|| product(transpose(g.clone()), plain(h), b_dtype, math));
        let dh = product(plain(g.clone()), plain(b), dtype, math) * scale;
        let da = want_a.then(|| product(transpose(dh.clone()), plain(dropped(x, dropout)), a_dtype, math));
        let dx = want_x.then(|| {
            // Of layers that read the same x.
            let earlier = (x_dtype == dtype && on_cuda(&g)).then(|| earlier(0)).flatten();
            let (lhs, rhs) = (plain(g), layout.transposed(weight.narrow(dtype)));
            let dx = product_add(earlier.map(Tensor::from_dispatch), lhs, rhs, dtype, math);
            let dx = match dropout {
                None => product_add(Some(dx), plain(dh), plain(a), dtype, math),
                Some(dropout) => dx + dropout.apply(product(plain(dh), plain(a), dtype, math)),
            };
            rounded(dx, x_dtype)
        });
        [dx, da, db]
    }
}

#[cfg(test)]
mod tests;

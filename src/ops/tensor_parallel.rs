//! The two operators of tensor parallelism, f and g of Shoeybi et al. 2019 ("Megatron-LM: Training Multi-Billion
//! Parameter Language Models Using Model Parallelism").
//!
//! Rank r of N holds a part of a layer's weight. Divided by outputs, W = [W₁ … W_N], it has y_r = x W_r of the x that all
//! ranks have. Divided by inputs, x = [x₁ … x_N] and the rows of W, it has x_r W_r, a part of y = Σ_r x_r W_r. Every rank
//! computes the same loss from the y that it gets, and the gradient dy of its own copy. From the output inwards:
//!
//! ```text
//! sum_over_ranks:   y = Σ_r y_r + b       dy_r = dy     db = Σ_tokens dy
//! copy_to_ranks:    x_r = x               dx = Σ_r dx_r       each x_r is read by another part of the layer
//! ```
//!
//! So each is the other's transpose: what is summed in forward is copied in backward, and the other way round. Two layers
//! with the one between them, x → x W_r → f(x W_r) V_r → Σ_r, take one sum in each direction. b is added once, after the
//! sum. Nothing is kept. Sums are in fp32, by sockets in the order of ranks: every rank gets the same bits.

use burn::tensor::{DType, Tensor};

use super::cost::{Cost, Moment, Sent, Setting};
use super::dense::{Weight, column_sums};
use super::function::custom;
use super::name::OperatorName;
use super::parameters::flat;
use super::{rounded, wide};
use crate::world::ProcessGroup;

/// x [tokens, columns], which every rank reads with its part of a layer's outputs.
///
/// # Panics
/// In backward, with a [`Failure`](crate::world::Failure) where another rank does not come.
pub fn copy_to_ranks(x: Tensor<2>, ranks: &ProcessGroup) -> Tensor<2> {
    if ranks.size() == 1 {
        return x;
    }
    let ranks = ranks.clone();
    custom(OperatorName::AllReduce, [x.into_dispatch()], |[x]| {
        let backward = move |g: Tensor<2>, _: [bool; 1]| {
            [Some(summed("gradients of a copy", g, &ranks).into_dispatch())]
        };
        (Tensor::from_dispatch(x), backward)
    })
}

/// Σ_r y_r + b in the type of y, [tokens, columns], from each rank's y_r; b is [columns].
///
/// # Panics
/// With a [`Failure`](crate::world::Failure) where another rank does not come.
pub fn sum_over_ranks(y: Tensor<2>, bias: Option<Weight<1>>, ranks: &ProcessGroup) -> Tensor<2> {
    const NAME: &str = "parts of a result";
    if ranks.size() == 1 && bias.is_none() {
        return y;
    }
    let Some(bias) = bias else {
        return custom(OperatorName::AllReduce, [y.into_dispatch()], |[y]| {
            let y = summed(NAME, Tensor::from_dispatch(y), ranks);
            (y, |g: Tensor<2>, _: [bool; 1]| [Some(g.into_dispatch())])
        });
    };
    let Weight { stored, cast, packed } = bias;
    custom(OperatorName::AllReduce, [y.into_dispatch(), stored.into_dispatch()], |[y, stored]| {
        let (y, stored) = (Tensor::<2>::from_dispatch(y), Tensor::<1>::from_dispatch(stored));
        let (dtype, stored_dtype) = (y.dtype(), stored.dtype());
        let bias = wide(Weight { stored, cast, packed }.narrow(dtype));
        let y = rounded(rounded(summed(NAME, y, ranks), DType::F32) + bias.unsqueeze_dim(0), dtype);
        let backward = move |g: Tensor<2>, [want_y, want_bias]: [bool; 2]| {
            let dbias = want_bias.then(|| column_sums(&g, stored_dtype).into_dispatch());
            [want_y.then(|| g.into_dispatch()), dbias]
        };
        (y, backward)
    })
}

/// What [`copy_to_ranks`] of [tokens, columns] costs; nothing where there is one rank.
pub fn copy_cost(setting: &Setting, columns: u64) -> Vec<Cost> {
    let (x, sum, sent) = summed_cost(setting, columns, setting.element());
    let sent = Sent { backward: sent, ..Sent::default() };
    let cost = Cost { input: x, output: x, sent, ..Cost::new(Moment::default(), sum) };
    if setting.tensor > 1 { vec![cost] } else { Vec::new() }
}

/// Bytes that are sent for [`copy_to_ranks`] of a parameter of so many elements.
pub fn sent_of_copy(setting: &Setting, elements: u64) -> Sent {
    let sent = sent_bytes(setting, setting.stored);
    Sent { backward: Setting::sent_of_sum(elements, setting.tensor) * sent / 4, ..Sent::default() }
}

/// What [`sum_over_ranks`] of [tokens, columns], of `element` bytes each, costs; nothing where there is one rank.
pub fn sum_cost(setting: &Setting, columns: u64, element: u64) -> Vec<Cost> {
    let (x, sum, sent) = summed_cost(setting, columns, element);
    let sent = Sent { forward: sent, ..Sent::default() };
    let cost = Cost { input: x, output: x, sent, ..Cost::new(sum, Moment::default()) };
    if setting.tensor > 1 { vec![cost] } else { Vec::new() }
}

/// Bytes of x; what its sum takes for a moment, which in fp32 takes the place of the part and else is made anew; and what
/// is sent for it.
fn summed_cost(setting: &Setting, columns: u64, element: u64) -> (u64, Moment, u64) {
    let numbers = setting.tokens() * columns;
    let sent = sent_bytes(setting, element);
    let widened = if element == sent { 0 } else { 4 * numbers };
    let sum = Moment::workspace(widened + element * numbers);
    (element * numbers, sum, Setting::sent_of_sum(numbers, setting.tensor) * sent / 4)
}

/// Bytes of each number that is sent: NCCL sums those of two ranks as they are.
fn sent_bytes(setting: &Setting, element: u64) -> u64 {
    if setting.on_cuda() && setting.tensor == 2 { element } else { 4 }
}

/// Σ_r x_r in the type of x. Between GPUs the host waits for nothing.
fn summed(name: &str, x: Tensor<2>, ranks: &ProcessGroup) -> Tensor<2> {
    let (dims, dtype) = (x.dims(), x.dtype());
    let x = if ranks.sums_narrow() { x } else { rounded(x, DType::F32) };
    let sums = ranks.sum(name, flat(x.into_dispatch())).wait().expect("every rank gets it");
    rounded(sums, dtype).reshape(dims)
}

#[cfg(test)]
#[path = "tensor_parallel_tests.rs"]
mod tests;

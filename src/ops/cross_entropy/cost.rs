//! What the language-model head with its loss costs.
//!
//! | | kept besides h and the weight's cast |
//! |---|---|
//! | custom, in chunks of tokens | dh and dW in fp32, and not the cast; dW in bf16 where one chunk has all tokens |
//! | custom, in chunks of the vocabulary | log Σ exp of each token; on the CPU also the logits, where one chunk has them all: tokens vocab |
//! | plain | the logarithm of the softmax, in fp32: tokens vocab; as much for the tanh of capped logits |

use super::tokens::{Chunks, Sums};
use super::{Logits, chunk};
use crate::common::Compute;
use crate::ops::Operator;
use crate::ops::cost::{Cost, Flops, Moment, Sent, Setting, Tensors};
use crate::ops::name::OperatorName;

/// From h [tokens, hidden] by a weight [vocab, hidden], which is the embedding's where it is `tied`, to the loss.
pub fn cost(setting: &Setting, [vocab, hidden]: [u64; 2], tied: bool, form: Logits) -> Cost {
    let weight = setting.weight([vocab, hidden]);
    let custom = setting.ops.loss == Operator::Custom;
    let chunks = chunks_of_tokens(setting, [vocab, hidden]);
    let (tokens, h) = (setting.tokens(), setting.activation(hidden));
    let (parameters, weights) = if tied { (0, 0) } else { (weight.elements, weight.bytes) };
    let is_trained = setting.trained.weights;
    let (trained, gradient) = if is_trained { (parameters, weight.gradient) } else { (0, 0) };
    let forward_flops = 2.0 * tokens as f64 * weight.elements as f64;
    // Of a chunk of the vocabulary, backward computes logits again from the cast.
    let cast_stays = if chunks.is_some() { 0 } else { weight.cast };
    let [kept, forward, backward] = match (setting.ops.loss, setting.on_cuda()) {
        (Operator::Plain, _) => {
            // The logits and the logarithm of their softmax, in backward with their gradients.
            let logits = setting.device.padded([tokens, vocab], 4);
            // And of capped ones the tanh.
            let tanh = if form.soft_cap.is_some() { logits } else { 0 };
            [logits + tanh, 2 * logits + tanh, 3 * logits + tanh].map(Moment::workspace)
        }
        (Operator::Custom, true) => match chunks {
            Some(chunks) => of_tokens(setting, [vocab, hidden], chunks),
            None => on_cuda(setting, [vocab, hidden], gradient),
        },
        (Operator::Custom, false) => on_cpu(setting, [vocab, hidden], gradient),
    };
    // Without a gradient to compute the vocabulary is walked, whatever the sizes.
    let passing = match chunks {
        Some(_) => on_cuda(setting, [vocab, hidden], 0)[1],
        None => forward,
    };
    let keeps_logits = !setting.on_cuda() && chunk(tokens as usize, vocab as usize) as u64 >= vocab;
    let recompute = if custom && chunks.is_none() && !keeps_logits { forward_flops } else { 0.0 };
    let flops = if is_trained { Flops::of_products(forward_flops) } else { Flops::of_frozen(forward_flops) };
    let launches = match chunks {
        Some(chunks) => of_token_chunks(tokens, chunks),
        None => {
            // The logits and what is looked at, and again with their gradient and two products.
            let walks = vocab.div_ceil(chunk(tokens as usize, vocab as usize) as u64) as u32;
            [2 * walks + FINISH, 4 * walks]
        }
    };
    Cost {
        input: h,
        holds_input: true,
        launches,
        kept: cast_stays + kept.workspace + kept.gradients,
        parameters,
        trained: Tensors::matrices(u64::from(trained > 0), [vocab, hidden]),
        largest: trained,
        weights,
        gradients: gradient,
        casts: weight.kept_cast,
        flops: Flops { recompute, ..flops },
        // Three numbers a token to each of the other ranks.
        sent: Sent { forward: (setting.tensor - 1) * 3 * setting.wide(1), ..Sent::default() },
        passing: Moment::workspace(weight.cast) + passing,
        ..Cost::new(Moment::workspace(weight.cast) + forward, Moment::workspace(cast_stays) + backward)
    }
    .named(OperatorName::Loss, setting)
}

/// How the tokens divide where they are taken in chunks.
fn chunks_of_tokens(setting: &Setting, sizes: [u64; 2]) -> Option<Chunks> {
    let is_trained = setting.trained.weights;
    let narrow = is_trained && setting.stored == 2 && setting.compute == Compute::Bf16;
    let dweight = Sums { narrow, ample: is_trained && setting.ample };
    let can = setting.ops.loss == Operator::Custom
        && setting.on_cuda()
        && setting.element() == 2
        && setting.tensor == 1;
    can.then(|| Chunks::of(setting.tokens() as usize, sizes.map(|size| size as usize), dweight))?
}

/// Whether the weight's gradient is made at once in its type.
#[cfg(test)]
pub fn is_at_once(setting: &Setting, sizes: [u64; 2]) -> bool {
    chunks_of_tokens(setting, sizes).is_some_and(|chunks| chunks.at_once)
}

/// Kernels that begin, and make the loss of all from the losses of tokens.
const FINISH: u32 = 6;

/// In forward a product and the losses of each chunk of logits, and two products of each chunk of gradients; in backward
/// dh and dW are scaled.
fn of_token_chunks(tokens: u64, chunks: Chunks) -> [u32; 2] {
    let count = |of: usize| tokens.div_ceil(of as u64) as u32;
    [2 * count(chunks.logits) + 2 * count(chunks.gradients) + FINISH, 2]
}

/// What is kept, and the highest moments, without the weight's cast. At a time there are the logits of a chunk in fp32
/// and, in backward, their gradients: in their place in fp32, else in addition.
fn on_cuda(setting: &Setting, [vocab, hidden]: [u64; 2], dweight: u64) -> [Moment; 3] {
    let Sizes { logits, dh, dh_so_far, statistics, .. } = Sizes::new(setting, [vocab, hidden]);
    let dlogits = logits * setting.element();
    let (narrow_dlogits, narrow_dh) = match setting.element() {
        4 => (0, 0),
        _ => (dlogits, setting.activation(hidden)),
    };
    let backward = [
        Moment::gradients(dweight) + Moment::workspace(4 * logits + narrow_dlogits + dh_so_far),
        Moment::gradients(dweight) + Moment::workspace(dlogits + dh),
        Moment::gradients(dweight) + Moment::workspace(dh + narrow_dh),
    ];
    let kept = Moment::workspace(statistics);
    [kept, Moment::workspace(3 * statistics + 4 * logits), kept + Moment::highest(backward)]
}

/// The same in chunks of tokens. Forward has the losses, dh and dW, and a chunk, which has no logits any more where dW is
/// made at once; backward makes dh and then dW in their types.
fn of_tokens(setting: &Setting, [vocab, hidden]: [u64; 2], chunks: Chunks) -> [Moment; 3] {
    let weight = if setting.trained.weights { vocab * hidden } else { 0 };
    let element = if chunks.at_once { setting.stored } else { 4 };
    let dh = Moment::workspace(setting.wide(hidden) + setting.wide(1));
    let dweight = Moment::gradients(element * weight);
    let sizes = [vocab, hidden].map(|size| size as usize);
    let [logits, dlogits] = chunks.bytes(sizes, setting.element() as usize).map(|bytes| bytes as u64);
    let forward = match chunks.at_once {
        true => Moment::highest([Moment::workspace(logits + dlogits), Moment::workspace(dlogits) + dweight]),
        false => dweight + Moment::workspace(logits + dlogits),
    };
    // In place where the types are the same.
    let stored = if setting.stored == element { 0 } else { weight * setting.stored };
    let (dh_kept, narrow_dh) = (setting.wide(hidden), Moment::workspace(setting.activation(hidden)));
    let kept = Moment::workspace(dh_kept) + dweight;
    let backward = [kept + narrow_dh, narrow_dh + dweight + Moment::gradients(stored)];
    [kept, dh + forward, Moment::highest(backward)]
}

/// The same on the CPU, which keeps the logits for backward where one chunk has them all. Operands of fewer bits are
/// widened.
fn on_cpu(setting: &Setting, [vocab, hidden]: [u64; 2], dweight: u64) -> [Moment; 3] {
    let Sizes { columns, logits, dh, dh_so_far, statistics } = Sizes::new(setting, [vocab, hidden]);
    let (h, chunk) = (setting.tokens() * hidden, columns * hidden);
    let (of_tokens, gradients) = (Moment::workspace(statistics), Moment::gradients(dweight));
    let all = if columns < vocab { 0 } else { 4 * logits };
    // What is known of each token so far, the labels, and the results.
    let forward = 9 * statistics + 4 * logits;
    if setting.element() == 4 {
        let backward = of_tokens + gradients + Moment::workspace(4 * logits + dh);
        return [Moment::workspace(statistics + all), Moment::workspace(forward), backward];
    }
    let widened = 4 * (h + chunk);
    // dlogits and their product with h that becomes a part of dW. In bf16 dlogits are also copied in the order of their
    // transpose, both operands are in fp32, and the part is made and moved.
    let product = match (setting.compute, setting.stored > setting.element()) {
        // Their product with the chunk of the weight alone.
        _ if dweight == 0 => 4 * logits + widened,
        (Compute::Bf16, false) => 8 * logits + 4 * h + 8 * chunk,
        (Compute::Fp16, false) => 2 * logits + 4 * chunk,
        _ => 6 * logits + 4 * h,
    };
    let backward = [
        4 * logits + dh_so_far + if columns < vocab { widened } else { 0 },
        // dlogits in two types, and then the weight in fp32.
        6 * logits + dh_so_far,
        6 * logits + 4 * chunk + dh,
        product + dh,
    ];
    let highest = backward.into_iter().max().unwrap_or(0);
    let forward = Moment::workspace(forward + widened);
    [Moment::workspace(statistics + all), forward, of_tokens + gradients + Moment::workspace(highest)]
}

/// Sizes of the chunks of the vocabulary.
struct Sizes {
    /// Entries of a chunk, and its logits.
    columns: u64,
    logits: u64,
    /// Bytes of dh, [tokens, hidden] in fp32, and of what there is of it while a chunk's logits are made.
    dh: u64,
    dh_so_far: u64,
    /// Bytes of one number a token.
    statistics: u64,
}

impl Sizes {
    fn new(setting: &Setting, [vocab, hidden]: [u64; 2]) -> Self {
        let tokens = setting.tokens();
        let columns = (chunk(tokens as usize, vocab as usize) as u64).min(vocab);
        let dh = setting.wide(hidden);
        let dh_so_far = if columns < vocab { dh } else { 0 };
        Self { columns, logits: tokens * columns, dh, dh_so_far, statistics: setting.wide(1) }
    }
}

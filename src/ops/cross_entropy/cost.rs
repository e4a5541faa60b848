//! What the language-model head with its loss costs.
//!
//! | | kept narrow_dlogitss h and the weight's cast |
//! |---|---|
//! | custom | log Σ exp of each token |
//! | plain | the logarithm of the softmax, in fp32: tokens vocab |

use super::chunk;
use crate::ops::Operator;
use crate::ops::cost::{Cost, Flops, Moment, Setting};
use crate::ops::name::OperatorName;
use crate::words::Compute;

/// From h [tokens, hidden] by a weight [vocab, hidden], which is the embedding's where it is `tied`, to the loss.
pub fn cost(setting: &Setting, [vocab, hidden]: [u64; 2], tied: bool) -> Cost {
    let weight = setting.weight([vocab, hidden]);
    let (tokens, h) = (setting.tokens(), setting.activation(hidden));
    let (parameters, weights) = if tied { (0, 0) } else { (weight.elements, weight.bytes) };
    let is_trained = setting.trained.weights;
    let (trained, gradient) = if is_trained { (parameters, weight.gradient) } else { (0, 0) };
    let forward_flops = 2.0 * tokens as f64 * weight.elements as f64;
    let weight_cast = Moment::workspace(weight.cast);
    let [kept, forward, backward] = match (setting.ops.loss, setting.on_cuda()) {
        (Operator::Plain, _) => {
            // The logits and the logarithm of their softmax, in backward with their gradients.
            let logits = setting.device.padded([tokens, vocab], 4);
            [logits, 2 * logits, 3 * logits].map(Moment::workspace)
        }
        (Operator::Custom, true) => on_cuda(setting, [vocab, hidden], gradient),
        (Operator::Custom, false) => on_cpu(setting, [vocab, hidden], gradient),
    };
    let recompute = if setting.ops.loss == Operator::Custom { forward_flops } else { 0.0 };
    let flops = if is_trained { Flops::of_products(forward_flops) } else { Flops::of_frozen(forward_flops) };
    Cost {
        input: h,
        holds_input: true,
        kept: weight.cast + kept.workspace,
        parameters,
        trained,
        largest: trained,
        weights,
        gradients: gradient,
        casts: weight.kept_cast,
        flops: Flops { recompute, ..flops },
        ..Cost::new(weight_cast + forward, weight_cast + backward)
    }
    .named(OperatorName::Loss, setting)
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
    // dW is made with padded rows, and packed when the first chunk's part is written into it.
    let made = if dweight > 0 { setting.device.padded([vocab, hidden], setting.stored) } else { 0 };
    let padded = if made == dweight { 0 } else { made };
    let backward = [
        Moment::gradients(made) + Moment::workspace(4 * logits + narrow_dlogits + dh_so_far),
        Moment::gradients(dweight) + Moment::workspace(padded + dlogits + dh),
        Moment::gradients(dweight) + Moment::workspace(dh + narrow_dh),
    ];
    let kept = Moment::workspace(statistics);
    [kept, Moment::workspace(3 * statistics + 4 * logits), kept + Moment::highest(backward)]
}

/// The same on the CPU, where logits exist twice: as they are made and moved, and then with their exponentials. Operands
/// of fewer bits are widened.
fn on_cpu(setting: &Setting, [vocab, hidden]: [u64; 2], dweight: u64) -> [Moment; 3] {
    let Sizes { columns, logits, dh, dh_so_far, statistics } = Sizes::new(setting, [vocab, hidden]);
    let (h, chunk) = (setting.tokens() * hidden, columns * hidden);
    let widened = if setting.element() < 4 { 4 * (h + chunk) } else { 0 };
    // dlogits and their product with h, made and moved, that becomes a part of dW; in bf16 dlogits are also copied in
    // the order of their transpose, and both operands are in fp32.
    let product = match (setting.compute, setting.stored > setting.element()) {
        // Their product with the chunk of the weight alone.
        _ if dweight == 0 => 4 * logits + widened,
        (Compute::Bf16, false) => 8 * logits + 4 * h + 8 * chunk,
        (Compute::Fp16, false) => 2 * logits + 4 * chunk,
        _ => 4 * logits + 8 * chunk,
    };
    let backward = [
        // dW as it is made and moved.
        dweight,
        8 * logits + dh_so_far + widened,
        product + dh,
    ];
    let highest = backward.into_iter().max().unwrap_or(0);
    let kept = Moment::workspace(statistics);
    let forward = Moment::workspace(3 * statistics + 8 * logits + widened);
    [kept, forward, kept + Moment::gradients(dweight) + Moment::workspace(highest)]
}

/// Of the chunks of the vocabulary.
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

//! What the language-model head with its loss costs.
//!
//! | | kept besides h and the weight's cast |
//! |---|---|
//! | custom | log Σ exp of each token |
//! | plain | the logarithm of the softmax, in fp32: tokens vocab |

use super::chunk;
use crate::ops::Operator;
use crate::ops::cost::{Cost, Flops, Moment, Setting};
use crate::words::Compute;

/// From h [tokens, hidden] by a weight [vocab, hidden], which is the embedding's where it is `tied`, to the loss.
pub fn cost(setting: &Setting, [vocab, hidden]: [u64; 2], tied: bool) -> Cost {
    let weight = setting.weight([vocab, hidden]);
    let (tokens, h) = (setting.tokens(), setting.activation(hidden));
    let (parameters, weights) = if tied { (0, 0) } else { (weight.elements, weight.bytes) };
    let forward_flops = 2.0 * tokens as f64 * weight.elements as f64;
    let flops = Flops::of_products(forward_flops);
    let whole = Cost {
        input: h,
        holds_input: true,
        parameters,
        largest: parameters,
        weights,
        gradients: weight.gradient,
        casts: weight.kept_cast,
        flops,
        ..Cost::default()
    };
    let narrow = if setting.element() < 4 { setting.element() } else { 0 };
    let wide = setting.stored > setting.element();
    let statistics = setting.wide(1);
    if setting.ops.loss == Operator::Plain {
        let logits = setting.device.padded([tokens, vocab], 4);
        let kept = weight.cast + logits;
        let forward = Moment::workspace(kept + logits);
        let backward = Moment::workspace(kept + 2 * logits);
        return Cost { kept, forward, passing: forward, backward, ..whole };
    }
    let columns = (chunk(tokens as usize, vocab as usize) as u64).min(vocab);
    let (logits, dh) = (tokens * columns, setting.wide(hidden));
    let kept = weight.cast + statistics;
    let moment =
        |gradients, workspace| Moment { gradients, workspace: workspace + kept, ..Moment::default() };
    let several = if columns < vocab { dh } else { 0 };
    let (forward, backward) = if setting.on_cuda() {
        // dW is made with padded rows, and packed when the first chunk's is written into it.
        let made = setting.device.padded([vocab, hidden], setting.stored);
        let padded = if made == weight.gradient { 0 } else { made };
        let dlogits = logits * setting.element();
        let backward = [
            // In fp32 the gradients of logits take their place.
            moment(made.max(weight.gradient), 4 * logits + logits * narrow + several),
            moment(weight.gradient, padded + dlogits + dh),
            moment(weight.gradient, dh + if narrow > 0 { h } else { 0 }),
        ];
        (4 * logits, Moment::highest(backward))
    } else {
        // Logits as they are made and moved, and then with their exponentials; operands in fp32.
        let chunk = columns * hidden;
        let widened = if narrow > 0 { 4 * (tokens * hidden + chunk) } else { 0 };
        // The chunk's product that becomes a part of dW, made and moved. In bf16 it copies what is transposed and has
        // both operands in fp32.
        let dchunk = match (setting.compute, wide) {
            (Compute::Bf16, false) => 8 * logits + 4 * tokens * hidden + 8 * chunk,
            (Compute::Fp16, false) => 2 * logits + 4 * chunk,
            _ => 4 * logits + 8 * chunk,
        };
        let backward = [
            moment(weight.gradient, weight.gradient),
            moment(weight.gradient, 8 * logits + several + widened),
            moment(weight.gradient, dchunk + dh),
        ];
        (8 * logits + widened, Moment::highest(backward))
    };
    let forward = Moment::workspace(weight.cast + 3 * statistics + forward);
    Cost {
        kept,
        forward,
        passing: forward,
        backward,
        flops: Flops { recompute: forward_flops, ..flops },
        ..whole
    }
}

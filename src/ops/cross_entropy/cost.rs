//! What the language-model head with its loss costs.
//!
//! | | kept besides h and the weight's cast |
//! |---|---|
//! | custom | log Σ exp of each token |
//! | plain | the logits in the compute type and in fp32, and the logarithm of their softmax |

use super::chunk;
use crate::ops::Operator;
use crate::ops::cost::{Cost, Flops, Moment, Setting};

/// From h [tokens, hidden] by a weight [vocab, hidden], which is the embedding's where it is `tied`, to the loss.
pub fn cost(setting: &Setting, [vocab, hidden]: [u64; 2], tied: bool) -> Cost {
    let weight = setting.weight([vocab, hidden]);
    let (tokens, h) = (setting.tokens(), setting.activation(hidden));
    let (parameters, weights) = if tied { (0, 0) } else { (weight.elements, weight.bytes) };
    let forward_flops = 2.0 * (tokens * weight.elements) as f64;
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
        let logits = tokens * vocab;
        let kept = weight.cast + logits * (8 + narrow);
        let forward = Moment::workspace(kept + statistics);
        let backward = Moment::workspace(kept + logits * 8 + h);
        return Cost { kept, forward, passing: forward, backward, ..whole };
    }
    let columns = (chunk(tokens as usize, vocab as usize) as u64).min(vocab);
    let (logits, dh) = (tokens * columns, setting.wide(hidden));
    let kept = weight.cast + statistics;
    let forward = Moment::workspace(
        weight.cast
            + 3 * statistics
            + match setting.on_cuda() {
                true => 4 * logits,
                false => 8 * logits + setting.product(tokens * hidden, columns * hidden, logits, true),
            },
    );
    // dW is made with padded rows, and packed when the first chunk's is written into it.
    let made = setting.device.padded([vocab, hidden], setting.stored);
    let packs = if made == weight.gradient { 0 } else { made };
    let moment = |gradients, workspace| Moment { gradients, workspace: workspace + kept, ..Moment::default() };
    let several = if columns < vocab { dh } else { 0 };
    let widened = match setting.on_cuda() {
        true => 0,
        false => 4 * logits + setting.product(tokens * hidden, columns * hidden, logits, wide),
    };
    let backward = [
        moment(made.max(weight.gradient), logits * (4 + narrow) + several + widened),
        moment(weight.gradient, packs + logits * narrow.max(if narrow == 0 { 4 } else { 0 }) + dh),
        moment(weight.gradient, dh + if narrow > 0 { h } else { 0 }),
    ];
    Cost {
        kept,
        forward,
        passing: forward,
        backward: Moment::highest(backward),
        flops: Flops { recompute: forward_flops, ..flops },
        ..whole
    }
}

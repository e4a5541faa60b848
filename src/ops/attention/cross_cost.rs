//! What attention over keys of any sequence costs: kept are Q, K and V, split into heads; a block of queries has its scores,
//! and the bias of those. The composed form keeps the probabilities, and what their softmax keeps, in fp32.

use super::blocks::block;
use super::{HeadSizes, Way};
use crate::ops::cost::{Cost, Flops, Moment, Setting};
use crate::ops::name::OperatorName;

/// Which keys the queries of a setting see: so many in each sequence, those that are not after a query alone where it is
/// `causal`; and whether a bias of distances is added to the scores.
#[derive(Clone, Copy, Debug)]
pub struct Over {
    pub keys: u64,
    pub causal: bool,
    pub biased: bool,
}

/// From q, k and v in three tensors to the heads' results side by side. Of a causal one half of the square are the model's
/// operations, though all of it is computed.
pub fn cost(setting: &Setting, sizes: HeadSizes, over: Over) -> Cost {
    let HeadSizes { heads, kv_heads, head_dim } = sizes;
    let (batch, sequence, keys) = (setting.batch, setting.sequence, over.keys);
    let o = setting.activation(heads * head_dim);
    let of_keys = batch * keys * 2 * kv_heads * head_dim;
    let (kv, qkv) = (of_keys * setting.element(), o + of_keys * setting.element());
    let all = 2.0 * setting.squares * (keys as f64 / sequence as f64) * (heads * head_dim) as f64;
    let product = if over.causal { all / 2.0 } else { all };
    let is_plain = Way::from(&setting.ops) == Way::Plain;
    let queries = match is_plain {
        true => sequence,
        false => block(batch as usize, heads as usize, sequence as usize, keys as usize, None) as u64,
    };
    let queries = queries.min(sequence);
    let scores = batch * heads * queries * keys;
    let narrow = if setting.element() < 4 { setting.element() } else { 0 };
    // In fp32: picked and in the order of heads; in backward its gradient in reverse, with zeros, and by distance.
    let of_bias = if over.biased { 4 * heads * queries * keys } else { 0 };
    let widened = setting.product(o / setting.element(), of_keys / 2, 0, true);
    let (kept, forward, backward) = match is_plain {
        true => {
            let kept = scores * (8 + setting.element());
            (kept, kept + scores * 4 + 2 * of_bias, scores * 16 + of_bias)
        }
        false => {
            let of_gradient = scores * 8 + of_bias * (1 + 2 + 2 * (queries + keys) / keys);
            let backward = (scores * (12 + 2 * narrow)).max(if over.biased { of_gradient } else { 0 });
            (0, scores * (8 + narrow) + 2 * of_bias + widened, backward + widened)
        }
    };
    let gradients = o + 4 * of_keys;
    let moments = [2 * qkv, qkv + kept + o + forward, qkv + kept + 2 * o].map(Moment::workspace);
    let passing = Moment::highest(moments).less(qkv);
    let backward = [qkv + o, qkv + gradients + backward, gradients + kv].map(|bytes| bytes + kept);
    let blocks = sequence.div_ceil(queries) as u32;
    Cost {
        input: qkv,
        output: o,
        holds_input: false,
        kept: qkv + kept,
        forward: passing,
        passing,
        backward: Moment::highest(backward.map(Moment::workspace)),
        flops: Flops { recompute: if is_plain { 0.0 } else { product }, ..Flops::of_products(2.0 * product) },
        launches: [4 + 10 * blocks, 7 + 20 * blocks],
        ..Cost::default()
    }
    .named(OperatorName::Attention, setting)
}

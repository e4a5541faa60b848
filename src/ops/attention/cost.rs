//! What causal self-attention costs.
//!
//! | | kept | elements |
//! |---|---|---|
//! | custom | Q, K and V, split into heads | tokens (heads + 2 kv_heads) head_dim |
//! | custom, CPU in fp32 | Q, K and V as they are, and a number of each query of a head | + tokens heads |
//! | plain | the same; the scores twice and the probabilities, in fp32, and these in the compute type | + 3 or 4 batch heads sequence² |

use super::blocks::largest_block;
use crate::ops::Operator;
use crate::ops::cost::{Cost, Flops, Moment, Setting};

/// Query heads, key heads, and the numbers of one.
#[derive(Clone, Copy, Debug)]
pub struct HeadSizes {
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
}

/// From q, k and v, in one tensor or in three, to the heads' results side by side.
pub fn cost(setting: &Setting, sizes: HeadSizes) -> Cost {
    let HeadSizes { heads, kv_heads, head_dim } = sizes;
    let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
    let [o, qkv] = [queries, queries + 2 * keys].map(|columns| setting.activation(columns));
    // The products of the causal half: QKᵀ and PV, of which backward computes the first again.
    let product = setting.squares * queries as f64;
    if setting.ops.attention == Operator::Custom && !setting.on_cuda() && setting.element() == 4 {
        // Heads are read and written where they lie; log Σ exp of each query's scores is kept.
        let kept = setting.wide(heads);
        let forward = Moment::workspace(o + kept);
        return Cost {
            input: qkv,
            output: o,
            holds_input: true,
            kept,
            forward,
            passing: forward,
            backward: Moment::workspace(qkv + kept),
            flops: Flops { recompute: product, ..Flops::of_products(2.0 * product) },
            ..Cost::default()
        };
    }
    let Scores { kept, forward, backward } = match setting.ops.attention {
        Operator::Custom => in_blocks(setting, sizes),
        Operator::Plain => whole(setting, sizes),
    };
    // q, k and v are split while they are there, and then free; the results of the heads become one tensor.
    let forward = Moment::highest([2 * qkv, qkv + o + forward, qkv + kept + 2 * o].map(Moment::workspace));
    // g is split likewise, and dk and dv are summed in fp32.
    let gradients = o + setting.wide(2 * keys);
    let moments = [qkv + o, qkv + gradients + backward, gradients + qkv - o].map(|bytes| bytes + kept);
    let recompute = if setting.ops.attention == Operator::Custom { product } else { 0.0 };
    Cost {
        input: qkv,
        output: o,
        holds_input: false,
        kept: qkv + kept,
        forward: forward.less(qkv),
        passing: forward.less(qkv),
        backward: Moment::highest(moments.map(Moment::workspace)),
        flops: Flops { recompute, ..Flops::of_products(2.0 * product) },
        ..Cost::default()
    }
}

/// Bytes of scores and what is as large: kept, and at the highest moment.
struct Scores {
    kept: u64,
    forward: u64,
    backward: u64,
}

/// A block of scores and of probabilities at a time: Z and P, in backward also dP and dS. On CUDA P takes the place of
/// Z in fp32, and dS that of dP.
fn in_blocks(setting: &Setting, HeadSizes { heads, kv_heads, head_dim }: HeadSizes) -> Scores {
    let block = largest_block(setting.batch as usize, heads as usize, setting.sequence as usize) as u64;
    let scores = setting.batch * heads * block;
    if !setting.on_cuda() {
        // Z and P in fp32 with the mask, in backward also dP; Q and K in fp32.
        let rest = block + setting.wide((heads + kv_heads) * head_dim);
        return Scores { kept: 0, forward: 8 * scores + rest, backward: 12 * scores + rest };
    }
    let narrow = if setting.element() < 4 { setting.element() } else { 0 };
    Scores { kept: 0, forward: scores * (4 + narrow), backward: scores * (8 + 2 * narrow) }
}

/// Burn's autodiff keeps the exponentials and the probabilities, these in the compute type too, and the mask.
fn whole(setting: &Setting, HeadSizes { heads, kv_heads, .. }: HeadSizes) -> Scores {
    let square = setting.sequence * setting.sequence;
    let scores = setting.batch * heads * square;
    let kept = scores * (8 + setting.element()) + square * (heads / kv_heads) + setting.wide(heads);
    Scores { kept, forward: kept + scores * 4, backward: scores * 12 }
}

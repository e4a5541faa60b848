//! What causal self-attention costs.
//!
//! | | kept | elements |
//! |---|---|---|
//! | fused | Q, K and V as they come, O, which the layer after it holds too, and a number for each row in fp32 | tokens (2 heads + 2 kv_heads) head_dim, and tokens heads |
//! | in blocks | Q, K and V, split into heads | tokens (heads + 2 kv_heads) head_dim |
//! | CPU in fp32 | Q, K and V as they come, and a number for each query of a head | tokens (heads + 2 kv_heads) head_dim, and tokens heads |
//! | plain | the same; the scores twice and the probabilities, in fp32, and these in the compute type | + 3 or 4 batch heads sequence² |
//! | plain, with a soft cap | the tanh as well, in fp32 | + batch heads sequence² |
//!
//! A window of w keys is passed over in all but the last two: w times the sequence of scores is computed, not its square.

use super::blocks::block_sizes;
use super::{Scores, Way};
use crate::device::dtype;
use crate::ops::attention::flash::{self, Attended};
use crate::ops::cost::{Cost, Flops, Moment, Setting};
use crate::ops::name::OperatorName;

/// Query heads, key heads, and the numbers of one.
#[derive(Clone, Copy, Debug)]
pub struct HeadSizes {
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
}

/// From q, k and v, in one tensor or in three, to the heads' results side by side.
pub fn cost(setting: &Setting, sizes: HeadSizes, scores: Scores) -> Cost {
    let fits = || flash::fits(dtype(setting.compute), sizes.head_dim as usize, setting.capability).is_ok();
    match Way::from(&setting.ops) {
        Way::Fused if setting.on_cuda() && fits() => fused(setting, sizes, scores),
        Way::Fused | Way::Blocks if !setting.on_cuda() && setting.element() == 4 => {
            in_place(setting, sizes, scores)
        }
        Way::Fused | Way::Blocks => with_scores(
            setting,
            sizes,
            in_blocks(setting, sizes, scores),
            products(setting, sizes, scores),
            1.0,
        ),
        Way::Plain => {
            let all = Scores { window: None, ..scores };
            with_scores(setting, sizes, whole(setting, sizes, scores), products(setting, sizes, all), 0.0)
        }
    }
}

/// Operations of QKᵀ over the keys that queries see: half of the square, or what a window leaves of it. Sequences of several
/// lengths count with their mean length, weighted by tokens, of which a window leaves at the least what it leaves of them.
fn products(setting: &Setting, HeadSizes { heads, head_dim, .. }: HeadSizes, scores: Scores) -> f64 {
    let length = setting.squares / setting.tokens() as f64;
    let seen = match scores.window.map(|window| window as f64) {
        Some(window) if window < length => setting.squares * (1.0 - (1.0 - window / length).powi(2)),
        _ => setting.squares,
    };
    seen * (heads * head_dim) as f64
}

/// The CPU's kernel reads and writes heads where they lie; log Σ exp of each query's scores is kept.
fn in_place(setting: &Setting, sizes: HeadSizes, scores: Scores) -> Cost {
    let HeadSizes { heads, kv_heads, head_dim } = sizes;
    let queries = heads * head_dim;
    let [o, qkv] = [queries, queries + 2 * kv_heads * head_dim].map(|columns| setting.activation(columns));
    let (kept, product) = (setting.wide(heads), products(setting, sizes, scores));
    Cost {
        input: qkv,
        output: o,
        holds_input: true,
        kept,
        flops: Flops { recompute: product, ..Flops::of_products(2.0 * product) },
        ..Cost::new(Moment::workspace(o + kept), Moment::workspace(qkv + kept))
    }
    .named(OperatorName::Attention, setting)
}

/// The inputs stay where they are.
fn fused(setting: &Setting, sizes: HeadSizes, scores: Scores) -> Cost {
    let HeadSizes { heads, kv_heads, head_dim } = sizes;
    let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
    let [o, qkv] = [queries, queries + 2 * keys].map(|columns| setting.activation(columns));
    let attended = Attended {
        batch: setting.batch as usize,
        sequence: setting.sequence as usize,
        heads: heads as usize,
        kv_heads: kv_heads as usize,
        head_dim: head_dim as usize,
        scores,
    };
    let sums = match attended.parts() as u64 {
        1 => 0,
        parts => parts * setting.wide(2 * keys),
    };
    // lse, and in backward delta.
    let row = setting.wide(heads);
    let product = products(setting, sizes, scores);
    Cost {
        input: qkv,
        output: o,
        holds_input: true,
        kept: row,
        forward: Moment::kept(row) + Moment::workspace(o),
        passing: Moment::workspace(row + o),
        backward: Moment::kept(o + row) + Moment::workspace(row + qkv + sums),
        flops: Flops {
            recompute: attended.recomputed() as f64 * product,
            ..Flops::of_products(2.0 * product)
        },
        // dQ, then dK and dV, and their sum over parts.
        launches: [1, if sums > 0 { 3 } else { 2 }],
        ..Cost::default()
    }
    .named(OperatorName::Attention, setting)
}

/// The cost when QKᵀ takes `product` operations, and backward computes it `again` times.
fn with_scores(setting: &Setting, sizes: HeadSizes, blocks: Blocks, product: f64, again: f64) -> Cost {
    let HeadSizes { heads, kv_heads, head_dim } = sizes;
    let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
    let [o, qkv] = [queries, queries + 2 * keys].map(|columns| setting.activation(columns));
    let Blocks { kept, forward, backward, launches } = blocks;
    // q, k and v are split while they are there, and then free; the results of the heads become one tensor.
    let forward = Moment::highest([2 * qkv, qkv + o + forward, qkv + kept + 2 * o].map(Moment::workspace));
    // g is split likewise, and dk and dv are summed in fp32.
    let gradients = o + setting.wide(2 * keys);
    let moments = [qkv + o, qkv + gradients + backward, gradients + qkv - o].map(|bytes| bytes + kept);
    Cost {
        input: qkv,
        output: o,
        holds_input: false,
        kept: qkv + kept,
        forward: forward.less(qkv),
        passing: forward.less(qkv),
        backward: Moment::highest(moments.map(Moment::workspace)),
        flops: Flops { recompute: again * product, ..Flops::of_products(2.0 * product) },
        launches,
        ..Cost::default()
    }
    .named(OperatorName::Attention, setting)
}

/// Bytes of scores and what is as large: kept, and at the highest moment; and the kernels of both directions.
struct Blocks {
    kept: u64,
    forward: u64,
    backward: u64,
    launches: [u32; 2],
}

/// A block of scores and of probabilities at a time: Z and P, in backward also dP and dS. On CUDA P takes the place of
/// Z in fp32, and dS that of dP.
fn in_blocks(setting: &Setting, sizes: HeadSizes, scores: Scores) -> Blocks {
    let HeadSizes { heads, kv_heads, head_dim } = sizes;
    let [batch, sequence] = [setting.batch, setting.sequence].map(|size| size as usize);
    let capped = scores.soft_cap.is_some();
    let (blocks, block) = block_sizes(batch, heads as usize, sequence, scores);
    let (blocks, block) = (blocks as u32, block as u64);
    let scores = setting.batch * heads * block;
    if !setting.on_cuda() {
        // Z and P in fp32 with the mask, in backward also dP and the slope of a soft cap; Q and K in fp32.
        let slope = if capped { 4 } else { 0 };
        let rest = block + setting.wide((heads + kv_heads) * head_dim);
        return Blocks {
            kept: 0,
            forward: 8 * scores + rest,
            backward: (12 + slope) * scores + rest,
            launches: [0; 2],
        };
    }
    let narrow = if setting.element() < 4 { setting.element() } else { 0 };
    // Heads are split and merged; a block has two products and a softmax, in backward five and its own.
    let launches = [4 + 3 * blocks, 7 + 6 * blocks];
    Blocks { kept: 0, forward: scores * (4 + narrow), backward: scores * (8 + 2 * narrow), launches }
}

/// Burn's autodiff keeps the exponentials and the probabilities, these in the compute type too, and the mask; and the tanh
/// of a soft cap.
fn whole(setting: &Setting, HeadSizes { heads, kv_heads, .. }: HeadSizes, scores: Scores) -> Blocks {
    let tanh = if scores.soft_cap.is_some() { 4 } else { 0 };
    let square = setting.sequence * setting.sequence;
    let scores = setting.batch * heads * square;
    let kept = scores * (8 + tanh + setting.element()) + square * (heads / kv_heads) + setting.wide(heads);
    Blocks { kept, forward: kept + scores * 4, backward: scores * 12, launches: [12, 24] }
}

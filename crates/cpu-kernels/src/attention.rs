//! Causal attention with grouped queries, and its backward, block of queries by block of queries.
//!
//! ```text
//! Z = QKᵀ        P = softmax(Z / √d)             O = PV
//! dV = Pᵀ dO     dP = dO Vᵀ     dS = P ⊙ (dP − rowsum(P ⊙ dP)) / √d     dQ = dS K     dK = dSᵀ Q
//! ```
//!
//! With a soft cap c the softmax is of c · tanh(Z / (c √d)), and dS has the factor 1 − tanh². [`Scores`] has the options.
//!
//! q, k, v and the results are read and written where they lie among the columns of a matrix. A block of Z and P is
//! there at a time on each thread.

mod heads;
mod scores;

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

pub use heads::{Heads, HeadsOut, Strides, statistics};
use scores::{Scaling, visible};
pub use scores::{Scores, Segments};

use crate::product::{Matrix, Panels, Target, product_here, product_of_panels};
use crate::room::Room;

/// Queries of a block: their scores of a sequence of 2048 are 384 KiB, which the L2 cache holds. A block computes no
/// scores after its last query, nor before the panel in which the window of its first one begins.
const BLOCK: usize = 48;

/// The shape of attention.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kv_heads: usize,
    /// Query heads that share a key head.
    pub group: usize,
    pub head_dim: usize,
    pub scores: Scores,
}

impl Shape {
    fn scaling(&self) -> Scaling {
        let Scores { scale, soft_cap, .. } = self.scores;
        let scale = scale.map_or_else(|| 1.0 / (self.head_dim as f32).sqrt(), |scale| scale as f32);
        Scaling { scale, soft_cap: soft_cap.map(|cap| cap as f32) }
    }
}

/// Tokens of one sequence: rows of q, and rows of k and v, which may be more. The last query stands at the last key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub queries: Range<usize>,
    pub keys: Range<usize>,
}

impl Sequence {
    /// Keys before the first query.
    fn past(&self) -> usize {
        self.keys.len() - self.queries.len()
    }

    fn blocks(&self, scores: Scores) -> impl DoubleEndedIterator<Item = Block> + use<> {
        let (queries, past) = (self.queries.len(), self.past());
        (0..queries.div_ceil(BLOCK)).map(move |i| {
            let queries = i * BLOCK..queries.min((i + 1) * BLOCK);
            let first = Panels::begin(scores.first_key(past + queries.start));
            Block { keys: first..past + queries.end, queries, past, scores }
        })
    }
}

/// Queries of a sequence and the keys whose scores with them are computed, counted from the sequence's first ones.
struct Block {
    queries: Range<usize>,
    keys: Range<usize>,
    /// Keys before the first query of the sequence.
    past: usize,
    scores: Scores,
}

impl Block {
    /// The keys that each of its queries sees, counted from the block's first one.
    fn seen(&self) -> impl Iterator<Item = Range<usize>> {
        let first = self.keys.start;
        self.queries.clone().map(move |query| {
            let position = self.past + query;
            self.scores.first_key(position) - first..position + 1 - first
        })
    }
}

/// What a thread works with.
struct Scratch {
    k: Panels,
    k_turned: Panels,
    v: Panels,
    z: Room,
    dp: Room,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch {
            k: Panels::EMPTY,
            k_turned: Panels::EMPTY,
            v: Panels::EMPTY,
            z: Room::EMPTY,
            dp: Room::EMPTY,
        })
    };
}

/// o from q, k and v, and log Σ exp of each query's scores into `lse`, which lies as [`statistics`] says.
pub fn attend(
    shape: Shape,
    sequences: &[Sequence],
    [q, k, v]: [Heads<'_>; 3],
    segments: Segments<'_>,
    [o, lse]: [&HeadsOut<'_>; 2],
) {
    let Shape { kv_heads, group, head_dim, scores } = shape;
    let scaling = shape.scaling();
    let head = |scratch: &mut Scratch, sequence: &Sequence, of: [usize; 2]| {
        let Sequence { queries, keys } = sequence;
        let [k, v] = [k, v].map(|heads| heads.matrix([of[0], 0], keys.clone(), head_dim));
        // Copying keys for a few queries would take longer than the products.
        let copied = queries.len() >= 8;
        if copied {
            scratch.k_turned.fill(&k.transposed(), 0..keys.len(), false);
            scratch.v.fill(&v, 0..head_dim, false);
        }
        for block in sequence.blocks(scores) {
            let (rows, first) = (block.queries.len(), queries.start + block.queries.start);
            let (seen, width) = (block.keys.clone(), block.keys.len());
            let q = q.matrix(of, first..first + rows, head_dim);
            let z = scratch.z.numbers(rows * width);
            let to = Target::over(z, width);
            match copied {
                true => product_of_panels(q, scratch.k_turned.part(0..head_dim, seen.clone()), to),
                false => product_here(q, k.rows(seen.clone()).transposed(), to),
            }
            for ((i, row), visible_keys) in z.chunks_exact_mut(width).enumerate().zip(block.seen()) {
                let first_key = keys.start + seen.start + visible_keys.start;
                let log_sum = scaling.probabilities(visible(row, visible_keys), segments, first_key);
                // SAFETY: this thread alone has the head.
                unsafe { lse.target(of, first + i, false) }.set(log_sum);
            }
            let p = Matrix::new(z, rows, width);
            // SAFETY: this thread alone has the head.
            let o = unsafe { o.target(of, first, false) };
            match copied {
                true => product_of_panels(p, scratch.v.part(seen, 0..head_dim), o),
                false => product_here(p, v.rows(seen), o),
            }
        }
    };
    let heads = kv_heads * group;
    (0..sequences.len() * heads).into_par_iter().with_max_len(1).for_each(|i| {
        let of = [i % heads / group, i % group];
        SCRATCH.with_borrow_mut(|scratch| head(scratch, &sequences[i / heads], of));
    });
}

/// dq, dk and dv from dO, where `lse` is what [`attend`] found; queries and keys are the same tokens.
pub fn attend_backward(
    shape: Shape,
    sequences: &[Sequence],
    [q, k, v, g]: [Heads<'_>; 4],
    segments: Segments<'_>,
    lse: &[f32],
    [dq, dk, dv]: [&HeadsOut<'_>; 3],
) {
    let Shape { kv_heads, group, head_dim, scores } = shape;
    let (scaling, of_lse) = (shape.scaling(), statistics(&shape, lse.len() / (kv_heads * group)));
    let kv_head = |scratch: &mut Scratch, sequence: &Sequence, kv_head: usize| {
        let tokens = &sequence.keys;
        assert_eq!(*tokens, sequence.queries);
        let (of_keys, count) = ([kv_head, 0], tokens.len());
        let Scratch { k: copied, k_turned, v: v_turned, z, dp } = scratch;
        let [k, v] = [k, v].map(|heads| heads.matrix(of_keys, tokens.clone(), head_dim));
        k_turned.fill(&k.transposed(), 0..count, false);
        copied.fill(&k, 0..head_dim, false);
        v_turned.fill(&v.transposed(), 0..count, false);
        // From this key on dk and dv are written: the first block that sees a key writes them, and the others add to them.
        let mut written = count;
        for (head, block) in (0..group).flat_map(|head| sequence.blocks(scores).rev().map(move |b| (head, b)))
        {
            let of = [kv_head, head];
            let (rows, first) = (block.queries.len(), tokens.start + block.queries.start);
            let (seen, width) = (block.keys.clone(), block.keys.len());
            let lse = &lse[of_lse.first(of, first)..][..rows];
            let [q, g] = [q, g].map(|heads| heads.matrix(of, first..first + rows, head_dim));
            let [z, dp] = [&mut *z, &mut *dp].map(|square| square.numbers(rows * width));
            product_of_panels(q, k_turned.part(0..head_dim, seen.clone()), Target::over(z, width));
            product_of_panels(g, v_turned.part(0..head_dim, seen.clone()), Target::over(dp, width));
            let pairs = z.chunks_exact_mut(width).zip(dp.chunks_exact_mut(width));
            for ((pair, lse), keys) in pairs.zip(lse).zip(block.seen()) {
                let first_key = tokens.start + seen.start + keys.start;
                let (z, dp) = (visible(pair.0, keys.clone()), visible(pair.1, keys));
                scaling.differentiate(z, dp, *lse, segments, first_key);
            }
            let [p, ds] = [z, dp].map(|square| Matrix::new(square, rows, width));
            let new = written.clamp(seen.start, seen.end);
            // SAFETY: this thread alone has the key head and its queries' heads; what is added to has been written.
            unsafe {
                product_of_panels(ds, copied.part(seen.clone(), 0..head_dim), dq.target(of, first, false));
                for (keys, add) in [(seen.start..new, false), (new..seen.end, true)] {
                    let (token, columns) =
                        (tokens.start + keys.start, keys.start - seen.start..keys.end - seen.start);
                    if !keys.is_empty() {
                        let [p, ds] = [p, ds].map(|square| square.transposed().rows(columns.clone()));
                        product_here(p, g, dv.target(of_keys, token, add));
                        product_here(ds, q, dk.target(of_keys, token, add));
                    }
                }
            }
            written = written.min(seen.start);
        }
    };
    (0..sequences.len() * kv_heads).into_par_iter().with_max_len(1).for_each(|i| {
        SCRATCH.with_borrow_mut(|scratch| kv_head(scratch, &sequences[i / kv_heads], i % kv_heads));
    });
}

#[cfg(test)]
mod tests;

//! Causal attention with grouped queries, and its backward, block of queries by block of queries.
//!
//! ```text
//! Z = QKᵀ        P = softmax(Z / √d)             O = PV
//! dV = Pᵀ dO     dP = dO Vᵀ     dS = P ⊙ (dP − rowsum(P ⊙ dP)) / √d     dQ = dS K     dK = dSᵀ Q
//! ```
//!
//! q, k, v and the results are read and written where they lie among the columns of a matrix. A block of Z and P is
//! there at a time on each thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

use crate::math::exp;
use crate::product::{Matrix, Panels, Target, product_here, product_of_panels};
use crate::reduce::{largest, sum_of, sum_of_pairs};
use crate::room::Room;
use crate::simd::vectorised;

/// Queries of a block: their scores of a sequence of 2048 are 384 KiB, which the L2 cache holds. A block computes no
/// scores after its last query.
const BLOCK: usize = 48;

/// The shape of attention.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kv_heads: usize,
    /// Query heads that share a key head.
    pub group: usize,
    pub head_dim: usize,
}

impl Shape {
    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
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

    fn blocks(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<> {
        let queries = self.queries.len();
        (0..queries.div_ceil(BLOCK)).map(move |i| i * BLOCK..queries.min((i + 1) * BLOCK))
    }
}

/// How heads lie in memory: numbers from a token, key head and query head of it to the next.
#[derive(Clone, Copy, Debug)]
pub struct Strides {
    pub token: usize,
    pub kv_head: usize,
    pub head: usize,
}

impl Strides {
    /// Where a token of a key head, and query head of it, begins.
    fn first(&self, [kv_head, head]: [usize; 2], token: usize) -> usize {
        kv_head * self.kv_head + head * self.head + token * self.token
    }
}

/// Heads somewhere in memory.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    pub data: &'a [f32],
    pub strides: Strides,
}

impl<'a> Heads<'a> {
    /// [tokens, head_dim] of one head.
    fn matrix(&self, of: [usize; 2], tokens: Range<usize>, head_dim: usize) -> Matrix<'a> {
        let data = &self.data[self.strides.first(of, tokens.start)..];
        Matrix { data, rows: tokens.len(), columns: head_dim, row: self.strides.token, column: 1 }
    }
}

/// Heads that are written.
pub struct HeadsOut<'a> {
    first: *mut f32,
    length: usize,
    strides: Strides,
    lives: PhantomData<&'a mut f32>,
}

// SAFETY: the functions of this file write each head of a sequence on one thread, and `new` says that sequences share no
// tokens.
unsafe impl Sync for HeadsOut<'_> {}

impl<'a> HeadsOut<'a> {
    /// Heads that take some columns of this memory.
    ///
    /// # Safety
    /// Nobody else may read or write these columns while they are written; `memory` must stay valid so long. The sequences
    /// that [`attend`] and [`attend_backward`] write to them must not share tokens: each has threads of its own.
    pub unsafe fn new(memory: *mut [f32], column: usize, strides: Strides) -> Self {
        assert!(column < memory.len());
        // SAFETY: within the memory.
        let first = unsafe { memory.cast::<f32>().add(column) };
        Self { first, length: memory.len() - column, strides, lives: PhantomData }
    }

    /// Tokens of one head from this one on, to be written or added to.
    ///
    /// # Safety
    /// Nobody else may write these tokens meanwhile; what is added to must have been written.
    unsafe fn target(&self, of: [usize; 2], token: usize, add: bool) -> Target<'a> {
        let first = self.strides.first(of, token);
        assert!(first < self.length, "attention: a head beyond its memory");
        // SAFETY: within the memory.
        unsafe { Target::at(self.first.add(first), self.length - first, self.strides.token, add) }
    }
}

/// One number for each query head and token: [kv_heads, group, tokens].
pub fn statistics(shape: &Shape, tokens: usize) -> Strides {
    Strides { token: 1, kv_head: shape.group * tokens, head: tokens }
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

/// Numbers for each row of k: a query sees only keys that have its own number.
pub type Segments<'a> = Option<&'a [i64]>;

/// Hides the keys of other segments than the last key's from these scores.
fn hide(z: &mut [f32], segments: Segments<'_>, keys: &Range<usize>) {
    let Some(segments) = segments else { return };
    let segments = &segments[keys.start..][..z.len()];
    let own = segments[z.len() - 1];
    for (z, segment) in z.iter_mut().zip(segments) {
        if *segment != own {
            *z = f32::NEG_INFINITY;
        }
    }
}

vectorised! {
    /// exp(scale · z − most) in the place of z, with most the largest of scale · z; the sum of these, and most.
    fn exponentials[FMA](z: &mut [f32], scale: f32) -> (f32, f32) {
        let most = largest(z) * scale;
        z.iter_mut().for_each(|z| *z = exp::<FMA>(*z * scale - most));
        (sum_of(z, |z| z), most)
    }
}

vectorised! {
    /// P in the place of z and dS in that of dp.
    fn differentiate[FMA](z: &mut [f32], dp: &mut [f32], lse: f32, scale: f32) {
        z.iter_mut().for_each(|z| *z = exp::<FMA>(*z * scale - lse));
        let sum = sum_of_pairs(z, dp, |p, dp| p * dp);
        dp.iter_mut().zip(z).for_each(|(dp, p)| *dp = *p * (*dp - sum) * scale);
    }
}

/// o from q, k and v, and log Σ exp of each query's scores into `lse`, which lies as [`statistics`] says.
pub fn attend(
    shape: Shape,
    sequences: &[Sequence],
    [q, k, v]: [Heads<'_>; 3],
    segments: Segments<'_>,
    [o, lse]: [&HeadsOut<'_>; 2],
) {
    let Shape { kv_heads, group, head_dim } = shape;
    let head = |scratch: &mut Scratch, sequence: &Sequence, of: [usize; 2]| {
        let Sequence { queries, keys } = sequence;
        let past = sequence.past();
        let [k, v] = [k, v].map(|heads| heads.matrix([of[0], 0], keys.clone(), head_dim));
        // Copying keys for a few queries would take longer than the products.
        let copied = queries.len() >= 8;
        if copied {
            scratch.k_turned.fill(&k.transposed(), 0..keys.len(), false);
            scratch.v.fill(&v, 0..head_dim, false);
        }
        for block in sequence.blocks() {
            let (seen, first) = (past + block.end, queries.start + block.start);
            let q = q.matrix(of, first..queries.start + block.end, head_dim);
            let z = scratch.z.numbers(block.len() * seen);
            match copied {
                true => product_of_panels(q, &scratch.k_turned, seen, Target::over(z, seen)),
                false => product_here(q, k.rows(0..seen).transposed(), Target::over(z, seen)),
            }
            for (t, z) in block.clone().zip(z.chunks_exact_mut(seen)) {
                let (z, later) = z.split_at_mut(past + t + 1);
                hide(z, segments, keys);
                let (sum, most) = exponentials(z, shape.scale());
                // SAFETY: this thread alone has the head.
                unsafe { lse.target(of, queries.start + t, false) }.set(sum.ln() + most);
                let share = 1.0 / sum;
                z.iter_mut().for_each(|p| *p *= share);
                later.fill(0.0);
            }
            let p = Matrix::new(z, block.len(), seen);
            // SAFETY: this thread alone has the head.
            let o = unsafe { o.target(of, first, false) };
            match copied {
                true => product_of_panels(p, &scratch.v, head_dim, o),
                false => product_here(p, v.rows(0..seen), o),
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
    let Shape { kv_heads, group, head_dim } = shape;
    let of_lse = statistics(&shape, lse.len() / (kv_heads * group));
    let kv_head = |scratch: &mut Scratch, sequence: &Sequence, kv_head: usize| {
        let tokens = &sequence.keys;
        assert_eq!(*tokens, sequence.queries);
        let (of_keys, count) = ([kv_head, 0], tokens.len());
        let Scratch { k: copied, k_turned, v: v_turned, z, dp } = scratch;
        let [k, v] = [k, v].map(|heads| heads.matrix(of_keys, tokens.clone(), head_dim));
        k_turned.fill(&k.transposed(), 0..count, false);
        copied.fill(&k, 0..head_dim, false);
        v_turned.fill(&v.transposed(), 0..count, false);
        for head in 0..group {
            let of = [kv_head, head];
            let lse = &lse[of_lse.first(of, tokens.start)..][..count];
            // The last block sees every key: it writes dk and dv, and the others add to them.
            for block in sequence.blocks().rev() {
                let (seen, first) = (block.end, tokens.start + block.start);
                let add = head > 0 || seen < count;
                let [q, g] = [q, g].map(|heads| heads.matrix(of, first..tokens.start + block.end, head_dim));
                let [z, dp] = [&mut *z, &mut *dp].map(|square| square.numbers(block.len() * seen));
                product_of_panels(q, k_turned, seen, Target::over(z, seen));
                product_of_panels(g, v_turned, seen, Target::over(dp, seen));
                let rows = z.chunks_exact_mut(seen).zip(dp.chunks_exact_mut(seen));
                for (t, (z, dp)) in block.clone().zip(rows) {
                    let ((z, later), (dp, d_later)) = (z.split_at_mut(t + 1), dp.split_at_mut(t + 1));
                    hide(z, segments, tokens);
                    differentiate(z, dp, lse[t], shape.scale());
                    later.fill(0.0);
                    d_later.fill(0.0);
                }
                let [p, ds] = [z, dp].map(|square| Matrix::new(square, block.len(), seen));
                // SAFETY: this thread alone has the key head and its queries' heads; the last block has written what
                // the others add to.
                unsafe {
                    product_of_panels(ds, copied, head_dim, dq.target(of, first, false));
                    product_here(p.transposed(), g, dv.target(of_keys, tokens.start, add));
                    product_here(ds.transposed(), q, dk.target(of_keys, tokens.start, add));
                }
            }
        }
    };
    (0..sequences.len() * kv_heads).into_par_iter().with_max_len(1).for_each(|i| {
        SCRATCH.with_borrow_mut(|scratch| kv_head(scratch, &sequences[i / kv_heads], i % kv_heads));
    });
}

#[cfg(test)]
mod tests;

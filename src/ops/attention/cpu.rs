//! Attention that reads and writes heads where they lie, so that no tensor is split into heads or merged.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

use burn::tensor::Tensor;
use burn_flex::FlexTensor;
use cpu_kernels::attention::{self as kernels, HeadsOut, Sequence, Shape, Strides};

use crate::ops::attention::{Columns, Heads, Mask};
use crate::ops::function::custom;
use crate::ops::name::OperatorName;
use crate::ops::slices::{buffer, integers, numbers, tensor};

/// How the heads of a tensor with `columns` columns and a token a row lie there.
fn side_by_side(heads: &Heads, columns: usize) -> Strides {
    Strides { token: columns, kv_head: heads.group * heads.head_dim, head: heads.head_dim }
}

fn shape(heads: &Heads) -> Shape {
    let Heads { kv_heads, group, head_dim, scores, .. } = *heads;
    Shape { kv_heads, group, head_dim, scores }
}

/// The sequences that attend to themselves: the rows of a batch, or the samples of a packed sequence, which lie side by
/// side.
fn sequences(heads: &Heads, mask: &Mask) -> Vec<Sequence> {
    let tokens = |range: Range<usize>| Sequence { queries: range.clone(), keys: range };
    let Some(packing) = &mask.packing else {
        return (0..heads.batch).map(|i| tokens(i * heads.sequence..(i + 1) * heads.sequence)).collect();
    };
    let mut found = Vec::new();
    for (part, places) in packing.parts(*heads) {
        let all = integers(&places.tokens);
        for row in all[places.first..][..part.tokens()].chunks(part.sequence) {
            let count = row.iter().take_while(|token| **token >= 0).count();
            if count > 0 {
                let first = row[0] as usize;
                found.push(tokens(first..first + count));
            }
        }
    }
    found
}

/// Where q, k and v are in the tensors, and what attends to what.
struct Plan {
    shape: Shape,
    sequences: Vec<Sequence>,
    segments: Option<Vec<i64>>,
    /// For q, k and v: which tensor, the first column, and the strides.
    places: [(usize, usize, Strides); 3],
    of_result: Strides,
}

impl Plan {
    /// From the sizes of the tensors that have q, k and v, and the column where each begins.
    fn new(sizes: &[[usize; 2]], columns: Columns, heads: &Heads, mask: &Mask) -> Self {
        let of = [*heads, heads.of_keys(), heads.of_keys()];
        for (i, size) in sizes.iter().enumerate() {
            let widths = columns.iter().zip(&of).filter(|((tensor, _), _)| *tensor == i);
            let expected = [heads.tokens(), widths.map(|(_, heads)| heads.columns()).sum()];
            assert_eq!(*size, expected, "attention: q, k and v are all columns of all tokens");
        }
        Self {
            shape: shape(heads),
            sequences: sequences(heads, mask),
            // A packed sequence's samples are sequences here.
            segments: mask.starts.as_ref().filter(|_| mask.packing.is_none()).map(integers),
            places: std::array::from_fn(|i| {
                let (tensor, column) = columns[i];
                (tensor, column, side_by_side(&of[i], sizes[tensor][1]))
            }),
            of_result: side_by_side(heads, heads.columns()),
        }
    }

    fn heads<'a>(&self, inputs: &'a [FlexTensor]) -> [kernels::Heads<'a>; 3] {
        self.places.map(|(tensor, column, strides)| kernels::Heads {
            data: &numbers(&inputs[tensor])[column..],
            strides,
        })
    }
}

/// As [`crate::ops::attention::attention`]; for q, k and v each, the tensor and the column where it begins. Kept for
/// backward: the tensors, the result's shape, and log Σ exp of each query's scores.
pub fn attention<const N: usize>(
    inputs: [Tensor<2>; N],
    columns: Columns,
    heads: Heads,
    mask: &Mask,
) -> Tensor<2> {
    let sizes = inputs.each_ref().map(Tensor::dims);
    let plan = Plan::new(&sizes, columns, &heads, mask);
    let [tokens, result_columns] = [sizes[0][0], heads.columns()];
    custom(OperatorName::Attention, inputs.map(Tensor::into_dispatch), |inputs| {
        let inputs = inputs.map(|input| buffer(Tensor::<2>::from_dispatch(input)));
        let mut lse = Numbers::new(tokens * heads.kv_heads * heads.group, &plan.sequences, tokens);
        let mut o = Numbers::new(tokens * result_columns, &plan.sequences, tokens);
        let of_lse = kernels::statistics(&plan.shape, tokens);
        // SAFETY: attention alone writes them, and every head of every token of its sequences.
        let (o, lse) = unsafe {
            let to = [o.heads(0, plan.of_result), lse.heads(0, of_lse)];
            kernels::attend(
                plan.shape,
                &plan.sequences,
                plan.heads(&inputs),
                plan.segments.as_deref(),
                to.each_ref(),
            );
            (o.finish(), lse.finish())
        };
        (tensor(o, [tokens, result_columns]), move |g: Tensor<2>, _| {
            let g = buffer(g);
            let [q, k, v] = plan.heads(&inputs);
            let g = kernels::Heads { data: numbers(&g), strides: plan.of_result };
            let mut gradients =
                sizes.map(|[rows, columns]| Numbers::new(rows * columns, &plan.sequences, rows));
            // SAFETY: q, k and v are other columns, of which a head is written whole; together they are all columns, as
            // checked above.
            let gradients = unsafe {
                let to =
                    plan.places.map(|(tensor, column, strides)| gradients[tensor].heads(column, strides));
                let segments = plan.segments.as_deref();
                kernels::attend_backward(
                    plan.shape,
                    &plan.sequences,
                    [q, k, v, g],
                    segments,
                    &lse,
                    to.each_ref(),
                );
                gradients.map(|gradient| gradient.finish())
            };
            let mut sizes = sizes.into_iter();
            gradients.map(|gradient| {
                let size = sizes.next().expect("as many as gradients");
                Some(tensor::<2>(gradient, size).into_dispatch())
            })
        })
    })
}

/// Attention of new tokens over all, without backward: as [`crate::ops::attention::attend_cached`].
pub fn attend_cached([q, k, v]: [Tensor<2>; 3], heads: Heads, keys: usize, mask: &Mask) -> Tensor<2> {
    let size = q.dims();
    let new = heads.sequence;
    let sequence = |i: usize| Sequence { queries: i * new..(i + 1) * new, keys: i * keys..(i + 1) * keys };
    let sequences: Vec<Sequence> = (0..heads.batch).map(sequence).collect();
    let segments = mask.starts.as_ref().map(integers);
    let inputs = [q, k, v].map(buffer);
    let of = [heads, heads.of_keys(), heads.of_keys()].map(|heads| side_by_side(&heads, heads.columns()));
    let qkv = [0, 1, 2].map(|i| kernels::Heads { data: numbers(&inputs[i]), strides: of[i] });
    let shape = shape(&heads);
    let mut o = Numbers::new(size[0] * size[1], &sequences, size[0]);
    let mut lse = vec![0.0; size[0] * heads.kv_heads * heads.group];
    // SAFETY: attention alone writes them, and every head of every token.
    let o = unsafe {
        let to = [o.heads(0, of[0]), HeadsOut::new(&mut *lse, 0, kernels::statistics(&shape, size[0]))];
        kernels::attend(shape, &sequences, qkv, segments.as_deref(), to.each_ref());
        o.finish()
    };
    tensor(o, size)
}

/// Numbers that attention is to write; 0 where tokens are in no sequence.
struct Numbers {
    vector: Vec<f32>,
    length: usize,
}

impl Numbers {
    fn new(length: usize, sequences: &[Sequence], tokens: usize) -> Self {
        let written: usize = sequences.iter().map(|sequence| sequence.queries.len()).sum();
        let mut vector = Vec::with_capacity(length);
        if written < tokens {
            vector.spare_capacity_mut()[..length].fill(MaybeUninit::new(0.0));
        }
        Self { vector, length }
    }

    /// # Safety
    /// As [`HeadsOut::new`]'s.
    unsafe fn heads(&mut self, column: usize, strides: Strides) -> HeadsOut<'static> {
        let memory = ptr::slice_from_raw_parts_mut(self.vector.as_mut_ptr(), self.length);
        // SAFETY: the caller's.
        unsafe { HeadsOut::new(memory, column, strides) }
    }

    /// # Safety
    /// All numbers of the sequences' tokens must have been written.
    unsafe fn finish(mut self) -> Vec<f32> {
        // SAFETY: the caller's; the others were 0.
        unsafe { self.vector.set_len(self.length) };
        self.vector
    }
}

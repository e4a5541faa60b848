//! Fused causal attention: kernels of our own, in CUDA C++ under `flash/`, that keep no scores in memory.
//!
//! q, k and v are read where they lie, in the columns of tensors with a token a row, and their gradients are written
//! in the same way. Results are the same from run to run.

mod kernels;

use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use crate::device::cuda::launch::{Pointer, launch};
use crate::device::cuda::{by_rows, empty};
use crate::ops::attention::Scores;
#[cfg(test)]
pub use kernels::variants;
pub use kernels::{Kernels, fits, soft_cap_macro};
use kernels::{OWN, Part};

/// What is attended.
#[derive(Clone, Copy, Debug)]
pub struct Attended {
    pub batch: usize,
    pub sequence: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub scores: Scores,
}

impl Attended {
    fn tokens(&self) -> usize {
        self.batch * self.sequence
    }

    /// Products of the size of QKᵀ that backward computes although forward or another of its passes does: QKᵀ in each
    /// pass, and dO Vᵀ in all but the first and one that sums dV alone.
    pub fn recomputed(&self) -> usize {
        if kernels::sums_apart(self.head_dim) { 4 } else { 3 }
    }

    fn scale(&self) -> f32 {
        self.scores.scale.unwrap_or_else(|| 1.0 / (self.head_dim as f64).sqrt()) as f32
    }

    /// Keys that a query sees; the kernels read it where it is less than the sequence.
    fn window(&self) -> i32 {
        self.scores.window.unwrap_or(self.sequence).min(self.sequence) as i32
    }

    /// Blocks of as many rows as a block of threads has.
    fn blocks(&self) -> usize {
        self.sequence.div_ceil(OWN)
    }

    /// Into how many parts backward divides the query heads of a key head; it sums dK and dV of each part by itself.
    /// There are enough to fill a large device, whose 132 multiprocessors run two or three blocks each.
    pub fn parts(&self) -> usize {
        const ENOUGH: usize = 600;
        let (blocks, group) = (self.batch * self.kv_heads * self.blocks(), self.heads / self.kv_heads);
        // No more parts than keep the largest part this small.
        let largest = group.div_ceil(ENOUGH.div_ceil(blocks.max(1)).clamp(1, group));
        group.div_ceil(largest)
    }
}

/// Heads side by side in the columns of a tensor [batch · sequence, columns], from `first` on.
#[derive(Clone)]
pub struct ColumnSlice {
    pub tensor: CubeTensor,
    pub first: usize,
}

impl ColumnSlice {
    fn stride(&self) -> i32 {
        i32::try_from(self.tensor.meta.strides()[0]).expect("a row of fewer than 2^31 elements")
    }

    fn pointer(&self) -> Pointer {
        let bytes = self.tensor.dtype.size();
        // The kernels copy 16 bytes at a time.
        let aligned = |elements: usize| (elements * bytes).is_multiple_of(16);
        assert!(
            aligned(self.stride() as usize) && aligned(self.first),
            "attention: rows and heads of 16 bytes"
        );
        Pointer { buffer: self.tensor.handle.clone().binding(), offset: (self.first * bytes) as u64 }
    }
}

/// q, k and v, each with a head for every `head_dim` columns, in the type of the kernels.
pub struct Inputs {
    pub qkv: [ColumnSlice; 3],
    /// [batch, sequence] i32: the first key that each query sees, which does not fall along a sequence; `None`: 0.
    pub starts: Option<CubeTensor>,
}

impl Inputs {
    pub fn new(qkv: [(CubeTensor, usize); 3], starts: Option<CubeTensor>) -> Self {
        let starts = starts.map(into_contiguous);
        assert!(starts.as_ref().is_none_or(|starts| starts.dtype == DType::I32), "starts are i32");
        Self { qkv: qkv.map(|(tensor, first)| ColumnSlice { tensor: by_rows(tensor), first }), starts }
    }

    fn check(&self, kernels: &Kernels, of: &Attended) {
        check(&self.qkv, kernels, of);
        let starts = self.starts.as_ref().map(|starts| starts.meta.num_elements());
        assert!(starts.is_none_or(|count| count == of.tokens()), "attention: a start for each token");
        assert!(kernels.computes(of.scores.within(of.sequence)), "attention: the options of its scores");
    }

    /// Rows and columns of the tensor that has q, k or v.
    pub fn dims(&self, part: usize) -> [usize; 2] {
        let shape = self.qkv[part].tensor.meta.shape();
        [shape[0], shape[1]]
    }

    fn starts(&self) -> Option<Pointer> {
        self.starts.as_ref().map(Pointer::whole)
    }
}

/// Checks that the kernels stay within the tensors of q, k and v, or of their gradients.
fn check(qkv: &[ColumnSlice; 3], kernels: &Kernels, of: &Attended) {
    let keys = of.kv_heads * of.head_dim;
    for (slice, columns) in qkv.iter().zip([of.heads * of.head_dim, keys, keys]) {
        let shape = slice.tensor.meta.shape();
        assert_eq!(slice.tensor.dtype, kernels.dtype(), "attention: the type of q, k, v and their gradients");
        assert_eq!(shape[0], of.tokens(), "attention: a row for each token");
        assert!(slice.first + columns <= shape[1], "attention: {columns} columns from {} on", slice.first);
    }
    assert_eq!(of.head_dim, kernels.head_dim(), "attention: the size of a head");
    assert!(of.heads.is_multiple_of(of.kv_heads), "attention: as many query heads for each key head");
}

/// What forward leaves.
pub struct Output {
    /// [batch · sequence, heads · head_dim], in the type of the inputs.
    pub o: CubeTensor,
    /// [batch, heads, sequence] f32: ln Σ exp of each query's scores.
    pub lse: CubeTensor,
}

/// softmax(QKᵀ / √d) V over the keys that each query sees, or as the options of the scores say.
pub fn attend(kernels: &Kernels, inputs: &Inputs, of: Attended) -> Output {
    inputs.check(kernels, &of);
    let q = &inputs.qkv[0].tensor;
    let columns = of.heads * of.head_dim;
    let o = empty(q, [of.tokens(), columns], q.dtype);
    let lse = empty(q, [of.batch, of.heads, of.sequence], DType::F32);
    let [q, k, v] = inputs.qkv.each_ref();
    let pointers = [
        Some(q.pointer()),
        Some(k.pointer()),
        Some(v.pointer()),
        Some(Pointer::whole(&o)),
        Some(Pointer::whole(&lse)),
        inputs.starts(),
    ];
    let strides = [q.stride(), k.stride(), v.stride(), columns as i32];
    let sizes = [of.sequence, of.heads, of.kv_heads].map(|size| size as i32);
    let integers = [&strides[..], &sizes, &[of.window()]].concat();
    let forward = kernels.launch(Part::Forward, [of.batch * of.heads, of.blocks()]);
    launch(&o, pointers, integers, of.scale(), [forward]);
    Output { o, lse }
}

/// Writes the gradients of q, k and v into `gradients`, in the type of the inputs, from `g`, that of the result.
pub fn attend_backward(
    kernels: &Kernels,
    inputs: &Inputs,
    output: &Output,
    g: CubeTensor,
    gradients: &[ColumnSlice; 3],
    of: Attended,
) {
    inputs.check(kernels, &of);
    check(gradients, kernels, &of);
    let g = into_contiguous(g);
    let shape_and_type = |t: &CubeTensor| (t.meta.shape().clone(), t.dtype);
    assert_eq!(shape_and_type(&g), shape_and_type(&output.o), "attention: the gradient of its result");
    let parts = of.parts();
    let delta = empty(&g, [of.batch, of.heads, of.sequence], DType::F32);
    let sums = (parts > 1).then(|| empty(&g, [parts, 2, of.tokens(), of.kv_heads * of.head_dim], DType::F32));
    let ([q, k, v], [dq, dk, dv]) = (inputs.qkv.each_ref(), gradients.each_ref());
    let pointers = [
        Some(q.pointer()),
        Some(k.pointer()),
        Some(v.pointer()),
        Some(Pointer::whole(&output.o)),
        Some(Pointer::whole(&g)),
        Some(dq.pointer()),
        Some(dk.pointer()),
        Some(dv.pointer()),
        Some(Pointer::whole(&output.lse)),
        Some(Pointer::whole(&delta)),
        sums.as_ref().map(Pointer::whole),
        inputs.starts(),
    ];
    let columns = (of.heads * of.head_dim) as i32;
    let strides = [q.stride(), k.stride(), v.stride(), columns, dq.stride(), dk.stride(), dv.stride()];
    let sizes = [of.batch, of.sequence, of.heads, of.kv_heads, parts].map(|size| size as i32);
    let mut launches = vec![
        kernels.launch(Part::Queries, [of.batch * of.heads, of.blocks()]),
        kernels.launch(Part::Keys, [of.batch * of.kv_heads * parts * kernels.sums(), of.blocks()]),
    ];
    launches.extend(sums.is_some().then(|| {
        let vectors = of.tokens() * of.kv_heads * of.head_dim / 8;
        kernels.launch(Part::Sum, [vectors.div_ceil(kernels::THREADS), 2])
    }));
    let integers = [&strides[..], &sizes, &[of.window()]].concat();
    launch(&dq.tensor, pointers, integers, of.scale(), launches);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_device_and_have_a_head_each() {
        let parts = |batch, sequence, heads, kv_heads| {
            let scores = Scores::default();
            Attended { batch, sequence, heads, kv_heads, head_dim: 64, scores }.parts()
        };
        // 4 · 2 · 8 blocks want ten parts, and there are seven heads.
        assert_eq!(parts(4, 512, 14, 2), 7);
        // 16 · 2 · 8 blocks want three; 4 · 32 want five, and four have at most two heads too.
        assert_eq!(parts(16, 512, 14, 2), 3);
        assert_eq!(parts(1, 2048, 28, 4), 4);
        assert_eq!(parts(64, 2048, 14, 2), 1);
        assert_eq!(parts(1, 1, 12, 12), 1);
    }
}

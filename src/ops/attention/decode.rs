//! Attention of one new token a sequence over cached keys and values, in one launch.

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use crate::device::cuda::launch::{Launch, Pointer, launch};
#[cfg(test)]
use crate::device::cuda::program::{NARROW, Variant};
use crate::device::cuda::program::{Source, type_name};
use crate::device::cuda::{Gpu, empty};
use crate::ops::attention::Scores;
use crate::ops::attention::flash::soft_cap_macro;

const KERNEL: &str = "attend_next";
/// The most query heads that can share a key head, for each of which a thread has a number, and the most elements of a
/// head, for each of which a block has a thread.
const MOST_SHARING: usize = 16;
const MOST_ELEMENTS: usize = 256;

/// The sizes of the heads.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub kv_heads: usize,
    /// Query heads that share a key head.
    pub group: usize,
    pub head_dim: usize,
    pub scores: Scores,
}

impl Sizes {
    /// Of a block.
    fn threads(self) -> u32 {
        if self.head_dim > 128 { 256 } else { 128 }
    }

    fn source(self, dtype: DType) -> Source {
        let mut macros = vec![
            format!("A={}", type_name(dtype)),
            format!("D={}", self.head_dim),
            format!("GROUP={}", self.group),
            format!("THREADS={}u", self.threads()),
        ];
        macros.extend(soft_cap_macro(self.scores.soft_cap.map(|cap| cap as f32)));
        let text = concat!(include_str!("../../device/cuda/kernels/numbers.cuh"), include_str!("decode.cu"));
        Source { name: "decode.cu", text, macros, generation_only: false }
    }
}

/// The largest sizes and a usual one, this one with a soft cap.
#[cfg(test)]
pub fn variants() -> Vec<Variant> {
    let capped = Scores { soft_cap: Some(50.0), ..Scores::default() };
    let sizes = [(MOST_SHARING, MOST_ELEMENTS, Scores::default()), (7, 64, capped)];
    let variant = |((group, head_dim, scores), dtype)| {
        Variant::plain(Sizes { kv_heads: 1, group, head_dim, scores }.source(dtype), [KERNEL])
    };
    sizes.into_iter().zip(NARROW).map(variant).collect()
}

/// softmax(q Kᵀ / √d) V of one query a sequence, in the shape of q; `sizes` have the options of its scores. q is [batch, heads · head_dim]; k and v are [batch,
/// capacity, kv_heads · head_dim], of which the first `keys` of each sequence are there; starts is [batch, keys] i32, the
/// first key that each token sees. Without starts it sees all.
///
/// # Errors
/// When the heads are of sizes that the kernel does not take, or it cannot be compiled.
///
/// # Panics
/// When shapes or types do not fit together.
pub fn attend_next(
    q: CubeTensor,
    k: CubeTensor,
    v: CubeTensor,
    starts: Option<CubeTensor>,
    sizes: Sizes,
    keys: usize,
) -> Result<CubeTensor, String> {
    let Sizes { kv_heads, group, head_dim, scores } = sizes;
    if group > MOST_SHARING || head_dim > MOST_ELEMENTS {
        return Err(format!("{group} query heads of {head_dim} elements for each key head"));
    }
    let gpu = Gpu::of(&q).expect("a CUDA tensor");
    let (dtype, rows) = (q.dtype, q.meta.shape()[0]);
    let [function] = gpu.functions(&sizes.source(dtype), [(KERNEL, 0)])?;
    let [q, k, v] = [q, k, v].map(into_contiguous);
    let capacity = k.meta.shape()[1];
    let cached = Shape::from([rows, capacity, kv_heads * head_dim]);
    assert!(
        *q.meta.shape() == Shape::from([rows, kv_heads * group * head_dim])
            && [&k, &v].iter().all(|x| *x.meta.shape() == cached && x.dtype == dtype)
            && (1..=capacity).contains(&keys),
        "attention of q {:?} over {keys} of k {:?} and v {:?}",
        q.meta.shape(),
        k.meta.shape(),
        v.meta.shape()
    );
    let starts = starts.map(into_contiguous);
    assert!(
        starts
            .as_ref()
            .is_none_or(|starts| starts.dtype == DType::I32 && starts.meta.num_elements() == rows * keys),
        "attention: a start for each token so far, in i32"
    );
    let o = empty(&q, q.meta.shape().clone(), dtype);
    let pointers = [
        Some(Pointer::whole(&q)),
        Some(Pointer::whole(&k)),
        Some(Pointer::whole(&v)),
        Some(Pointer::whole(&o)),
        starts.as_ref().map(Pointer::whole),
    ];
    let first = scores.first_key(keys - 1);
    let integers =
        [keys, capacity, kv_heads, first].map(|size| i32::try_from(size).expect("fewer than 2^31"));
    let scale = scores.scale.unwrap_or_else(|| 1.0 / (head_dim as f64).sqrt()) as f32;
    let blocks = Launch { function, grid: [(rows * kv_heads) as u32, 1], threads: sizes.threads() };
    launch(&o, pointers, integers.to_vec(), scale, [blocks]);
    Ok(o)
}

//! Attention by the fused kernels of a CUDA device, which hold no scores in memory.

use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;

use super::{Columns, Heads, Mask};
use crate::device::cuda::Gpu;
use crate::ops::attention::decode;
use crate::ops::attention::flash::{self, Attended, Inputs, Kernels, Output};
use crate::ops::backend::{cube, cube_int, on_cuda, uncube};
use crate::ops::{narrow, unwritten};

impl From<Heads> for Attended {
    fn from(Heads { batch, sequence, kv_heads, group, head_dim, scores }: Heads) -> Self {
        Self { batch, sequence, heads: kv_heads * group, kv_heads, head_dim, scores }
    }
}

/// The kernels for tensors like `x`; `None` where there are none.
pub fn kernels(x: &Tensor<2>, heads: Heads) -> Option<Kernels> {
    if !on_cuda(x) || flash::fits(x.dtype(), heads.head_dim, None).is_err() {
        return None;
    }
    let gpu = Gpu::of(&cube(x.clone()))?;
    Kernels::of(gpu, x.dtype(), heads.head_dim, heads.scores.within(heads.sequence)).ok()
}

/// One new token of each sequence over the keys and values of all so far, as
/// [`attend_cached`](super::attend_cached); `None` where no kernel takes the heads.
pub fn attend_next(
    q: &Tensor<2>,
    [k, v]: &[Tensor<3>; 2],
    heads: Heads,
    keys: usize,
    mask: &Mask,
) -> Option<Tensor<2>> {
    let Heads { kv_heads, group, head_dim, scores, .. } = heads;
    let starts = mask.starts.as_ref().map(cube_int);
    let sizes = decode::Sizes { kv_heads, group, head_dim, scores };
    let [k, v] = [k, v].map(|x| cube(x.clone()));
    decode::attend_next(cube(q.clone()), k, v, starts, sizes, keys).ok().map(uncube)
}

/// What is kept for backward: the inputs in the compute type, o and lse.
pub struct Fused {
    kernels: Kernels,
    heads: Heads,
    columns: Columns,
    inputs: Inputs,
    output: Output,
}

impl Fused {
    /// Returns what backward needs, and the result.
    pub fn attend(
        kernels: Kernels,
        inputs: &[Tensor<2>],
        columns: Columns,
        heads: Heads,
        mask: &Mask,
    ) -> (Self, Tensor<2>) {
        let starts = mask.starts.as_ref().map(cube_int);
        let inputs =
            Inputs::new(columns.map(|(tensor, column)| (cube(inputs[tensor].clone()), column)), starts);
        let output = flash::attend(&kernels, &inputs, heads.into());
        let o = uncube(output.o.clone());
        (Self { kernels, heads, columns, inputs, output }, o)
    }

    /// From the gradient of the result, in the compute type, to those of the inputs as `dtypes`.
    pub fn backward<const N: usize>(self, g: Tensor<2>, dtypes: [DType; N]) -> [Tensor<2>; N] {
        let Self { kernels, heads, columns, inputs, output } = self;
        let gradients: [CubeTensor; N] = std::array::from_fn(|of| {
            let part = columns.iter().position(|(tensor, _)| *tensor == of).expect("a part in each tensor");
            cube(unwritten(inputs.dims(part), g.dtype(), &g))
        });
        let parts =
            columns.map(|(tensor, first)| flash::ColumnSlice { tensor: gradients[tensor].clone(), first });
        flash::attend_backward(&kernels, &inputs, &output, cube(g), &parts, heads.into());
        let mut gradients = gradients.into_iter().map(uncube);
        dtypes.map(|dtype| narrow(gradients.next().expect("one for each input"), dtype))
    }
}

//! The CPU's product of fp32 matrices, in sums that round less than one long sum.
//!
//! A sum of n products rounds by about √n/2 units in the last place. Burn's product adds 512 and more of them
//! in one register. This one adds [`BLOCK`] in a register and the blocks to the output. That halves the error of
//! a product over 576 and more, which is then as small as PyTorch's.

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_flex::FlexTensor;
use gemm::{Parallelism, gemm};

/// Products that are added in one register.
const BLOCK: usize = 192;
/// From this many multiplications on all cores take part: for fewer, waking them takes longer than it saves.
const PARALLEL: usize = 192 * 192 * 192;

/// lhs [m, k] · rhs [k, n] of fp32 tensors of any strides; `None` for operands that Burn's own product serves as
/// well: other types, batches of matrices, and sums of at most [`BLOCK`].
pub fn product(lhs: &FlexTensor, rhs: &FlexTensor) -> Option<FlexTensor> {
    let (left, right) = (lhs.layout(), rhs.layout());
    let is_matrix = [lhs, rhs].iter().all(|tensor| tensor.dtype() == DType::F32 && tensor.rank() == 2);
    if !is_matrix || left.shape()[1] <= BLOCK {
        return None;
    }
    let ([m, k], [rows, n]) = ([left.shape()[0], left.shape()[1]], [right.shape()[0], right.shape()[1]]);
    assert_eq!(k, rows, "matmul: [{m}, {k}] times [{rows}, {n}]");
    let mut out = FlexTensor::empty(Shape::from([m, n]), DType::F32);
    let parallel = m.saturating_mul(n).saturating_mul(k) >= PARALLEL;
    let parallelism = if parallel { Parallelism::Rayon(0) } else { Parallelism::None };
    let a = lhs.storage::<f32>()[left.start_offset()..].as_ptr();
    let b = rhs.storage::<f32>()[right.start_offset()..].as_ptr();
    let c = out.storage_mut::<f32>().as_mut_ptr();
    let ([a_down, a_right], [b_down, b_right]) =
        ([left.strides()[0], left.strides()[1]], [right.strides()[0], right.strides()[1]]);
    for first in (0..k).step_by(BLOCK) {
        let (inner, add) = (BLOCK.min(k - first), first > 0);
        // SAFETY: a layout's strides stay within its tensor's storage for every index below its shape, which
        // `first + inner` ≤ k does; the output is a contiguous [m, n] of its own.
        unsafe {
            let (a, b) = (a.offset(first as isize * a_right), b.offset(first as isize * b_down));
            gemm(
                m,
                n,
                inner,
                c,
                1,
                n as isize,
                add,
                a,
                a_right,
                a_down,
                b,
                b_right,
                b_down,
                1.0,
                1.0,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
    Some(out)
}

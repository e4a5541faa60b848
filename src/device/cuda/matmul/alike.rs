//! [`lie_alike`]: for tests, all operands of products lie alike in memory, wherever they come from.
//!
//! cuBLASLt chooses an algorithm by the alignment of a product's tensors and by the gaps between their rows, and each
//! algorithm adds in an order of its own. Weights that move lie one behind the other in a slot; others lie as CubeCL has
//! allocated them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// How many [`Alike`] there are.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// While one is held, operands lie alike.
pub struct Alike(());

/// Until all that this returns are dropped, products take each tensor to be aligned as its elements are, and read it
/// without gaps. Equal products then have equal algorithms, which are not the fastest.
#[must_use]
pub fn lie_alike() -> Alike {
    HELD.fetch_add(1, Relaxed);
    Alike(())
}

impl Drop for Alike {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Relaxed);
    }
}

fn held() -> bool {
    HELD.load(Relaxed) > 0
}

/// The bytes that cuBLASLt may take an address to be a multiple of, of which it is one of `own`.
pub fn alignment(own: u32, dtype: DType) -> u32 {
    if held() { own.min(dtype.size() as u32) } else { own }
}

/// The operand as it is read: a copy where gaps between its rows, or its columns, are not to matter.
pub fn as_read(mut tensor: CubeTensor) -> CubeTensor {
    let last = tensor.rank() - 1;
    if !held() || tensor.is_contiguous() {
        return tensor;
    }
    if tensor.meta.strides()[last - 1] != 1 {
        return into_contiguous(tensor);
    }
    tensor.meta.swap(last - 1, last);
    let mut packed = into_contiguous(tensor);
    packed.meta.swap(last - 1, last);
    packed
}

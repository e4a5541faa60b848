//! [`Kernel`]: the kernels over many tensors, and what they are compiled from.

use burn::tensor::DType;

use super::TOGETHER;
#[cfg(test)]
use crate::device::cuda::program::Variant;
use crate::device::cuda::program::{Source, type_name};

/// A kernel of a source.
pub struct Kernel {
    pub name: &'static str,
    pub file: &'static str,
    pub text: fn() -> &'static str,
    /// Elements of a block.
    pub block: usize,
}

impl Kernel {
    /// For so many tensors in an entry, of these two types.
    pub fn source(&self, tensors: usize, [a, b]: [DType; 2]) -> Source {
        let macros = vec![
            format!("TENSORS={tensors}"),
            format!("MOST={TOGETHER}"),
            format!("BLOCK={}", self.block),
            format!("A={}", type_name(a)),
            format!("B={}", type_name(b)),
        ];
        Source { name: self.file, text: (self.text)(), macros, generation_only: false }
    }
}

pub const CAST: Kernel = Kernel { name: "cast", file: "many.cu", text: || MANY, block: 8192 };
pub const COPY: Kernel = Kernel { name: "copy", ..CAST };
pub const ADD: Kernel = Kernel { name: "add", ..CAST };
pub const SQUARES: Kernel = Kernel { name: "squares", ..CAST };
const MANY: &str = concat!(
    include_str!("../kernels/numbers.cuh"),
    include_str!("../kernels/many.cuh"),
    include_str!("../kernels/many.cu")
);
/// The pairs of each type.
#[cfg(test)]
pub fn variants() -> Vec<Variant> {
    use DType::{BF16, F16, F32};
    let names = [CAST, COPY, ADD, SQUARES].map(|kernel| kernel.name);
    let pairs = [[F32, F32], [BF16, BF16], [F16, F16], [F32, BF16], [BF16, F32]];
    pairs.map(|types| Variant::plain(CAST.source(2, types), names)).into()
}

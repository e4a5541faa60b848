//! [`Kernel`]: the kernels over many tensors, and what they are compiled from.

use std::sync::LazyLock;

use burn::tensor::DType;
use cpu_kernels::dynamic_map::{DynamicMap, SIGNED, UNSIGNED};

use super::TOGETHER;
#[cfg(test)]
use crate::device::cuda::program::Variant;
use crate::device::cuda::program::{Source, type_name};
use crate::device::cuda::tables::{philox, table};

/// A kernel of a source.
pub struct Kernel {
    pub name: &'static str,
    file: &'static str,
    text: fn() -> &'static str,
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

pub const ADAMW: Kernel = Kernel { name: "adamw", file: "many.cu", text: || MANY, block: 8192 };
pub const CAST: Kernel = Kernel { name: "cast", file: "many.cu", text: || MANY, block: 8192 };
pub const COPY: Kernel = Kernel { name: "copy", ..CAST };
pub const ADD: Kernel = Kernel { name: "add", ..CAST };
pub const SQUARES: Kernel = Kernel { name: "squares", ..CAST };
pub const ADAMW_8BIT: Kernel =
    // Each block copies the maps into its memory: 18 KB.
    Kernel { name: "adamw_8bit", file: "adamw_8bit.cu", text: || &EIGHT_BIT, block: 32_768 };
pub const ADAMW_BF16: Kernel =
    Kernel { name: "adamw_bf16", file: "adamw_bf16.cu", text: || &BFLOAT16, block: 8192 };

const MANY: &str = concat!(
    include_str!("../kernels/numbers.cuh"),
    include_str!("../kernels/many.cuh"),
    include_str!("../kernels/many.cu")
);
static BFLOAT16: LazyLock<String> = LazyLock::new(|| {
    let [numbers, many] = [include_str!("../kernels/numbers.cuh"), include_str!("../kernels/many.cuh")];
    [numbers, many, &philox(), include_str!("../kernels/adamw_bf16.cu")].concat()
});

/// With the maps, whose numbers are those of the CPU bit for bit.
static EIGHT_BIT: LazyLock<String> = LazyLock::new(|| {
    let map = |name: &str, map: &DynamicMap| {
        let of = |what: &str| format!("{name}_{what}");
        [
            table("u32", &of("VALUES"), map.values.map(f32::to_bits)),
            table("u32", &of("THRESHOLDS"), map.thresholds.map(f32::to_bits)),
            table("unsigned char", &of("CELLS"), map.cells.map(u32::from)),
        ]
        .concat()
    };
    [
        include_str!("../kernels/numbers.cuh"),
        include_str!("../kernels/many.cuh"),
        &map("SIGNED", &SIGNED),
        &map("UNSIGNED", &UNSIGNED),
        include_str!("../kernels/adamw_8bit.cu"),
    ]
    .concat()
});

/// Each kernel with parameters in each way of storing them, and the pairs of each type.
#[cfg(test)]
pub fn variants() -> Vec<Variant> {
    use DType::{BF16, F16, F32};
    let adamw = [
        (&ADAMW, 4, F32),
        (&ADAMW, 4, BF16),
        (&ADAMW, 4, F16),
        (&ADAMW, 5, BF16),
        (&ADAMW_8BIT, 4, F16),
        (&ADAMW_8BIT, 5, BF16),
        (&ADAMW_BF16, 4, F32),
        (&ADAMW_BF16, 5, BF16),
    ];
    let of = |(kernel, tensors, dtype): (&Kernel, _, _)| {
        Variant::plain(kernel.source(tensors, [dtype; 2]), [kernel.name])
    };
    let pairs = [[F32, F32], [BF16, BF16], [F16, F16], [F32, BF16], [BF16, F32]];
    let names = [CAST, COPY, ADD, SQUARES].map(|kernel| kernel.name);
    let pairs = pairs.map(|types| Variant::plain(CAST.source(2, types), names));
    adamw.map(of).into_iter().chain(pairs).collect()
}

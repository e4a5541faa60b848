//! The largest element of each row, in one launch.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;

use crate::device::cuda::launch::{Launch, Pointer, launch};
#[cfg(test)]
use crate::device::cuda::program::{NARROW, Variant};
use crate::device::cuda::program::{Source, type_name};
use crate::device::cuda::{Gpu, by_rows, empty, sizes};

const KERNEL: &str = "largest";
const THREADS: usize = 256;

/// The place of the largest element of each row of x [rows, columns], the first of equals, [rows, 1] i32.
///
/// # Panics
/// For any type but f32, bf16 and f16, or when the kernel cannot be compiled.
pub fn largest(x: CubeTensor) -> CubeTensor {
    let gpu = Gpu::of(&x).expect("a CUDA tensor");
    let x = by_rows(x);
    let [rows, columns] = sizes(&x, "x");
    assert!(rows > 0 && columns > 0, "the largest of [{rows}, {columns}]");
    let [function] = gpu.functions(&source(x.dtype), [(KERNEL, 0)]).unwrap_or_else(|e| panic!("{e}"));
    let places = empty(&x, [rows, 1], DType::I32);
    let pointers = [Some(Pointer::whole(&x)), Some(Pointer::whole(&places))];
    let integers = [columns, x.meta.strides()[0]].map(|size| i32::try_from(size).expect("fewer than 2^31"));
    let blocks = Launch { function, grid: [rows as u32, 1], threads: THREADS as u32 };
    launch(&places, pointers, integers.to_vec(), 0.0, [blocks]);
    places
}

fn source(dtype: DType) -> Source {
    let macros = vec![format!("A={}", type_name(dtype)), format!("THREADS={THREADS}")];
    let text = concat!(include_str!("../../device/cuda/kernels/numbers.cuh"), include_str!("largest.cu"));
    Source { name: "largest.cu", text, macros, generation_only: false }
}

#[cfg(test)]
pub fn variants() -> Vec<Variant> {
    NARROW.map(|dtype| Variant::plain(source(dtype), [KERNEL])).into()
}

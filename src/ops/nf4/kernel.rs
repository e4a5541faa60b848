//! Weights in 4 bits, which a kernel turns into numbers.

use std::sync::LazyLock;

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cpu_kernels::dynamic_map::SIGNED;
use cpu_kernels::nf4::{Packing, VALUES};

use crate::device::cuda::launch::{Launch, Pointer, launch};
#[cfg(test)]
use crate::device::cuda::program::{NARROW, Variant};
use crate::device::cuda::program::{Source, type_name};
use crate::device::cuda::tables::table;
use crate::device::cuda::{Gpu, empty};

const KERNEL: &str = "unpack";
/// Numbers of a thread, and threads of a block.
const OWN: usize = 8;
const THREADS: usize = 256;

static TEXT: LazyLock<String> = LazyLock::new(|| {
    [
        include_str!("../../device/cuda/kernels/numbers.cuh"),
        &table("u32", "SIGNED_VALUES", SIGNED.values.map(f32::to_bits)),
        &table("u32", "NF4_VALUES", VALUES.map(f32::to_bits)),
        include_str!("nf4.cu"),
    ]
    .concat()
});

/// The numbers of this shape that a contiguous tensor's bytes hold as [`Packing`] says, as `dtype`.
///
/// # Panics
/// When there are fewer bytes, or the kernel cannot be compiled.
pub fn unpack(packed: &CubeTensor, shape: [usize; 2], dtype: DType) -> CubeTensor {
    let elements = shape.iter().product::<usize>();
    let bytes = packed.meta.num_elements() * packed.dtype.size();
    assert!(packed.is_contiguous() && bytes >= Packing::of(elements).bytes(), "{bytes} bytes of {shape:?}");
    // A block's end is counted in 32 bits too.
    let count = i32::try_from(elements + OWN * THREADS).map(|_| elements as i32);
    let count = count.unwrap_or_else(|_| panic!("{elements} elements are too many for a packed weight"));
    let gpu = Gpu::of(packed).expect("a CUDA tensor");
    let [function] = gpu.functions(&source(dtype), [(KERNEL, 0)]).unwrap_or_else(|e| panic!("{e}"));
    let out = empty(packed, shape, dtype);
    let grid = [elements.div_ceil(OWN * THREADS) as u32, 1];
    let pointers = [Some(Pointer::whole(packed)), Some(Pointer::whole(&out))];
    launch(&out, pointers, vec![count], 0.0, [Launch { function, grid, threads: THREADS as u32 }]);
    out
}

fn source(dtype: DType) -> Source {
    let macros = vec![format!("A={}", type_name(dtype)), format!("OWN={OWN}u")];
    Source { name: "nf4.cu", text: &TEXT, macros, generation_only: false }
}

#[cfg(test)]
pub fn variants() -> Vec<Variant> {
    NARROW.map(|dtype| Variant::plain(source(dtype), [KERNEL])).into()
}

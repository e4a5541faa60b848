//! [`Kernels`]: the attention kernels of one type and head size.

use burn::tensor::DType;

use crate::device::cuda::launch::Launch;
#[cfg(test)]
use crate::device::cuda::program;
use crate::device::cuda::program::{Function, Source};
use crate::device::cuda::{Gpu, capability};
use crate::device::{Capability, Feature};

const TEXT: &str = concat!(
    include_str!("tile.cuh"),
    include_str!("product.cuh"),
    include_str!("forward.cu"),
    include_str!("backward.cu"),
    include_str!("backward_keys.cu"),
);

/// Rows of q, or of k and v, that a block of threads has; as in `tile.cuh`.
pub const OWN: usize = 64;
pub const THREADS: usize = 128;

/// A kernel of the source.
#[derive(Clone, Copy)]
pub enum Part {
    Forward,
    Queries,
    Keys,
    Sum,
}

impl Part {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Forward, "attend"),
        (Self::Queries, "attend_backward_queries"),
        (Self::Keys, "attend_backward_keys"),
        (Self::Sum, "attend_backward_sum"),
    ];
}

/// What the source is compiled for.
#[derive(Clone, Copy)]
struct Variant {
    bfloat16: bool,
    head_dim: usize,
    /// Hopper's tensor cores by warpgroup instructions, which no later generation has.
    wgmma: bool,
}

/// The kernels of one variant, loaded on a device.
#[derive(Clone, Copy)]
pub struct Kernels {
    variant: Variant,
    functions: [Function; 4],
}

/// Whether there are kernels for a type and head size on a device of this compute capability; `None`: one that has what is
/// asked for.
///
/// # Errors
/// Why there are none.
pub fn fits(dtype: DType, head_dim: usize, capability: Option<Capability>) -> Result<(), String> {
    if !matches!(dtype, DType::BF16 | DType::F16) {
        return Err("fused attention computes in bf16 and fp16".into());
    }
    if head_dim == 0 || !head_dim.is_multiple_of(16) || head_dim > 128 {
        return Err(format!("fused attention has heads of 16, 32, … 128 elements, not {head_dim}"));
    }
    match capability.filter(|capability| !capability.has(Feature::FusedAttention)) {
        Some(other) => Err(format!("{}, not {other}", Feature::FusedAttention)),
        None => Ok(()),
    }
}

impl Kernels {
    /// Compiled and loaded at the first call, which takes seconds.
    ///
    /// # Errors
    /// Why there are none; the answer stays the same in a process.
    pub fn of(gpu: &Gpu, dtype: DType, head_dim: usize) -> Result<Self, String> {
        let capability = capability(gpu.ordinal);
        fits(dtype, head_dim, Some(capability))?;
        let variant = Variant::of(capability, dtype, head_dim);
        let parts = Part::ALL.map(|(part, name)| (name, variant.shared(part)));
        Ok(Self { variant, functions: gpu.functions(&variant.source(), parts)? })
    }

    /// The instruction that multiplies.
    pub fn instruction(&self) -> &'static str {
        if self.variant.wgmma { "wgmma" } else { "mma.sync" }
    }

    pub fn dtype(&self) -> DType {
        if self.variant.bfloat16 { DType::BF16 } else { DType::F16 }
    }

    pub fn head_dim(&self) -> usize {
        self.variant.head_dim
    }

    pub fn launch(&self, part: Part, [x, y]: [usize; 2]) -> Launch {
        let function = self.functions[part as usize];
        Launch { function, grid: [x as u32, y as u32], threads: THREADS as u32 }
    }
}

impl Variant {
    /// Only Hopper has instructions of a warpgroup.
    fn of(capability: Capability, dtype: DType, head_dim: usize) -> Self {
        let wgmma = capability == Capability::new(9, 0) && head_dim.is_multiple_of(64);
        Self { bfloat16: dtype == DType::BF16, head_dim, wgmma }
    }

    /// Rows of a tile of queries that registers allow.
    fn queries(self) -> usize {
        if self.wgmma || self.head_dim <= 64 { 64 } else { 32 }
    }

    /// Bytes of shared memory; as the kernels lay it out.
    fn shared(self, part: Part) -> usize {
        // Rows lie in panels of 64 elements.
        let tile = |rows: usize| rows * self.head_dim.div_ceil(64) * 128;
        match part {
            Part::Forward => 5 * tile(OWN),
            Part::Queries => 6 * tile(OWN),
            // lse, delta and start of the queries of two stages.
            Part::Keys => 2 * tile(OWN) + 4 * tile(self.queries()) + 2 * 3 * 4 * self.queries(),
            Part::Sum => 0,
        }
    }

    fn source(self) -> Source {
        let Self { bfloat16, head_dim, wgmma } = self;
        let macros = vec![
            format!("BFLOAT16={}", u8::from(bfloat16)),
            format!("HEAD_DIM={head_dim}"),
            format!("WGMMA={}", u8::from(wgmma)),
            format!("QUERIES={}", self.queries()),
        ];
        Source { name: "flash.cu", text: TEXT, macros, generation_only: wgmma }
    }
}

/// The head sizes with the most shared memory and registers, of the ways that a block is laid out: Hopper has one by other
/// instructions.
#[cfg(test)]
pub fn variants(capability: Capability) -> Vec<program::Variant> {
    let other = if Variant::of(capability, DType::F16, 64).wgmma { 80 } else { 64 };
    let all = [(DType::BF16, 128), (DType::F16, other)];
    let all = all.into_iter().filter(|(dtype, head_dim)| fits(*dtype, *head_dim, Some(capability)).is_ok());
    let of = |(dtype, head_dim)| {
        let variant = Variant::of(capability, dtype, head_dim);
        let kernels = Part::ALL.map(|(part, name)| (name, variant.shared(part)));
        program::Variant { source: variant.source(), kernels: kernels.into() }
    };
    all.map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_head_sizes() {
        for head_dim in [16, 64, 80, 128] {
            assert_eq!(fits(DType::BF16, head_dim, None), Ok(()));
        }
        assert!(fits(DType::F32, 64, None).unwrap_err().contains("bf16 and fp16"));
        for head_dim in [0, 20, 144] {
            assert!(fits(DType::F16, head_dim, None).unwrap_err().contains(&format!("not {head_dim}")));
        }
        let on = |major, minor| fits(DType::F16, 64, Some(Capability::new(major, minor)));
        assert_eq!(on(7, 5), Err("fused attention needs compute capability 8.0, not 7.5".into()));
        assert_eq!((on(8, 0), on(12, 0)), (Ok(()), Ok(())));
    }

    /// The least a block may have on devices from 8.6 on is 99 KiB.
    #[test]
    fn tiles_fit_into_shared_memory() {
        for head_dim in (16..=128).step_by(16) {
            let variant = Variant { bfloat16: true, head_dim, wgmma: false };
            for (part, _) in Part::ALL {
                assert!(variant.shared(part) <= 99 << 10);
            }
        }
    }
}

//! [`Kernels`]: the attention kernels of one type, head size and kind of scores.

use burn::tensor::DType;

use crate::device::cuda::launch::Launch;
#[cfg(test)]
use crate::device::cuda::program;
use crate::device::cuda::program::{Function, Source};
use crate::device::cuda::{Gpu, capability};
use crate::device::{Capability, Feature};
use crate::ops::attention::Scores;

const TEXT: &str = concat!(
    include_str!("tile.cuh"),
    include_str!("product.cuh"),
    include_str!("queries.cuh"),
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
    windowed: bool,
    soft_cap: Option<f32>,
    /// Whether a block may have the shared memory of tiles of 32 rows of the largest heads.
    ample: bool,
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
    if head_dim == 0 || !head_dim.is_multiple_of(8) || head_dim > 256 {
        return Err(format!("fused attention has heads of 8, 16, … 256 elements, not {head_dim}"));
    }
    match capability.filter(|capability| !capability.has(Feature::FusedAttention)) {
        Some(other) => Err(format!("{}, not {other}", Feature::FusedAttention)),
        None => Ok(()),
    }
}

/// Whether registers do not hold the sums for dK and dV of a block of keys at once, so that two blocks sum them.
pub fn sums_apart(head_dim: usize) -> bool {
    head_dim > 128
}

/// The soft cap of scores as the sources take it.
pub fn soft_cap_macro(soft_cap: Option<f32>) -> Option<String> {
    soft_cap.map(|cap| format!("SOFT_CAP={cap:?}f"))
}

impl Kernels {
    /// Compiled and loaded at the first call, which takes seconds.
    ///
    /// # Errors
    /// Why there are none; the answer stays the same in a process.
    pub fn of(gpu: &Gpu, dtype: DType, head_dim: usize, scores: Scores) -> Result<Self, String> {
        let capability = capability(gpu.ordinal);
        fits(dtype, head_dim, Some(capability))?;
        let variant = Variant::of(capability, dtype, head_dim, scores);
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

    /// Whether they compute these scores.
    pub fn computes(&self, scores: Scores) -> bool {
        let Variant { windowed, soft_cap, .. } = self.variant;
        soft_cap == scores.soft_cap.map(|cap| cap as f32) && (windowed || scores.window.is_none())
    }

    /// Blocks of [`Part::Keys`] that have the same keys.
    pub fn sums(&self) -> usize {
        if sums_apart(self.variant.head_dim) { 2 } else { 1 }
    }

    pub fn launch(&self, part: Part, [x, y]: [usize; 2]) -> Launch {
        let function = self.functions[part as usize];
        Launch { function, grid: [x as u32, y as u32], threads: THREADS as u32 }
    }
}

impl Variant {
    /// Only Hopper has instructions of a warpgroup.
    fn of(capability: Capability, dtype: DType, head_dim: usize, scores: Scores) -> Self {
        let wgmma = capability == Capability::new(9, 0) && head_dim.is_multiple_of(64) && head_dim <= 128;
        Self {
            bfloat16: dtype == DType::BF16,
            head_dim,
            windowed: scores.window.is_some(),
            soft_cap: scores.soft_cap.map(|cap| cap as f32),
            ample: capability.shared_memory() >= 130 << 10,
            wgmma,
        }
    }

    /// Rows that registers and shared memory allow: of a tile of keys in forward and in backward, and of one of queries.
    fn rows(self) -> [usize; 3] {
        match self.head_dim {
            ..=64 => [64, 64, 64],
            65..=128 => [64, 64, if self.wgmma { 64 } else { 32 }],
            129..=192 => [32, 32, 32],
            _ if self.ample => [32, 32, 32],
            _ => [32, 16, 16],
        }
    }

    /// Bytes of shared memory; as the kernels lay it out.
    fn shared(self, part: Part) -> usize {
        // Rows lie in panels of 64 elements.
        let tile = |rows: usize| rows * self.head_dim.div_ceil(64) * 128;
        let [forward, backward, queries] = self.rows();
        match part {
            Part::Forward => tile(OWN) + 4 * tile(forward),
            Part::Queries => 2 * tile(OWN) + 4 * tile(backward),
            // lse, delta and start of the queries of two stages.
            Part::Keys => 2 * tile(OWN) + 4 * tile(queries) + 2 * 3 * 4 * queries,
            Part::Sum => 0,
        }
    }

    fn source(self) -> Source {
        let Self { bfloat16, head_dim, windowed, soft_cap, wgmma, .. } = self;
        let [forward, backward, queries] = self.rows();
        let mut macros = vec![
            format!("BFLOAT16={}", u8::from(bfloat16)),
            format!("HEAD_DIM={head_dim}"),
            format!("WGMMA={}", u8::from(wgmma)),
            format!("FORWARD_KEYS={forward}"),
            format!("BACKWARD_KEYS={backward}"),
            format!("QUERIES={queries}"),
            format!("WINDOW={}", u8::from(windowed)),
        ];
        macros.extend(soft_cap_macro(soft_cap));
        Source { name: "flash.cu", text: TEXT, macros, generation_only: wgmma }
    }
}

/// The head sizes with the most shared memory and registers, of the ways that a block is laid out: Hopper has one by other
/// instructions. With the options of scores, and a head of an odd multiple of 8 elements.
#[cfg(test)]
pub fn variants(capability: Capability) -> Vec<program::Variant> {
    let scores = Scores::default();
    let options = Scores { soft_cap: Some(50.0), window: Some(100), ..scores };
    let other = if Variant::of(capability, DType::F16, 64, scores).wgmma { 80 } else { 64 };
    let all = [
        (DType::BF16, 128, scores),
        (DType::F16, other, scores),
        (DType::BF16, 256, options),
        (DType::BF16, 64, options),
        (DType::F16, 104, options),
    ];
    let all =
        all.into_iter().filter(|(dtype, head_dim, _)| fits(*dtype, *head_dim, Some(capability)).is_ok());
    let compiled = |(dtype, head_dim, scores)| {
        let variant = Variant::of(capability, dtype, head_dim, scores);
        let kernels = Part::ALL.map(|(part, name)| (name, variant.shared(part)));
        program::Variant { source: variant.source(), kernels: kernels.into() }
    };
    all.map(compiled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_head_sizes() {
        for head_dim in [8, 64, 80, 128, 192, 256] {
            assert_eq!(fits(DType::BF16, head_dim, None), Ok(()));
        }
        assert!(fits(DType::F32, 64, None).unwrap_err().contains("bf16 and fp16"));
        for head_dim in [0, 20, 264] {
            assert!(fits(DType::F16, head_dim, None).unwrap_err().contains(&format!("not {head_dim}")));
        }
        let on = |major, minor| fits(DType::F16, 64, Some(Capability::new(major, minor)));
        assert_eq!(on(7, 5), Err("fused attention needs compute capability 8.0, not 7.5".into()));
        assert_eq!((on(8, 0), on(12, 0)), (Ok(()), Ok(())));
    }

    #[test]
    fn tiles_fit_into_shared_memory() {
        for capability in [Capability::new(8, 0), Capability::new(8, 6), Capability::new(9, 0)] {
            for head_dim in (8..=256).step_by(8) {
                let variant = Variant::of(capability, DType::BF16, head_dim, Scores::default());
                for (part, _) in Part::ALL {
                    assert!(variant.shared(part) <= capability.shared_memory());
                }
            }
        }
    }
}

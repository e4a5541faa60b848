//! Conversion between fp32, fp16 and bf16, in bytes, as fast as memory allows.

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;
use safetensors::Dtype;

/// Elements converted at a time, through fp32 on the stack: 4 KiB stay in the first cache.
const BLOCK: usize = 1024;
/// Elements below which other threads cost more than they save.
const PIECE: usize = 256 * BLOCK;

/// A type that weights can be read from and written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float {
    F32,
    F16,
    Bf16,
}

impl Float {
    pub fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::F16 => Some(Self::F16),
            Dtype::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// Writes the elements of `src` into `out`, which has room for exactly as many. A widening is
/// exact; a narrowing rounds to nearest even, overflows to infinity and keeps NaN a NaN.
pub fn convert(src: &[u8], from: Float, out: &mut [u8], to: Float) {
    debug_assert_eq!(src.len() / from.bytes(), out.len() / to.bytes());
    let pieces = out.par_chunks_mut(PIECE * to.bytes()).zip(src.par_chunks(PIECE * from.bytes()));
    pieces.for_each(|(out, src)| {
        if from == to {
            out.copy_from_slice(src);
            return;
        }
        let blocks = out.chunks_mut(BLOCK * to.bytes()).zip(src.chunks(BLOCK * from.bytes()));
        let mut values = [0.0; BLOCK];
        for (out, src) in blocks {
            let values = &mut values[..out.len() / to.bytes()];
            decode(src, from, values);
            encode(values, to, out);
        }
    });
}

fn decode(src: &[u8], from: Float, values: &mut [f32]) {
    match from {
        Float::F32 => {
            for (value, bytes) in values.iter_mut().zip(src.as_chunks().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        Float::Bf16 => {
            for (value, bytes) in values.iter_mut().zip(src.as_chunks().0) {
                *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
            }
        }
        Float::F16 => {
            let mut halves = [f16::ZERO; BLOCK];
            let halves = &mut halves[..values.len()];
            for (half, bytes) in halves.iter_mut().zip(src.as_chunks().0) {
                *half = f16::from_le_bytes(*bytes);
            }
            halves.convert_to_f32_slice(values);
        }
    }
}

fn encode(values: &[f32], to: Float, out: &mut [u8]) {
    match to {
        Float::F32 => {
            for (bytes, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
        }
        Float::Bf16 => {
            for (bytes, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
                *bytes = to_bf16(*value).to_le_bytes();
            }
        }
        Float::F16 => {
            let mut halves = [f16::ZERO; BLOCK];
            let halves = &mut halves[..values.len()];
            halves.convert_from_f32_slice(values);
            for (bytes, half) in out.as_chunks_mut().0.iter_mut().zip(halves) {
                *bytes = half.to_le_bytes();
            }
        }
    }
}

/// The upper half of fp32, rounded to nearest even, without a branch so that it vectorises.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    // Rounding could carry a NaN's mantissa over to infinity: it is cut instead, and kept quiet.
    let nan = (bits >> 16) as u16 | 0x40;
    if value.is_nan() { nan } else { rounded }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    /// Every bf16 and fp16 value, and fp32 values around every rounding boundary.
    fn samples() -> Vec<f32> {
        let halves = (0..=u16::MAX).flat_map(|bits| {
            [f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32()].into_iter().flat_map(|x| {
                [0u32, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff]
                    .map(|low| f32::from_bits(x.to_bits() ^ low))
            })
        });
        halves.collect()
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    #[test]
    fn narrowing_rounds_to_nearest_even() {
        let values = samples();
        let src: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut out = vec![0; values.len() * 2];
        convert(&src, Float::F32, &mut out, Float::Bf16);
        for (x, bytes) in values.iter().zip(out.as_chunks().0) {
            let (ours, expected) = (bf16::from_le_bytes(*bytes), bf16::from_f32(*x));
            assert!(same(ours.to_f32(), expected.to_f32()), "{x:e}: {ours} not {expected}");
        }
        convert(&src, Float::F32, &mut out, Float::F16);
        for (x, bytes) in values.iter().zip(out.as_chunks().0) {
            let (ours, expected) = (f16::from_le_bytes(*bytes), f16::from_f32_const(*x));
            assert!(same(ours.to_f32(), expected.to_f32()), "{x:e}: {ours} not {expected}");
        }
    }

    #[test]
    fn widening_is_exact_and_comes_back() {
        let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for float in [Float::F16, Float::Bf16] {
            let (mut wide, mut back) = (vec![0; bits.len() * 2], vec![0; bits.len()]);
            convert(&bits, float, &mut wide, Float::F32);
            convert(&wide, Float::F32, &mut back, float);
            let nan = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes).is_nan();
            for ((before, after), wide) in
                bits.as_chunks::<2>().0.iter().zip(back.as_chunks().0).zip(wide.as_chunks().0)
            {
                assert!(before == after || nan(wide), "{before:?} became {after:?}");
            }
        }
    }

    #[test]
    fn one_half_type_becomes_the_other_with_one_rounding() {
        let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let mut out = vec![0; bits.len()];
        convert(&bits, Float::F16, &mut out, Float::Bf16);
        for (src, dst) in bits.as_chunks().0.iter().zip(out.as_chunks().0) {
            let expected = bf16::from_f32(f16::from_le_bytes(*src).to_f32());
            assert!(same(bf16::from_le_bytes(*dst).to_f32(), expected.to_f32()));
        }
    }
}

//! Conversion of a file's elements between fp32, fp16 and bf16, as fast as memory allows.

use std::ops::Range;

use burn::tensor::DType;
use rayon::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::device::elements::{round, widen};

/// Elements converted at a time, through fp32 on the stack: 4 KiB stay in the first cache.
const BLOCK: usize = 1024;
/// Elements below which other threads cost more than they save.
const PIECE: usize = 256 * BLOCK;

/// The types that weights are read from and written as.
const TYPES: [(Dtype, DType); 3] =
    [(Dtype::F32, DType::F32), (Dtype::F16, DType::F16), (Dtype::BF16, DType::BF16)];

/// Burn's name of a file's type; `None` where weights cannot have it.
pub fn float(dtype: Dtype) -> Option<DType> {
    TYPES.iter().find(|(stored, _)| *stored == dtype).map(|(_, float)| *float)
}

/// The inverse of [`float`].
pub fn stored(dtype: DType) -> Dtype {
    let found = TYPES.iter().find(|(_, float)| *float == dtype);
    found.unwrap_or_else(|| unreachable!("parameters are stored in fp32, bf16 or fp16, not {dtype:?}")).0
}

/// Writes some of a tensor's elements, in their order in memory, into `out` as `dtype`.
///
/// # Panics
/// When weights cannot have the tensor's type.
pub fn write_elements(tensor: &TensorView, elements: Range<usize>, out: &mut [u8], dtype: DType) {
    let from = float(tensor.dtype()).expect("checked when opened");
    let bytes = &tensor.data()[elements.start * from.size()..elements.end * from.size()];
    convert(bytes, from, out, dtype);
}

/// Writes the elements of `src` into `out`, which has room for exactly as many. A widening is
/// exact; a narrowing rounds to nearest even, overflows to infinity and keeps NaN a NaN.
fn convert(src: &[u8], from: DType, out: &mut [u8], to: DType) {
    assert_eq!(src.len() / from.size(), out.len() / to.size());
    let pieces = out.par_chunks_mut(PIECE * to.size()).zip(src.par_chunks(PIECE * from.size()));
    pieces.for_each(|(out, src)| {
        if from == to {
            out.copy_from_slice(src);
            return;
        }
        // The bytes of a file are not aligned: they pass through an array that is.
        let (mut values, mut aligned) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
        let aligned: &mut [u8] = bytemuck::cast_slice_mut(&mut aligned);
        for (out, src) in out.chunks_mut(BLOCK * to.size()).zip(src.chunks(BLOCK * from.size())) {
            let values = &mut values[..out.len() / to.size()];
            aligned[..src.len()].copy_from_slice(src);
            widen(from, &aligned[..src.len()], values);
            round(to, values, &mut aligned[..out.len()]);
            out.copy_from_slice(&aligned[..out.len()]);
        }
    });
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

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
        convert(&src, DType::F32, &mut out, DType::BF16);
        for (x, bytes) in values.iter().zip(out.as_chunks().0) {
            let (ours, expected) = (bf16::from_le_bytes(*bytes), bf16::from_f32(*x));
            assert!(same(ours.to_f32(), expected.to_f32()), "{x:e}: {ours} not {expected}");
        }
        convert(&src, DType::F32, &mut out, DType::F16);
        for (x, bytes) in values.iter().zip(out.as_chunks().0) {
            let (ours, expected) = (f16::from_le_bytes(*bytes), f16::from_f32_const(*x));
            assert!(same(ours.to_f32(), expected.to_f32()), "{x:e}: {ours} not {expected}");
        }
    }

    #[test]
    fn widening_is_exact_and_comes_back() {
        let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for float in [DType::F16, DType::BF16] {
            let (mut wide, mut back) = (vec![0; bits.len() * 2], vec![0; bits.len()]);
            convert(&bits, float, &mut wide, DType::F32);
            convert(&wide, DType::F32, &mut back, float);
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
        convert(&bits, DType::F16, &mut out, DType::BF16);
        for (src, dst) in bits.as_chunks().0.iter().zip(out.as_chunks().0) {
            let expected = bf16::from_f32(f16::from_le_bytes(*src).to_f32());
            assert!(same(bf16::from_le_bytes(*dst).to_f32(), expected.to_f32()));
        }
    }
}

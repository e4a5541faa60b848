//! Elements of tensors as bytes on the host, between fp32 and what parameters are stored in.

use burn::tensor::DType;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// Elements of `dtype`, aligned to it, as fp32.
#[inline(always)]
pub fn widen(dtype: DType, from: &[u8], to: &mut [f32]) {
    match dtype {
        DType::F32 => to.copy_from_slice(bytemuck::cast_slice(from)),
        DType::BF16 => {
            let from: &[u16] = bytemuck::cast_slice(from);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_bits(u32::from(*from) << 16));
        }
        DType::F16 => f16s(from).convert_to_f32_slice(to),
        other => unreachable!("parameters are stored in fp32, bf16 or fp16, not {other:?}"),
    }
}

/// fp32 as elements of `dtype`, rounded to the nearest, of two to the even one.
#[inline(always)]
pub fn round(dtype: DType, from: &[f32], to: &mut [u8]) {
    match dtype {
        DType::F32 => to.copy_from_slice(bytemuck::cast_slice(from)),
        DType::BF16 => {
            let to: &mut [u16] = bytemuck::cast_slice_mut(to);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = bf16_bits(*from));
        }
        DType::F16 => f16s_mut(to).convert_from_f32_slice(from),
        other => unreachable!("parameters are stored in fp32, bf16 or fp16, not {other:?}"),
    }
}

fn f16s(bytes: &[u8]) -> &[f16] {
    bytemuck::cast_slice::<u8, u16>(bytes).reinterpret_cast()
}

fn f16s_mut(bytes: &mut [u8]) -> &mut [f16] {
    bytemuck::cast_slice_mut::<u8, u16>(bytes).reinterpret_cast_mut()
}

/// As `half::bf16::from_f32`, without branches, so that the loop around it becomes vector instructions.
#[inline(always)]
fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding must not carry a NaN into infinity.
    let quiet = (bits >> 16) | 0x40;
    (if value.is_nan() { quiet } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_to_the_nearest_and_keeps_infinities_and_nan() {
        // Half-way between two bf16 numbers, to the even one below and above; and close to such a place.
        let (below, above) = (1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0);
        let values = [0.0, 1.0, below, above, -below * 1.000_001, 3.4e38, f32::INFINITY, f32::MIN_POSITIVE];
        for value in values {
            assert_eq!(bf16_bits(value), half::bf16::from_f32(value).to_bits(), "{value}");
        }
        assert!(half::bf16::from_bits(bf16_bits(f32::from_bits(0x7f80_0001))).is_nan());
    }
}

//! Weights in 4 bits (Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs"): NormalFloat codes of blocks of
//! 64, whose largest numbers are quantized again. Codes are those of bitsandbytes, bit for bit.
//!
//! | bytes of n numbers | |
//! |---|---|
//! | ⌈n / 2⌉, up to a multiple of 16 | codes, the first of two in the upper half of a byte |
//! | 4 | the mean of the blocks' largest numbers, fp32 |
//! | 4 for each 256 blocks | the largest of what these are above or below their mean, fp32 |
//! | 1 for each block | code of that in the signed dynamic map |

use std::ops::Range;

use rayon::prelude::*;

use crate::dynamic_map::{BLOCK as OUTER, SIGNED};

/// Numbers that share a largest.
pub const BLOCK: usize = 64;

/// The means of 16 equally likely parts of a normal distribution, so that one of them is 0, over the largest of them.
pub const VALUES: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];
/// The code of 0.
const ZERO: u8 = 7;

/// Blocks of a thread at a time.
const CHUNK: usize = 128;

/// Where the parts of packed numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    elements: usize,
}

impl Packing {
    pub fn of(elements: usize) -> Self {
        Self { elements }
    }

    fn blocks(self) -> usize {
        self.elements.div_ceil(BLOCK)
    }

    fn codes(self) -> Range<usize> {
        0..self.elements.div_ceil(2)
    }

    fn mean(self) -> Range<usize> {
        let start = self.elements.div_ceil(2).next_multiple_of(16);
        start..start + 4
    }

    fn outer(self) -> Range<usize> {
        let start = self.mean().end;
        start..start + 4 * self.blocks().div_ceil(OUTER)
    }

    fn inner(self) -> Range<usize> {
        let start = self.outer().end;
        start..start + self.blocks()
    }

    /// Bytes of all parts.
    pub fn bytes(self) -> usize {
        self.inner().end
    }

    /// Packs numbers into memory of so many bytes.
    ///
    /// # Panics
    /// When there are more or fewer numbers or bytes.
    pub fn pack(self, numbers: &[f32], packed: &mut [u8]) {
        assert_eq!((numbers.len(), packed.len()), (self.elements, self.bytes()), "numbers and their memory");
        let mut largest = vec![0.0f32; self.blocks()];
        let chunks = packed[self.codes()].par_chunks_mut(CHUNK * BLOCK / 2);
        let chunks = chunks.zip(numbers.par_chunks(CHUNK * BLOCK)).zip(largest.par_chunks_mut(CHUNK));
        chunks.for_each(|((codes, numbers), largest)| {
            let blocks = codes.chunks_mut(BLOCK / 2).zip(numbers.chunks(BLOCK)).zip(largest);
            blocks.for_each(|((codes, numbers), largest)| *largest = encode(numbers, codes));
        });
        // Summed in fp64 and rounded once.
        let mean = largest.iter().map(|x| f64::from(*x)).sum::<f64>() / largest.len().max(1) as f64;
        self.pack_largest(&mut largest, mean as f32, packed);
    }

    fn pack_largest(self, largest: &mut [f32], mean: f32, packed: &mut [u8]) {
        largest.iter_mut().for_each(|largest| *largest -= mean);
        packed[self.mean()].copy_from_slice(&mean.to_le_bytes());
        for (i, numbers) in largest.chunks(OUTER).enumerate() {
            let inner = &mut packed[self.inner()][i * OUTER..][..numbers.len()];
            let outer = SIGNED.encode(numbers, inner);
            packed[self.outer()][4 * i..4 * (i + 1)].copy_from_slice(&outer.to_le_bytes());
        }
    }

    /// Calls `write` with the numbers of each chunk and their part of `out`, which has as many bytes for each number, on all
    /// threads.
    ///
    /// # Panics
    /// When there are more or fewer bytes.
    pub fn unpack(self, packed: &[u8], out: &mut [u8], write: impl Fn(&[f32], &mut [u8]) + Sync) {
        assert_eq!(packed.len(), self.bytes(), "packed numbers and their memory");
        let size = out.len() / self.elements.max(1);
        assert_eq!(out.len(), size * self.elements, "numbers and their memory");
        let (inner, outer) = (&packed[self.inner()], &packed[self.outer()]);
        let mean = float(&packed[self.mean()]);
        let chunks = packed[self.codes()].par_chunks(CHUNK * BLOCK / 2);
        chunks.zip(out.par_chunks_mut(CHUNK * BLOCK * size)).enumerate().for_each(|(chunk, (codes, out))| {
            let mut numbers = [0.0f32; CHUNK * BLOCK];
            let first = chunk * CHUNK;
            let blocks = numbers.chunks_mut(BLOCK).zip(codes.chunks(BLOCK / 2)).enumerate();
            for (i, (numbers, codes)) in blocks {
                let block = first + i;
                let outer = float(&outer[block / OUTER * 4..][..4]);
                let largest = SIGNED.values[usize::from(inner[block])] * outer + mean;
                let values = VALUES.map(|value| value * largest);
                for (two, codes) in numbers.chunks_mut(2).zip(codes) {
                    two[0] = values[usize::from(codes >> 4)];
                    two[1] = values[usize::from(codes & 15)];
                }
            }
            write(&numbers[..out.len() / size], out);
        });
    }
}

/// The codes of one block, and the largest of its absolute values. A block of zeros has the code of 0.
fn encode(numbers: &[f32], codes: &mut [u8]) -> f32 {
    let largest = numbers.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let inverse = 1.0 / largest;
    let code = |x: f32| if largest > 0.0 { code(x * inverse) } else { ZERO };
    for (codes, two) in codes.iter_mut().zip(numbers.chunks(2)) {
        *codes = code(two[0]) << 4 | two.get(1).map_or(0, |x| code(*x));
    }
    largest
}

/// The code of the nearest value, the lower one of two: so many places half-way between values are below x.
fn code(x: f32) -> u8 {
    VALUES.windows(2).map(|two| u8::from(x > (two[0] + two[1]) / 2.0)).sum()
}

fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `tests/fixtures/bitsandbytes/make.py` has written: see there.
    const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/bitsandbytes/nf4.bin");

    fn unpacked(packing: Packing, packed: &[u8]) -> Vec<f32> {
        let mut bytes = vec![0xff; 4 * packing.elements];
        packing.unpack(packed, &mut bytes, |numbers, bytes| {
            let each = bytes.chunks_mut(4).zip(numbers);
            each.for_each(|(bytes, number)| bytes.copy_from_slice(&number.to_le_bytes()));
        });
        bytes.chunks(4).map(float).collect()
    }

    #[test]
    fn codes_and_what_comes_back_are_bitsandbytes_bit_for_bit() {
        let bytes = std::fs::read(FIXTURE).expect("the fixture");
        let mut rest = bytes.as_slice();
        let mut take = |bytes: usize| {
            let (first, others) = rest.split_at(bytes);
            rest = others;
            first
        };
        let floats = |bytes: &[u8]| bytes.chunks(4).map(float).collect::<Vec<_>>();
        for _ in 0..3 {
            let elements = float(take(4)).to_bits() as usize;
            let packing = Packing::of(elements);
            let numbers = floats(take(4 * elements));
            let mut packed = vec![0; packing.bytes()];
            packing.pack(&numbers, &mut packed);
            assert_eq!(&packed[packing.codes()], take(elements / 2));
            assert_eq!(&packed[packing.inner()], take(packing.blocks()));
            assert_eq!(&packed[packing.outer()], take(packing.outer().len()));
            assert_eq!(&packed[packing.mean()], take(4));
            assert_eq!(unpacked(packing, &packed), floats(take(4 * elements)));
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn values_come_back_and_zeros_stay_zeros() {
        // 10 blocks, one of zeros, and half a block.
        let packing = Packing::of(10 * BLOCK + 31);
        let mut numbers: Vec<f32> = (0..packing.elements).map(|i| 0.03 * VALUES[i % 16]).collect();
        numbers[BLOCK..2 * BLOCK].fill(0.0);
        let mut packed = vec![0; packing.bytes()];
        packing.pack(&numbers, &mut packed);
        for (x, back) in numbers.iter().zip(unpacked(packing, &packed)) {
            assert!((x - back).abs() <= 1e-2 * x.abs(), "{x} {back}");
        }
        // Half a byte a number, and 1 / 64 and 1 / 4096 of a byte.
        let bytes = Packing::of(1 << 20).bytes();
        assert_eq!(bytes, (1 << 19) + 4 + 4 * (1 << 14) / 256 + (1 << 14));
    }
}

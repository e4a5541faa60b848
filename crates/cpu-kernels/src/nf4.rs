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

use crate::dynamic_map::{self, BLOCK as OUTER, SIGNED};
use crate::simd::vectorised;

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
const ZERO: i32 = 7;
/// Between two values the number that is as far from both.
const HALF_WAY: [f32; 15] = {
    let (mut half_way, mut i) = ([0.0; 15], 0);
    while i < half_way.len() {
        half_way[i] = (VALUES[i] + VALUES[i + 1]) / 2.0;
        i += 1;
    }
    half_way
};

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

    /// Packs elements into memory of so many bytes, on all threads; `read` makes numbers of the bytes of a chunk of them.
    ///
    /// # Panics
    /// When there are more or fewer bytes.
    pub fn pack(self, elements: &[u8], packed: &mut [u8], read: impl Fn(&[u8], &mut [f32]) + Sync) {
        assert_eq!(packed.len(), self.bytes(), "packed numbers and their memory");
        let size = elements.len() / self.elements.max(1);
        assert_eq!(elements.len(), size * self.elements, "elements and their numbers");
        let mut largest = vec![0.0f32; self.blocks()];
        let chunks = packed[self.codes()].par_chunks_mut(CHUNK * BLOCK / 2);
        let chunks = chunks.zip(elements.par_chunks(CHUNK * BLOCK * size)).zip(largest.par_chunks_mut(CHUNK));
        chunks.for_each(|((codes, elements), largest)| {
            with_numbers(|numbers| {
                let numbers = &mut numbers[..elements.len() / size];
                read(elements, numbers);
                encode(numbers, codes, largest);
            });
        });
        // Summed in fp64 and rounded once.
        let mean = largest.iter().map(|x| f64::from(*x)).sum::<f64>() / largest.len().max(1) as f64;
        self.pack_largest(&mut largest, mean as f32, packed);
    }

    fn pack_largest(self, largest: &mut [f32], mean: f32, packed: &mut [u8]) {
        packed[self.mean()].copy_from_slice(&mean.to_le_bytes());
        let (outer, inner) = packed[self.mean().end..].split_at_mut(self.outer().len());
        let groups =
            largest.par_chunks_mut(OUTER).zip(inner.par_chunks_mut(OUTER)).zip(outer.par_chunks_mut(4));
        groups.for_each(|((largest, inner), outer)| {
            largest.iter_mut().for_each(|largest| *largest -= mean);
            outer.copy_from_slice(&SIGNED.encode(largest, inner).to_le_bytes());
        });
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
        let decode = |first: usize, codes: &[u8], numbers: &mut [f32]| {
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
        };
        chunks.zip(out.par_chunks_mut(CHUNK * BLOCK * size)).enumerate().for_each(|(chunk, (codes, out))| {
            with_numbers(|numbers| {
                decode(chunk * CHUNK, codes, numbers);
                write(&numbers[..out.len() / size], out);
            });
        });
    }
}

/// Lends memory for a chunk's numbers. Never inlined: these 32 KiB would be in each frame of rayon's recursion, and a thread
/// that waits for a part runs other parts on top of it.
#[inline(never)]
fn with_numbers(run: impl FnOnce(&mut [f32])) {
    run(&mut [0.0; CHUNK * BLOCK]);
}

vectorised! {
    /// The codes of blocks, and the largest of each one's absolute values. A block of zeros has the code of 0.
    fn encode[FMA](numbers: &[f32], codes: &mut [u8], largest: &mut [f32]) {
        let mut scaled = [0.0f32; BLOCK];
        for ((numbers, codes), largest) in numbers.chunks(BLOCK).zip(codes.chunks_mut(BLOCK / 2)).zip(largest) {
            scaled[..numbers.len()].copy_from_slice(numbers);
            scaled[numbers.len()..].fill(0.0);
            *largest = dynamic_map::largest(numbers);
            let inverse = 1.0 / *largest;
            scaled.iter_mut().for_each(|x| *x *= inverse);
            // The code of the nearest value, the lower one of two: so many places half-way between values are below x.
            let places = scaled.map(|x| HALF_WAY.iter().fold(0, |place, half_way| place + i32::from(x > *half_way)));
            let places = if *largest == 0.0 { [ZERO; BLOCK] } else { places };
            let twos = places.as_chunks::<2>().0;
            codes.iter_mut().zip(twos).for_each(|(codes, two)| *codes = (two[0] << 4 | two[1]) as u8);
        }
    }
}

fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `tests/fixtures/bitsandbytes/make.py` has written: see there.
    const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/bitsandbytes/nf4.bin");

    fn pack(packing: Packing, numbers: &[f32], packed: &mut [u8]) {
        let elements: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let read = |bytes: &[u8], numbers: &mut [f32]| {
            numbers.iter_mut().zip(bytes.chunks(4)).for_each(|(number, bytes)| *number = float(bytes));
        };
        packing.pack(&elements, packed, read);
    }

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
            pack(packing, &numbers, &mut packed);
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
        pack(packing, &numbers, &mut packed);
        for (x, back) in numbers.iter().zip(unpacked(packing, &packed)) {
            assert!((x - back).abs() <= 1e-2 * x.abs(), "{x} {back}");
        }
        // Half a byte a number, and 1 / 64 and 1 / 4096 of a byte.
        let bytes = Packing::of(1 << 20).bytes();
        assert_eq!(bytes, (1 << 19) + 4 + 4 * (1 << 14) / 256 + (1 << 14));
    }
}

//! Random numbers by their place: Philox4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"), a
//! function of a key and a counter; and dropout by these numbers.

use rayon::prelude::*;

use crate::CHUNK;
use crate::simd::vectorised;

/// The constants of Philox4x32-10.
pub const ROUNDS: u32 = 10;
pub const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
pub const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Counters that are computed side by side: one vector of AVX-512.
const LANES: usize = 16;
/// Numbers of a counter.
const NUMBERS: usize = 4;

/// Four numbers.
#[inline(always)]
pub fn philox(counter: [u32; NUMBERS], key: [u32; 2]) -> [u32; NUMBERS] {
    side_by_side(counter.map(|number| [number]), key).map(|[number]| number)
}

/// The numbers of several counters: first those of all counters in the first place, and so on.
#[inline(always)]
fn side_by_side<const N: usize>(mut counter: [[u32; N]; NUMBERS], mut key: [u32; 2]) -> [[u32; N]; NUMBERS] {
    for _ in 0..ROUNDS {
        let mut next = [[0; N]; NUMBERS];
        for lane in 0..N {
            let product = |i: usize| u64::from(MULTIPLIERS[i]) * u64::from(counter[2 * i][lane]);
            let (x, y) = (product(0), product(1));
            next[0][lane] = (y >> 32) as u32 ^ counter[1][lane] ^ key[0];
            next[1][lane] = y as u32;
            next[2][lane] = (x >> 32) as u32 ^ counter[3][lane] ^ key[1];
            next[3][lane] = x as u32;
        }
        counter = next;
        key = [0, 1].map(|i| key[i].wrapping_add(KEY_STEPS[i]));
    }
    counter
}

/// Makes each element 0 whose number is below the threshold, and multiplies the others by `scale`. The number of element i is
/// number i mod 4 of counter i / 4.
pub fn dropout(x: &mut [f32], key: [u32; 2], threshold: u32, scale: f32) {
    vectorised! {
        fn drop[FMA](x: &mut [f32], first: u32, key: [u32; 2], threshold: u32, scale: f32) {
            for (group, x) in x.chunks_mut(NUMBERS * LANES).enumerate() {
                let first = first.wrapping_add((group * LANES) as u32);
                let places = std::array::from_fn(|lane| first.wrapping_add(lane as u32));
                let numbers = side_by_side([places, [0; LANES], [0; LANES], [0; LANES]], key);
                for (i, x) in x.iter_mut().enumerate() {
                    let kept = numbers[i % NUMBERS][i / NUMBERS] >= threshold;
                    *x = if kept { *x * scale } else { 0.0 };
                }
            }
        }
    }
    let chunks = x.par_chunks_mut(CHUNK).enumerate();
    chunks.for_each(|(chunk, x)| drop(x, (chunk * CHUNK / NUMBERS) as u32, key, threshold, scale));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As element by element, over several chunks, at a length that is a multiple of nothing.
    #[test]
    fn dropout_draws_the_numbers_of_each_element() {
        let (key, threshold, scale) = ([7, 9], 1 << 30, 4.0 / 3.0);
        let x: Vec<f32> = (0..3 * CHUNK + 71).map(|i| i as f32 - 100.0).collect();
        let mut dropped = x.clone();
        dropout(&mut dropped, key, threshold, scale);
        for (i, (found, x)) in dropped.iter().zip(x).enumerate() {
            let number = philox([(i / NUMBERS) as u32, 0, 0, 0], key)[i % NUMBERS];
            let expected = if number < threshold { 0.0 } else { x * scale };
            assert_eq!(found.to_bits(), expected.to_bits(), "element {i}");
        }
    }
}

//! Steps of AdamW whose moments take fewer bits than fp32 between steps.

use crate::adamw::{AdamWStep, one_step};
use crate::dynamic_map::{BLOCK, SIGNED, UNSIGNED};
use crate::random::philox;
use crate::simd::vectorised;

/// A moment in 8 bits: codes, and the largest of each block of them.
pub struct Coded<'a> {
    pub codes: &'a mut [u8],
    pub largest: &'a mut [f32],
}

vectorised! {
    /// As [`adamw::update`](crate::adamw::update) with both moments in 8 bits: m has signs, v has none. The parameter moves
    /// by the moments before they are rounded. Where v is rounded to 0, m becomes 0 too: a moment without its scale would
    /// be a step of m / eps.
    pub fn update_8bit[FMA](g: &[f32], p: &mut [f32], m: Coded<'_>, v: Coded<'_>, step: AdamWStep, clip: f32) {
        let (signed, unsigned) = (&*SIGNED, &*UNSIGNED);
        let (mut mean, mut square) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
        let means = m.codes.chunks_mut(BLOCK).zip(m.largest);
        let squares = v.codes.chunks_mut(BLOCK).zip(v.largest);
        let blocks = g.chunks(BLOCK).zip(p.chunks_mut(BLOCK)).zip(means).zip(squares);
        for (((g, p), (m, m_largest)), (v, v_largest)) in blocks {
            let (mean, square) = (&mut mean[..g.len()], &mut square[..g.len()]);
            signed.decode(m, *m_largest, mean);
            unsigned.decode(v, *v_largest, square);
            one_step(g, p, mean, square, step, clip);
            *v_largest = unsigned.encode(square, v);
            mean.iter_mut().zip(&*v).for_each(|(mean, v)| *mean = if *v == 0 { 0.0 } else { *mean });
            *m_largest = signed.encode(mean, m);
        }
    }
}

/// Elements whose moments are widened at a time.
const PIECE: usize = 256;

/// Which random numbers the elements of a slice have.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    pub key: [u32; 2],
    /// The number of the tensor: tensors with different ones have different random numbers.
    pub tensor: u32,
    /// The first element's number, a multiple of four.
    pub first: usize,
}

vectorised! {
    /// As [`adamw::update`](crate::adamw::update) with both moments in bf16, rounded up or down at random, so that their
    /// mean is exact.
    pub fn update_bf16[FMA](
        g: &[f32],
        p: &mut [f32],
        m: &mut [u16],
        v: &mut [u16],
        step: AdamWStep,
        clip: f32,
        draws: Draws,
    ) {
        let (mut mean, mut square) = ([0.0f32; PIECE], [0.0f32; PIECE]);
        let mut random = [0u32; PIECE];
        let moments = m.chunks_mut(PIECE).zip(v.chunks_mut(PIECE));
        for (piece, ((g, p), (m, v))) in g.chunks(PIECE).zip(p.chunks_mut(PIECE)).zip(moments).enumerate() {
            let (mean, square) = (&mut mean[..g.len()], &mut square[..g.len()]);
            mean.iter_mut().zip(&*m).for_each(|(mean, m)| *mean = widen(*m));
            square.iter_mut().zip(&*v).for_each(|(square, v)| *square = widen(*v));
            one_step(g, p, mean, square, step, clip);
            let counter = (draws.first + piece * PIECE) / 4;
            for (i, four) in random.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *four = philox([(counter + i) as u32, draws.tensor, 0, 0], draws.key);
            }
            m.iter_mut().zip(&*mean).zip(random).for_each(|((m, mean), bits)| *m = stochastic(*mean, bits));
            v.iter_mut().zip(&*square).zip(random).for_each(|((v, square), bits)| *v = stochastic(*square, bits >> 16));
        }
    }
}

fn widen(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// One of the two bf16 numbers around x, the nearer one more often, by the lower 16 bits of a random number. What is not
/// finite stays so.
fn stochastic(x: f32, random: u32) -> u16 {
    let bits = x.to_bits();
    let random = if x.is_finite() { random & 0xffff } else { 0 };
    (bits.wrapping_add(random) >> 16) as u16 | u16::from(x.is_nan()) << 6
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: AdamWStep = AdamWStep {
        decay: 0.999,
        beta1: 0.9,
        beta2: 0.99,
        rest1: 0.1,
        rest2: 0.01,
        eps: 1e-8,
        rate: 0.01,
        correction: 0.5,
    };

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let four = |i| philox([i, 0, 0, 0], [seed, 0]).map(|x| x as f32 / 2f32.powi(31) - 1.0);
        (0..count.div_ceil(4) as u32).flat_map(four).take(count).collect()
    }

    /// 600 parameters in three blocks: the first step is fp32's, and the moments are those rounded.
    #[test]
    fn a_step_in_8_bits_is_the_step_in_fp32_with_its_moments_rounded() {
        let (g, start) = (numbers(600, 1), numbers(600, 2));
        let (mut p, mut q) = (start.clone(), start);
        let (mut m, mut v) = (vec![0.0; 600], vec![0.0; 600]);
        crate::adamw::update(&g, &mut q, &mut m, &mut v, STEP, 0.5);
        let [mut m_codes, mut v_codes] = [[0u8; 600]; 2];
        let [mut m_largest, mut v_largest] = [[0.0f32; 3]; 2];
        update_8bit(
            &g,
            &mut p,
            Coded { codes: &mut m_codes, largest: &mut m_largest },
            Coded { codes: &mut v_codes, largest: &mut v_largest },
            STEP,
            0.5,
        );
        assert_eq!(p, q);
        for block in 0..3 {
            let range = block * BLOCK..600.min((block + 1) * BLOCK);
            let (mut codes, mut cut) = (vec![0; range.len()], m[range.clone()].to_vec());
            assert_eq!(UNSIGNED.encode(&v[range.clone()], &mut codes), v_largest[block]);
            assert_eq!(codes, v_codes[range.clone()]);
            cut.iter_mut().zip(&codes).for_each(|(m, v)| *m = if *v == 0 { 0.0 } else { *m });
            assert_eq!(SIGNED.encode(&cut, &mut codes), m_largest[block]);
            assert_eq!(codes, m_codes[range]);
        }
    }

    /// A gradient whose square is a ten-millionth of the block's largest leaves no mean that would be divided by eps.
    #[test]
    fn a_mean_without_its_square_is_dropped() {
        let mut g = vec![1e-6f32; BLOCK];
        g[0] = 1.0;
        let mut p = vec![0.0f32; BLOCK];
        let [mut m, mut v] = [[0u8; BLOCK]; 2];
        let [mut m_largest, mut v_largest] = [[0.0f32; 1]; 2];
        for _ in 0..2 {
            let m = Coded { codes: &mut m, largest: &mut m_largest };
            let v = Coded { codes: &mut v, largest: &mut v_largest };
            update_8bit(&g, &mut p, m, v, STEP, 1.0);
            g.fill(0.0);
        }
        assert!(p.iter().all(|p| p.abs() < 0.1), "{:?}", &p[..2]);
    }

    #[test]
    fn random_rounding_is_right_in_the_mean_and_follows_from_its_key() {
        // A quarter of the way between two bf16 numbers.
        let x = 1.0 + 0.25 / 128.0;
        let rounded: Vec<f32> = numbers(40_000, 3)
            .into_iter()
            .map(|random| widen(stochastic(x, random.to_bits() ^ random.to_bits() >> 9)))
            .collect();
        let mean = rounded.iter().map(|x| f64::from(*x)).sum::<f64>() / 40_000.0;
        assert!((mean - f64::from(x)).abs() < 1e-4, "{mean}");
        assert!(rounded.iter().all(|y| [1.0, 1.0 + 1.0 / 128.0].contains(y)));
        assert_eq!(widen(stochastic(f32::INFINITY, 0xffff)), f32::INFINITY);
        assert!(widen(stochastic(f32::from_bits(0x7f80_0001), 0xffff)).is_nan());

        let step = |key: u32, tensor: u32, cut: usize| {
            let g = numbers(1000, 4);
            let (mut p, mut m, mut v) = (numbers(1000, 5), vec![0x3c01u16; 1000], vec![0x3c01u16; 1000]);
            // In two parts, as two threads take them.
            for range in [0..cut, cut..1000] {
                let (p, m, v) = (&mut p[range.clone()], &mut m[range.clone()], &mut v[range.clone()]);
                let draws = Draws { key: [key, 0], tensor, first: range.start };
                update_bf16(&g[range], p, m, v, STEP, 1.0, draws);
            }
            (p, m, v)
        };
        assert_eq!(step(7, 0, 512), step(7, 0, 4));
        let one = step(7, 0, 4);
        // In another step, and of another tensor in the same one.
        for other in [step(8, 0, 4), step(7, 1, 4)] {
            assert!(one.0 == other.0 && one.1 != other.1 && one.2 != other.2);
        }
    }
}

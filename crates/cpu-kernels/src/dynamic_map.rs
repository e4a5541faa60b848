//! 8-bit codes of numbers in [−1, 1] (Dettmers 2016, "8-Bit Approximations for Parallelism in Deep Learning"), and blocks of
//! numbers that share the largest (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization").
//!
//! Values, codes and ties are those of bitsandbytes' CUDA kernels: `create_dynamic_map` and `kQuantizeBlockwise`. Its
//! kernel for a CPU looks numbers up at 65,536 equal steps, which gives 0 a code of its own far from 0.

use std::sync::LazyLock;

/// Numbers that share a largest.
pub const BLOCK: usize = 256;

/// Decades below 1 that have values.
const DECADES: i32 = 7;

/// The upper halves of the bits of 2⁻²⁵, below which all numbers are in one cell, and of 1.
const FIRST: u32 = 0x3300;
const LAST: u32 = 0x3f80;
const CELLS: usize = (LAST - FIRST + 1) as usize;

/// 256 numbers in rising order. Between a tenth and the whole of each power of ten they lie at equal steps, at twice as many
/// as in the decade below.
pub struct DynamicMap {
    pub values: [f32; 256],
    /// The smallest number that has each code; behind the last one NaN, which no number reaches.
    pub thresholds: [f32; 257],
    /// By sign and the upper half of the bits, the code of the smallest such number. None of these cells has two
    /// thresholds.
    pub cells: [u8; 2 * CELLS],
}

/// For numbers of both signs.
pub static SIGNED: LazyLock<DynamicMap> = LazyLock::new(|| DynamicMap::new(true));
/// For numbers of at least 0.
pub static UNSIGNED: LazyLock<DynamicMap> = LazyLock::new(|| DynamicMap::new(false));

impl DynamicMap {
    fn new(signed: bool) -> Self {
        let mut values = vec![0.0f32, 1.0];
        for decade in 0..DECADES {
            let steps = if signed { 1 << decade } else { 2 << decade };
            let scale = 10f64.powi(decade - (DECADES - 1)) as f32;
            let middles = middles(steps).map(|middle| scale * middle);
            values.extend(middles.flat_map(|value| [Some(value), signed.then_some(-value)]).flatten());
        }
        values.sort_by(f32::total_cmp);
        let values: [f32; 256] = values.try_into().expect("2 (1 + 2 + … + 64) or 2 + 4 + … + 128, and two");
        let mut thresholds = [f32::NEG_INFINITY; 257];
        thresholds[256] = f32::NAN;
        for code in 1..256 {
            // The search halves 0 to 255 and ends at an even code, which keeps a number that is half-way.
            let middle = (values[code - 1] + values[code]) * 0.5;
            thresholds[code] = if code % 2 == 0 { middle } else { middle.next_up() };
        }
        let cells = std::array::from_fn(|cell| {
            let (negative, upper) = (cell >= CELLS, FIRST + (cell % CELLS) as u32);
            let smallest = match (negative, upper) {
                (false, FIRST) => 0.0,
                (false, _) => f32::from_bits(upper << 16),
                (true, LAST) => f32::NEG_INFINITY,
                (true, _) => -f32::from_bits((upper << 16) | 0xffff),
            };
            (1..256).filter(|code| smallest >= thresholds[*code]).count() as u8
        });
        Self { values, thresholds, cells }
    }

    /// The code of the nearest value; 0 of NaN.
    #[inline(always)]
    pub fn code(&self, x: f32) -> u8 {
        let bits = x.to_bits();
        let cell = ((bits >> 16) & 0x7fff).clamp(FIRST, LAST) - FIRST;
        let code = self.cells[(bits >> 31) as usize * CELLS + cell as usize];
        let code = code.wrapping_add(u8::from(x >= self.thresholds[usize::from(code) + 1]));
        if x.is_nan() { 0 } else { code }
    }

    /// The codes of a block, and the largest of its absolute values. Where that is 0 every code is 0.
    #[inline(always)]
    pub fn encode(&self, numbers: &[f32], codes: &mut [u8]) -> f32 {
        let largest = largest(numbers);
        let inverse = 1.0 / largest;
        codes.iter_mut().zip(numbers).for_each(|(code, x)| *code = self.code(x * inverse));
        largest
    }

    /// The numbers of a block's codes.
    #[inline(always)]
    pub fn decode(&self, codes: &[u8], largest: f32, numbers: &mut [f32]) {
        numbers.iter_mut().zip(codes).for_each(|(x, code)| *x = self.values[usize::from(*code)] * largest);
    }
}

/// Numbers whose largest is found side by side: one after the other each would wait for the one before.
const LANES: usize = 16;

/// The largest of the absolute values; NaN counts as 0.
#[inline(always)]
pub fn largest(numbers: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (parts, rest) = numbers.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for part in parts {
        lanes.iter_mut().zip(part).for_each(|(lane, x)| *lane = larger(*lane, x.abs()));
    }
    lanes.iter().chain(rest).fold(0.0, |largest, x| larger(largest, x.abs()))
}

/// The middles between so many equal steps from 0.1 to 1, as `torch.linspace` has the steps: each rounded once, the first
/// half counted from the beginning and the second from the end.
fn middles(steps: usize) -> impl Iterator<Item = f32> {
    let step = (1.0 - 0.1f32) / steps as f32;
    let place = move |i: usize| match i < steps.div_ceil(2) {
        true => step.mul_add(i as f32, 0.1),
        false => (-step).mul_add((steps - i) as f32, 1.0),
    };
    (0..steps).map(move |i| (place(i) + place(i + 1)) / 2.0)
}

#[cfg(test)]
#[path = "dynamic_map_tests.rs"]
mod tests;

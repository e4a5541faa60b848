//! [`GradientHistogram`]: how large the gradients of one step are, and how many of them fp16 loses.

use serde::{Deserialize, Serialize};

/// Exponents of the bins: the first holds [2^-40, 2^-39), the last [2^19, 2^20).
pub const FIRST: i32 = -40;
pub const END: i32 = 20;
/// fp16's smallest number is 2^-24, its smallest with all its digits 2^-14.
pub const SMALLEST: i32 = -24;
pub const SMALLEST_NORMAL: i32 = -14;

/// Absolute values, counted by powers of two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Magnitudes {
    /// [2^e, 2^(e+1)) for each e from -40 to 19.
    pub bins: Vec<u64>,
    /// Above 0 and below the bins.
    pub below: u64,
    /// Finite and above the bins.
    pub above: u64,
    pub zero: u64,
    /// Infinite or NaN.
    pub not_finite: u64,
}

impl Default for Magnitudes {
    fn default() -> Self {
        Self { bins: vec![0; (END - FIRST) as usize], below: 0, above: 0, zero: 0, not_finite: 0 }
    }
}

impl Magnitudes {
    pub fn add(&mut self, values: &[f32]) {
        for value in values {
            // The bits of a float hold the exponent e of 2^e ≤ |value| < 2^(e+1).
            let exponent = (value.to_bits() >> 23 & 0xff) as i32 - 127;
            *match exponent {
                128 => &mut self.not_finite,
                _ if *value == 0.0 => &mut self.zero,
                e if e < FIRST => &mut self.below,
                e if e >= END => &mut self.above,
                e => &mut self.bins[(e - FIRST) as usize],
            } += 1;
        }
    }

    pub fn count(&self) -> u64 {
        self.bins.iter().sum::<u64>() + self.below + self.above + self.zero + self.not_finite
    }

    /// Share of all values that are zero.
    pub fn zeros(&self) -> f64 {
        self.share(self.zero)
    }

    /// Share of all values that are not zero and below 2^exponent.
    pub fn share_below(&self, exponent: i32) -> f64 {
        let bins = (exponent.clamp(FIRST, END) - FIRST) as usize;
        self.share(self.below + self.bins.iter().take(bins).sum::<u64>())
    }

    pub fn share(&self, count: u64) -> f64 {
        count as f64 / self.count().max(1) as f64
    }
}

/// The gradients of one step as they were computed: with the loss's scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradientHistogram {
    /// What the loss was multiplied by; 1 without a scaler.
    pub scale: f64,
    /// Gradients of the results of operators with hand-written backward, in the type that backward passes on.
    pub activations: Magnitudes,
    /// Gradients of the parameters.
    pub parameters: Magnitudes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_power_of_two() {
        let mut magnitudes = Magnitudes::default();
        let power = |e: i32| 2f32.powi(e);
        magnitudes.add(&[0.0, -0.0, 1.0, -1.9, power(-24), -power(-25), power(-60), 1e-45]);
        magnitudes.add(&[power(30), f32::INFINITY, f32::NAN, 1.5 * power(-14)]);
        assert_eq!((magnitudes.count(), magnitudes.zero, magnitudes.not_finite), (12, 2, 2));
        assert_eq!((magnitudes.below, magnitudes.above), (2, 1));
        assert_eq!(magnitudes.bins[40], 2);
        assert_eq!(magnitudes.share_below(SMALLEST), 3.0 / 12.0);
        assert_eq!(magnitudes.share_below(SMALLEST_NORMAL), 4.0 / 12.0);
        assert_eq!(magnitudes.share_below(SMALLEST_NORMAL + 1), 5.0 / 12.0);
        assert_eq!(magnitudes.share_below(99), 7.0 / 12.0);
        assert_eq!(magnitudes.zeros(), 2.0 / 12.0);
        // As of a damaged row.
        magnitudes.bins.clear();
        assert_eq!(magnitudes.share_below(SMALLEST), 2.0 / 7.0);
    }
}

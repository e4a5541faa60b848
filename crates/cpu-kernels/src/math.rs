//! Functions without branches, so that a loop around them becomes vector instructions.

use crate::simd::multiply_add;

/// 1.5 · 2²³: what is added to it is rounded to a whole number, which stands in the low bits.
const ROUNDING: f32 = 12_582_912.0;
/// Where e^x ends as a normal number, and below which it is 0 here.
const LARGEST: f32 = 88.376_26;
const SMALLEST: f32 = -87.336_54;

/// e^x within 2 units of the last place (the polynomial of Moshier's Cephes library): 2ⁿ e^r with x = n ln 2 + r. 0
/// below e^-87.3, and at most e^88.4.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    // A NaN passes both comparisons.
    let bounded = if x > LARGEST { LARGEST } else { x };
    let shifted = multiply_add::<FMA>(bounded, std::f32::consts::LOG2_E, ROUNDING);
    let n = shifted - ROUNDING;
    // ln 2 in two parts, of which the first has so few digits that its product with n is exact.
    let r = multiply_add::<FMA>(n, -0.693_359_4, bounded);
    let r = multiply_add::<FMA>(n, 2.121_944_4e-4, r);
    let mut y = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        y = multiply_add::<FMA>(y, r, coefficient);
    }
    let y = multiply_add::<FMA>(y, r * r, r) + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < SMALLEST { 0.0 } else { y * power }
}

/// 1 / (1 + e^-x)
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

/// tanh x within 3 units of the last place: the polynomial of Cephes below 0.625, else 1 − 2 / (e^2x + 1).
#[inline(always)]
pub fn tanh<const FMA: bool>(x: f32) -> f32 {
    let square = x * x;
    let mut y = -5.704_988_7e-3;
    for coefficient in [2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
        y = multiply_add::<FMA>(y, square, coefficient);
    }
    let small = multiply_add::<FMA>(y * square, x, x);
    let large = 1.0 - 2.0 / (exp::<FMA>(2.0 * x.abs()) + 1.0);
    if x.abs() < 0.625 { small } else { large.copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_of_the_last_place() {
        for i in -870_000..880_000 {
            let x = i as f32 / 10_000.0;
            let exact = f64::from(x).exp();
            for ours in [exp::<true>(x), exp::<false>(x)] {
                let off = (f64::from(ours) - exact).abs() / exact;
                assert!(off < 2.5e-7, "e^{x} is {exact}, not {ours}");
            }
        }
    }

    #[test]
    fn tanh_is_within_three_units_of_the_last_place() {
        for i in -200_000..200_000 {
            let x = i as f32 / 10_000.0;
            let exact = f64::from(x).tanh();
            for ours in [tanh::<true>(x), tanh::<false>(x)] {
                assert!(
                    (f64::from(ours) - exact).abs() <= 3.6e-7 * exact.abs(),
                    "tanh {x} is {exact}, not {ours}"
                );
            }
        }
        assert!(tanh::<true>(f32::NAN).is_nan());
        assert_eq!([tanh::<true>(1e30), tanh::<true>(f32::NEG_INFINITY)], [1.0, -1.0]);
    }

    #[test]
    fn exp_of_what_is_no_number_or_too_large_or_small() {
        assert!(exp::<true>(f32::NAN).is_nan());
        assert_eq!([exp::<true>(-1000.0), exp::<true>(f32::NEG_INFINITY), exp::<true>(0.0)], [0.0, 0.0, 1.0]);
        assert!(exp::<true>(f32::INFINITY) > 2e38);
        assert_eq!([sigmoid::<true>(200.0), sigmoid::<true>(0.0)], [1.0, 0.5]);
    }
}

//! Activations of single numbers, for the types that have no kernel on the CPU.

use burn_flex::ops::unary::erf_f64 as erf;
use num_traits::Float;

use super::{Activation, CUBIC, SLOPE};

/// f(x) and f′(x).
pub fn formula<F: Float>(activation: Activation, x: F) -> (F, F) {
    let (one, of) = (F::one(), |number: f64| F::from(number).expect("a number"));
    match activation {
        Activation::Silu => {
            let sigma = one / (one + (-x).exp());
            let s = x * sigma;
            (s, sigma + s * (one - sigma))
        }
        Activation::GeluTanh => {
            let twice = of(2.0 * SLOPE) * x * (one + of(CUBIC) * x * x);
            let sigma = one / (one + (-twice).exp());
            let slope = of(2.0 * SLOPE) * (one + of(3.0 * CUBIC) * x * x);
            (x * sigma, sigma + x * sigma * (one - sigma) * slope)
        }
        Activation::Gelu => {
            let wide = x.to_f64().expect("a number");
            let below = 0.5 + 0.5 * erf(wide * std::f64::consts::FRAC_1_SQRT_2);
            let density = (-0.5 * wide * wide).exp() * SLOPE / 2.0;
            (x * of(below), of(below + wide * density))
        }
        Activation::Relu => {
            let value = if x < F::zero() { F::zero() } else { x };
            (value, if x > F::zero() { one } else { F::zero() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of tables, and slopes by finite differences.
    #[test]
    fn values_and_slopes() {
        let near =
            |ours: f64, exact: f64, allowed: f64| assert!((ours - exact).abs() < allowed, "{ours} {exact}");
        near(formula(Activation::Silu, 1.0).0, 0.731_058_578_630_004_9, 1e-15);
        near(formula(Activation::GeluTanh, 1.0).0, 0.841_191_990_608_276_8, 1e-12);
        near(formula(Activation::Gelu, 1.0).0, 0.841_344_746_068_542_9, 1e-15);
        for activation in Activation::ALL {
            for x in [-30.0, -5.5, -2.1, -0.3, 0.0, 0.7, 3.2, 9.0, 30.0] {
                let value = |x| formula(activation, x).0;
                let slope = (value(x + 1e-6) - value(x - 1e-6)) / 2e-6;
                let expected = if activation == Activation::Relu && x == 0.0 { 0.0 } else { slope };
                near(formula(activation, x).1, expected, 1e-8);
            }
            assert!(formula(activation, f64::NAN).0.is_nan(), "{activation:?}");
        }
    }
}

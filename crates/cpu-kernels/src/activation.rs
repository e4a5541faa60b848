//! Activations and their slopes.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::CHUNK;
use crate::math::{exp, sigmoid};
use crate::simd::{multiply_add, vectorised};

/// The activation of a feed-forward network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// x σ(x) (Elfwing et al. 2018), also called Swish.
    Silu,
    /// GELU by the tanh formula (Hendrycks and Gimpel 2016): x/2 · (1 + tanh u) with u = √(2/π) (x + 0.044715 x³).
    #[default]
    GeluTanh,
    /// GELU: x Φ(x), with Φ of the normal distribution.
    Gelu,
    /// max(x, 0)
    Relu,
}

/// The names of `hidden_act` in a config.json.
pub const NAMES: [(&str, Activation); 8] = [
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("relu", Activation::Relu),
];

impl Activation {
    pub const ALL: [Self; 4] = [Self::Silu, Self::GeluTanh, Self::Gelu, Self::Relu];

    /// The activation of this name in a config.json.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }
}

/// The formula of an [`Activation`].
pub(crate) trait Formula {
    fn value<const FMA: bool>(x: f32) -> f32;

    /// The value, and its derivative by x.
    fn with_slope<const FMA: bool>(x: f32) -> (f32, f32);
}

pub(crate) struct Silu;
pub(crate) struct GeluTanh;
pub(crate) struct Gelu;
pub(crate) struct Relu;

impl Formula for Silu {
    #[inline(always)]
    fn value<const FMA: bool>(x: f32) -> f32 {
        x * sigmoid::<FMA>(x)
    }

    #[inline(always)]
    fn with_slope<const FMA: bool>(x: f32) -> (f32, f32) {
        let sigma = sigmoid::<FMA>(x);
        let s = x * sigma;
        (s, multiply_add::<FMA>(s, 1.0 - sigma, sigma))
    }
}

/// √(2/π) and the factor of x³ of the tanh formula.
const SLOPE: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

/// (1 + tanh u) / 2 = σ(2u), by whose slope the product rule gives σ + x σ (1 − σ) · 2 du/dx.
impl Formula for GeluTanh {
    #[inline(always)]
    fn value<const FMA: bool>(x: f32) -> f32 {
        x * sigmoid::<FMA>(twice_inner::<FMA>(x))
    }

    #[inline(always)]
    fn with_slope<const FMA: bool>(x: f32) -> (f32, f32) {
        let sigma = sigmoid::<FMA>(twice_inner::<FMA>(x));
        let slope = 2.0 * SLOPE * multiply_add::<FMA>(3.0 * CUBIC * x, x, 1.0);
        (x * sigma, sigma * multiply_add::<FMA>(x * (1.0 - sigma), slope, 1.0))
    }
}

/// 2u of u = √(2/π) (x + 0.044715 x³).
#[inline(always)]
fn twice_inner<const FMA: bool>(x: f32) -> f32 {
    2.0 * SLOPE * x * multiply_add::<FMA>(CUBIC * x, x, 1.0)
}

/// Φ′ is the density exp(−x²/2)/√2π.
impl Formula for Gelu {
    #[inline(always)]
    fn value<const FMA: bool>(x: f32) -> f32 {
        x * normal::<FMA>(x)
    }

    #[inline(always)]
    fn with_slope<const FMA: bool>(x: f32) -> (f32, f32) {
        const DENSITY: f32 = 0.398_942_3;
        let below = normal::<FMA>(x);
        (x * below, multiply_add::<FMA>(x * DENSITY, exp::<FMA>(-0.5 * x * x), below))
    }
}

/// Φ(x) = erfc(−x/√2)/2 within 3e-7, by the Chebyshev approximation of erfc in Press et al., "Numerical Recipes in C"
/// (1992), section 6.2.
#[inline(always)]
fn normal<const FMA: bool>(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / multiply_add::<FMA>(0.5, z, 1.0);
    let mut y = 0.170_872_77;
    for coefficient in [
        -0.822_152_23,
        1.488_515_9,
        -1.135_204,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_7,
    ] {
        y = multiply_add::<FMA>(y, t, coefficient);
    }
    let above = 0.5 * t * exp::<FMA>(multiply_add::<FMA>(y, t, -1.265_512_2) - z * z);
    if x < 0.0 { above } else { 1.0 - above }
}

/// The slope at 0 is 0, as in PyTorch; a NaN stays.
impl Formula for Relu {
    #[inline(always)]
    fn value<const FMA: bool>(x: f32) -> f32 {
        if x < 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn with_slope<const FMA: bool>(x: f32) -> (f32, f32) {
        (Self::value::<FMA>(x), if x > 0.0 { 1.0 } else { 0.0 })
    }
}

/// Calls a function that is generic over the formula.
macro_rules! by_formula {
    ($activation:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $activation {
            $crate::activation::Activation::Silu => $function::<$crate::activation::Silu>($($argument),*),
            $crate::activation::Activation::GeluTanh => $function::<$crate::activation::GeluTanh>($($argument),*),
            $crate::activation::Activation::Gelu => $function::<$crate::activation::Gelu>($($argument),*),
            $crate::activation::Activation::Relu => $function::<$crate::activation::Relu>($($argument),*),
        }
    };
}
pub(crate) use by_formula;

/// y of each x.
pub fn activate(activation: Activation, x: &[f32], y: &mut [MaybeUninit<f32>]) {
    vectorised! {
        fn activate[FMA, F: Formula](x: &[f32], y: &mut [MaybeUninit<f32>]) {
            for (x, y) in x.iter().zip(y) {
                y.write(F::value::<FMA>(*x));
            }
        }
    }
    assert_eq!(x.len(), y.len());
    let parts = x.par_chunks(CHUNK).zip(y.par_chunks_mut(CHUNK));
    parts.for_each(|(x, y)| by_formula!(activation, activate(x, y)));
}

/// From the gradient g of the result that of x, in the place of g.
pub fn activate_backward(activation: Activation, x: &[f32], g: &mut [f32]) {
    vectorised! {
        fn backward[FMA, F: Formula](x: &[f32], g: &mut [f32]) {
            for (x, g) in x.iter().zip(g) {
                *g *= F::with_slope::<FMA>(*x).1;
            }
        }
    }
    assert_eq!(x.len(), g.len());
    let parts = x.par_chunks(CHUNK).zip(g.par_chunks_mut(CHUNK));
    parts.for_each(|(x, g)| by_formula!(activation, backward(x, g)));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::filled;

    pub fn inputs() -> Vec<f32> {
        (0..20_000).map(|i| (i as f32 - 10_000.0) / 700.0).collect()
    }

    /// erf by its series 2/√π · x e^(−x²) Σ (2x²)ⁿ/(1 · 3 ⋯ (2n + 1)), all of whose terms are positive.
    fn erf(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..800 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        if x.abs() > 6.0 { x.signum() } else { std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum }
    }

    /// The value in f64, and its slope.
    pub fn exact(activation: Activation, x: f64) -> (f64, f64) {
        let value = |x: f64| match activation {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::GeluTanh => {
                x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
            }
            Activation::Gelu => x / 2.0 * (1.0 + erf(x / std::f64::consts::SQRT_2)),
            Activation::Relu => x.max(0.0),
        };
        let at_zero = activation == Activation::Relu && x == 0.0;
        (value(x), if at_zero { 0.0 } else { (value(x + 1e-5) - value(x - 1e-5)) / 2e-5 })
    }

    #[test]
    fn activations_and_their_slopes_equal_the_formula_in_f64() {
        let x = inputs();
        for activation in Activation::ALL {
            // SAFETY: every element is written.
            let y = unsafe { filled(x.len(), |y| activate(activation, &x, y)) };
            let mut g = vec![2.0; x.len()];
            activate_backward(activation, &x, &mut g);
            for ((x, y), g) in x.iter().zip(y).zip(g) {
                let x = f64::from(*x);
                let (value, slope) = exact(activation, x);
                assert!(
                    (f64::from(y) - value).abs() < 1e-6 * x.abs().max(1.0),
                    "{activation:?} {x}: {y} {value}"
                );
                assert!((f64::from(g) - 2.0 * slope).abs() < 4e-6, "{activation:?} {x}: {g} {slope}");
            }
        }
    }

    /// erf(1) and Φ(2), of tables.
    #[test]
    fn the_reference_equals_tables() {
        assert!((erf(1.0) - 0.842_700_792_949_714_9).abs() < 1e-15);
        assert!((exact(Activation::Gelu, 2.0).0 - 2.0 * 0.977_249_868_051_820_8).abs() < 1e-14);
    }

    #[test]
    fn what_is_no_number_shows() {
        for activation in Activation::ALL {
            // SAFETY: every element is written.
            let y = unsafe { filled(1, |y| activate(activation, &[f32::NAN], y)) };
            assert!(y[0].is_nan(), "{activation:?}");
        }
    }
}

//! Scaling of rotary positions for sequences that are longer than those of pretraining, as `modeling_rope_utils.py` of
//! transformers computes it: inverse frequencies, in its types and its order of operations, and a factor of cosines and
//! sines.

use std::f32::consts::TAU;

/// How the inverse frequencies θ^(−2i/d) change. `original` is the longest sequence of pretraining.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Scaling {
    #[default]
    None,
    /// Divided by `factor` (Chen et al. 2023, "Extending Context Window of Large Language Models via Positional
    /// Interpolation").
    Linear {
        factor: f64,
    },
    /// A sequence longer than `original` has a larger θ, which follows from its length.
    Dynamic {
        factor: f64,
        original: usize,
    },
    /// Long waves divided by `factor`, short ones as they are (Llama 3.1).
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: usize,
    },
    Yarn(Yarn),
    /// Each divided by a number of its own, which depends on whether the sequence is longer than `original` (Ding et al.
    /// 2024, "LongRoPE").
    LongRope {
        short_factor: Vec<f32>,
        long_factor: Vec<f32>,
        original: usize,
        attention_factor: f64,
    },
}

/// Between linear scaling of long waves and none of short ones (Peng et al. 2023, "YaRN").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    pub factor: f64,
    pub original: usize,
    /// Turns within `original` positions from which on waves count as short, and up to which as long.
    pub beta_fast: f64,
    pub beta_slow: f64,
    /// The factor of cosines and sines; `None`: 0.1 ln(`factor`) + 1, or the quotient of two such by `mscale`.
    pub attention_factor: Option<f64>,
    /// Of the numerator and the denominator of that quotient.
    pub mscale: Option<f64>,
    pub mscale_all_dim: Option<f64>,
    /// Whether the edges between short and long are whole pairs.
    pub truncate: bool,
}

impl Scaling {
    /// The inverse frequencies of each pair of `turned` numbers, for a sequence of this length.
    pub fn frequencies(&self, theta: f64, turned: usize, sequence: usize) -> Vec<f32> {
        let powers = |theta: f64| {
            let exponent = move |i| (2 * i) as f32 / turned as f32;
            (0..turned.div_ceil(2)).map(move |i| (theta as f32).powf(exponent(i)))
        };
        let plain = || powers(theta).map(|power| 1.0 / power);
        match self {
            Self::None => plain().collect(),
            Self::Linear { factor } => plain().map(|frequency| frequency / *factor as f32).collect(),
            Self::Dynamic { factor, original } => {
                let ratio = factor * sequence.max(*original) as f64 / *original as f64 - (factor - 1.0);
                let exponent = turned as f64 / (turned as f64 - 2.0);
                powers(theta * ratio.powf(exponent)).map(|power| 1.0 / power).collect()
            }
            Self::Llama3 { factor, low, high, original } => {
                let original = *original as f64;
                plain().map(|frequency| llama3(frequency, *factor, [*low, *high], original)).collect()
            }
            Self::Yarn(yarn) => yarn.frequencies(&powers(theta).collect::<Vec<_>>(), theta, turned),
            Self::LongRope { short_factor, long_factor, original, .. } => {
                let factors = if sequence > *original { long_factor } else { short_factor };
                powers(theta).zip(factors).map(|(power, factor)| 1.0 / (factor * power)).collect()
            }
        }
    }

    /// What cosines and sines are multiplied by.
    pub fn attention_factor(&self) -> f64 {
        match self {
            Self::None | Self::Linear { .. } | Self::Dynamic { .. } | Self::Llama3 { .. } => 1.0,
            Self::Yarn(yarn) => yarn.attention_factor(),
            Self::LongRope { attention_factor, .. } => *attention_factor,
        }
    }

    /// The length whose frequencies a sequence of this length has: equal ones where the lengths make no difference.
    pub fn length(&self, sequence: usize) -> usize {
        match self {
            Self::Dynamic { original, .. } => sequence.max(*original),
            Self::LongRope { original, .. } => sequence.clamp(*original, original + 1),
            _ => 0,
        }
    }

    /// The default of LongRoPE's factor of cosines and sines, for sequences so many times as long as `original`.
    pub fn longrope_attention_factor(factor: f64, original: usize) -> f64 {
        if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() }
    }
}

/// A frequency whose wave is longer than `original` / low is divided by `factor`; between that and `original` / high it
/// moves from divided to unchanged.
fn llama3(frequency: f32, factor: f64, [low, high]: [f64; 2], original: f64) -> f32 {
    let wave = TAU / frequency;
    let divided = frequency / factor as f32;
    if wave > (original / low) as f32 {
        return divided;
    }
    if wave < (original / high) as f32 {
        return frequency;
    }
    let smooth = (original as f32 / wave - low as f32) / (high - low) as f32;
    (1.0 - smooth) * frequency / factor as f32 + smooth * frequency
}

impl Yarn {
    fn attention_factor(&self) -> f64 {
        let scale = |by: f64| if self.factor <= 1.0 { 1.0 } else { 0.1 * by * self.factor.ln() + 1.0 };
        let given = |by: Option<f64>| by.filter(|by| *by != 0.0);
        match (self.attention_factor, given(self.mscale), given(self.mscale_all_dim)) {
            (Some(factor), ..) => factor,
            (None, Some(of_numerator), Some(of_denominator)) => scale(of_numerator) / scale(of_denominator),
            (None, ..) => scale(1.0),
        }
    }

    fn frequencies(&self, powers: &[f32], theta: f64, turned: usize) -> Vec<f32> {
        // The pair whose wave turns so often within `original` positions.
        let pair = |turns: f64| {
            let positions = self.original as f64 / (turns * std::f64::consts::TAU);
            turned as f64 * positions.ln() / (2.0 * theta.ln())
        };
        let [mut first, mut last] = [pair(self.beta_fast), pair(self.beta_slow)];
        if self.truncate {
            (first, last) = (first.floor(), last.ceil());
        }
        let (first, last) = (first.max(0.0), last.min(turned as f64 - 1.0));
        let width = if first == last { 0.001 } else { last - first } as f32;
        let frequency = |(i, power): (usize, &f32)| {
            let ramp = ((i as f32 - first as f32) / width).clamp(0.0, 1.0);
            let unchanged = 1.0 - ramp;
            let divided = 1.0 / (self.factor as f32 * power);
            divided * (1.0 - unchanged) + 1.0 / power * unchanged
        };
        powers.iter().enumerate().map(frequency).collect()
    }
}

#[cfg(test)]
#[path = "scaling_tests.rs"]
mod tests;

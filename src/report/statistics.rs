//! 95 % intervals over processes: of a time, by Student's t, and of a ratio of two times, by Welch's.

/// Mean and variance of the mean, with its degrees of freedom.
struct Mean {
    mean: f64,
    variance: f64,
    freedom: f64,
}

impl Mean {
    /// `None` of fewer than two values, whose spread is not known.
    fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (n >= 2.0).then(|| Self { mean, variance: squares / (n - 1.0) / n, freedom: n - 1.0 })
    }
}

/// The half width of the 95 % interval of the mean, relative to it; `None` of fewer than two values.
pub fn half_width(values: &[f64]) -> Option<f64> {
    let of = Mean::of(values)?;
    Some(quantile(of.freedom) * of.variance.sqrt() / of.mean)
}

/// The half width of the 95 % interval of the ratio of two samples' means, as a share of the ratio, to first order: that of
/// the difference of the means of logarithms, since times differ by factors, with the degrees of freedom of Welch and
/// Satterthwaite for samples of unequal spread. `None` where a sample has fewer than two values.
pub fn ratio_half_width(a: &[f64], b: &[f64]) -> Option<f64> {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    let (a, b) = (Mean::of(&logs(a))?, Mean::of(&logs(b))?);
    let variance = a.variance + b.variance;
    if variance <= 0.0 {
        return Some(0.0);
    }
    let freedom = variance.powi(2) / (a.variance.powi(2) / a.freedom + b.variance.powi(2) / b.freedom);
    Some(quantile(freedom) * variance.sqrt())
}

/// The chance of a t at least this far from zero: I_x(ν/2, 1/2) with x = ν / (ν + t²).
fn two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The t beyond which, on both sides together, 5 % lie.
fn quantile(freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e3);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, freedom) > 0.05 { low = middle } else { high = middle }
    }
    low
}

/// The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side alone.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp() / a;
    let term = |m: f64, odd: bool| match odd {
        true => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        false => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
    };
    // Lentz's algorithm.
    let (mut c, mut d, mut fraction) = (f64::INFINITY, 1.0, 1.0);
    for step in 1..400 {
        let value = term(f64::from(step / 2), step % 2 == 1);
        d = 1.0 / nonzero(1.0 + value * d);
        c = nonzero(1.0 + value / c);
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

fn nonzero(value: f64) -> f64 {
    if value.abs() < 1e-300 { 1e-300 } else { value }
}

/// ln Γ(x) for x > 0, by Stirling's series from 10 on (DLMF 5.11.1).
fn ln_gamma(x: f64) -> f64 {
    if x < 10.0 {
        return ln_gamma(x + 1.0) - x.ln();
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    (x - 0.5) * x.ln() - x + (std::f64::consts::TAU).ln() / 2.0 + series
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of R's `pt` and `qt`.
    #[test]
    fn values_of_others() {
        let near = |value: f64, known: f64| assert!((value - known).abs() < 1e-6, "{value} is not {known}");
        near(two_sided(2.0, 4.0), 0.116_116_524);
        near(two_sided(-5.0, 8.0), 0.001_052_826);
        near(two_sided(0.5, 1.0), 0.704_832_765);
        near(quantile(4.0), 2.776_445_105);
        near(quantile(2.5), 3.574_654_8);
    }

    /// Logarithms 0, 0.01, 0.02 on both sides: variances of the means 1e-4 / 3, four degrees of freedom.
    #[test]
    fn the_interval_of_a_ratio_by_hand() {
        let times = [0.0_f64, 0.01, 0.02].map(f64::exp);
        let half = ratio_half_width(&times.map(|time| 3.0 * time), &times).expect("six values");
        assert!((half - 2.776_445 * (2e-4_f64 / 3.0).sqrt()).abs() < 1e-8, "{half}");
        let half = half_width(&[0.99, 1.0, 1.01]).expect("three values");
        assert!((half - 4.302_653 * 0.01 / 3.0_f64.sqrt()).abs() < 1e-8, "{half}");
    }

    #[test]
    fn equal_samples_and_single_values() {
        assert_eq!(ratio_half_width(&[2.0, 2.0], &[3.0, 3.0]), Some(0.0));
        assert_eq!(ratio_half_width(&[2.0], &[3.0, 3.0]), None);
        assert_eq!(half_width(&[2.0]), None);
    }
}

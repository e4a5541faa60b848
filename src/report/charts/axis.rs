//! [`Scale`]: values to pixels, and the round numbers where ticks stand.

use crate::common::text::rate;

/// A linear or logarithmic axis.
pub struct Scale {
    low: f64,
    high: f64,
    /// Pixels of `low` and `high`.
    from: i32,
    to: i32,
    log: bool,
}

impl Scale {
    pub fn new((low, high): (f64, f64), (from, to): (i32, i32), log: bool) -> Self {
        Self { low, high, from, to, log }
    }

    pub fn pixel(&self, value: f64) -> i32 {
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (share * f64::from(self.to - self.from)).round() as i32
    }

    /// About `count` round values within the axis.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let log = if self.log { self.log_ticks(count) } else { Vec::new() };
        // A short axis has few powers of ten and their halves and fifths.
        if log.len() > 1 {
            return log;
        }
        let step = round_step((self.high - self.low) / count.max(1) as f64);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }

    /// 1, 2 and 5 of each decade, or the decades alone where those are too many.
    fn log_ticks(&self, count: usize) -> Vec<f64> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let ticks = |steps: &[f64]| -> Vec<f64> {
            let all = decades.clone().flat_map(|decade| steps.iter().map(move |s| s * 10f64.powi(decade)));
            all.filter(|v| *v >= self.low * 0.999 && *v <= self.high * 1.001).collect()
        };
        let fine = ticks(&[1.0, 2.0, 5.0]);
        if fine.len() <= count + 2 { fine } else { ticks(&[1.0]) }
    }
}

/// The least of 1, 2, 2.5 and 5 times a power of ten that is at least `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|f| f * power >= step * 0.999).unwrap_or(10.0);
    factor * power
}

/// A tick's value without trailing zeros; from ten thousand on with digits in groups of three.
pub fn tick_label(value: f64) -> String {
    if value.abs() >= 1e4 && value.fract() == 0.0 {
        return format!("{}{}", if value < 0.0 { "-" } else { "" }, rate(value.abs()));
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".into() } else { text.into() }
}

/// The least and the largest value.
pub fn extent(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)))
}

/// From zero to a little above the largest value.
pub fn from_zero(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let high = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
    (0.0, if high > 0.0 { high * 1.02 } else { 1.0 })
}

/// The values' range with room around it, in proportion for a logarithmic axis.
pub fn padded(values: &[f64], log: bool) -> (f64, f64) {
    let (low, high) = extent(values);
    if log {
        let room = (high / low).powf(0.08).max(1.1);
        return (low / room, high * room);
    }
    let room = ((high - low) * 0.1).max(high.abs() * 0.02).max(f64::MIN_POSITIVE);
    (low - room, high + room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let scale = Scale::new((0.0, 1.37), (0, 600), false);
        let labels: Vec<String> = scale.ticks(6).into_iter().map(tick_label).collect();
        assert_eq!(labels, ["0", "0.25", "0.5", "0.75", "1", "1.25"]);
        assert_eq!([2500.0, 1e6, -2e4].map(tick_label), ["2500", "1,000,000", "-20,000"]);
        let log = Scale::new((0.8, 130.0), (0, 600), true);
        assert_eq!(log.ticks(8), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(Scale::new((5.5, 9.0), (0, 600), true).ticks(4), [6.0, 7.0, 8.0, 9.0]);
        assert_eq!(log.pixel(0.8), 0);
        assert_eq!(log.pixel(130.0), 600);
    }
}

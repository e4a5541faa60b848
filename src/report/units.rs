//! [`Unit`]: how a number of the report is written, and what a chart's axis divides it by.

use crate::common::Bytes;
use crate::common::text::{
    byte_unit, percent, power_of_two, rate, ratio, scaled, seconds, significant, time_unit,
};

/// The unit of a column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `12.3 ms`
    Seconds,
    /// `296 MiB`
    Bytes,
    /// Bytes, as others publish them: `0.442 GB`.
    Gigabytes,
    /// Bytes a second, in gigabytes without their name: `25.2`.
    GigabytesPerSecond,
    /// Whole numbers from one hundred on.
    PerSecond,
    /// `9984`, `31.7 k`, `1.20 G`
    Count,
    /// A share as `26 %`.
    Share,
    /// A share with three digits: `0.0320 %`.
    FineShare,
    /// `1.31x`
    Ratio,
    /// Nats a token.
    Nats,
    /// Three digits, of a small one four: its logarithm is the loss. In powers of ten where they would be many.
    Perplexity,
    /// `2¹⁶`; another number as it is.
    PowerOfTwo,
    Number,
}

impl Unit {
    pub fn write(self, value: f64) -> String {
        match self {
            Self::Seconds => seconds(value),
            Self::Bytes => Bytes(value as u64).to_string(),
            Self::Gigabytes => format!("{} GB", significant(value / 1e9)),
            Self::GigabytesPerSecond => significant(value / 1e9),
            Self::PerSecond => rate(value),
            Self::Count => count(value),
            Self::Share => percent(value),
            Self::FineShare if value == 0.0 => "0".into(),
            Self::FineShare => format!("{} %", significant(value * 100.0)),
            Self::Ratio => ratio(value),
            Self::Nats => format!("{value:.3}"),
            Self::Perplexity if value >= 1e6 => format!("{value:.1e}"),
            Self::Perplexity if value < 10.0 => format!("{value:.3}"),
            Self::PowerOfTwo => power_of_two(value).unwrap_or_else(|| scaled(value)),
            Self::Perplexity | Self::Number => significant(value),
        }
    }

    /// Whether files hold it as an integer.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Bytes | Self::Count)
    }

    /// The unit in which an axis up to `high` reads well, and how much one of it is.
    pub fn of_axis(self, high: f64) -> (&'static str, f64) {
        match self {
            Self::Seconds => time_unit(high),
            Self::Bytes => byte_unit(high),
            _ => ("", 1.0),
        }
    }
}

fn count(n: f64) -> String {
    match n {
        n if n < 1e4 => n.to_string(),
        n if n < 1e6 => format!("{} k", significant(n / 1e3)),
        n if n < 1e9 => format!("{} M", significant(n / 1e6)),
        n => format!("{} G", significant(n / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::Unit::*;

    #[test]
    fn numbers_as_they_are_read() {
        let of = [
            (Count, 9984.0, "9984"),
            (Count, 31_744.0, "31.7 k"),
            (Count, 1.2e9, "1.20 G"),
            (FineShare, 0.0, "0"),
            (FineShare, 0.00032, "0.0320 %"),
            (Perplexity, 20.1, "20.1"),
            (Perplexity, 1.8113, "1.811"),
            (Perplexity, 4.43e6, "4.4e6"),
            (PowerOfTwo, 0.25, "2⁻²"),
            (PowerOfTwo, 48.0, "48.0"),
            (Gigabytes, 0.442e9, "0.442 GB"),
        ];
        for (unit, value, text) in of {
            assert_eq!(unit.write(value), text);
        }
    }
}

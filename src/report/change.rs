//! [`Change`]: what a method changes of one quantity against the baseline, over all sizes.

use polars::prelude::*;

use super::table::Comparison;
use crate::words::text::percent;

/// So many times as much is given in times, not in percent more.
pub const MANY: f64 = 9.0;

/// Relative changes at the sizes where both the method and its baseline ran to their end: -0.1 is a tenth less.
pub struct Change {
    shares: Float64Chunked,
    /// What there are several of, see [`Comparison::repeated`].
    repeated: &'static str,
}

impl Change {
    /// Of a ratio to the baseline; `None` where there is no such ratio.
    pub fn new(comparison: &Comparison, method: usize, ratio: &str) -> Option<Self> {
        let lines = comparison.of_method(method).filter(|&i| !comparison.is_baseline(i));
        let shares = comparison.frame.of_rows(ratio, lines).apply_values(|ratio| ratio - 1.0);
        (!shares.is_empty()).then(|| Self { shares, repeated: comparison.repeated() })
    }

    pub fn median(&self) -> f64 {
        self.shares.median().expect("one change at least")
    }

    pub fn least(&self) -> f64 {
        self.shares.min().expect("one change at least")
    }

    pub fn most(&self) -> f64 {
        self.shares.max().expect("one change at least")
    }

    /// `15 to 30 %`, from the smallest to the largest; `None` of a single size. Both ends may read the same.
    pub fn range(&self) -> Option<String> {
        let (low, high) = (self.least(), self.most());
        let number = |share: f64| percent(share).trim_end_matches(" %").to_string();
        let from_to = |from: f64, to: f64| match (number(from), percent(to)) {
            (from, to) if to == format!("{from} %") => to,
            (from, to) => format!("{from} to {to}"),
        };
        (self.shares.len() > 1).then(|| match (low < 0.0, high < 0.0) {
            _ if self.median() >= MANY => format!("{:.0} to {:.0} times", 1.0 + low, 1.0 + high),
            (true, false) => format!("{} less to {} more", percent(low), percent(high)),
            (true, true) => from_to(high, low),
            _ => from_to(low, high),
        })
    }

    /// `over 5 shapes`
    pub fn over(&self) -> String {
        format!("over {} {}s", self.shares.len(), self.repeated)
    }
}

//! [`Change`]: what a method changes of one quantity against the baseline, over all sizes.

use polars::prelude::*;

use super::table::Comparison;
use crate::words::text::percent;

/// So many times as much is given in times, not in percent more.
const MANY: f64 = 9.0;

/// `10 to 15 % more step time at 2 of 5 shapes`, and the same of those that are less: relative changes that are known, of
/// so many sizes.
pub fn clauses(shares: &[f64], of: usize, what: &str) -> Vec<String> {
    let clause = |(less, word): (bool, &str)| {
        let mut shares: Vec<f64> = shares.iter().copied().filter(|share| (*share < 0.0) == less).collect();
        shares.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let (low, high) = (*shares.first()?, *shares.last()?);
        let at = match (shares.len(), of) {
            (_, 1) => String::new(),
            (2, 2) => " at both shapes".into(),
            (n, of) if n == of => format!(" at all {of} shapes"),
            (n, of) => format!(" at {n} of {of} shapes"),
        };
        if high >= MANY {
            let times = |share: f64| format!("{:.0}", 1.0 + share);
            return Some(match times(low) == times(high) {
                true => format!("{} times the {what}{at}", times(high)),
                false => format!("{} to {} times the {what}{at}", times(low), times(high)),
            });
        }
        Some(match percent(low) == percent(high) {
            true => format!("{} {word} {what}{at}", percent(high)),
            false => {
                format!("{} to {} {word} {what}{at}", percent(low).trim_end_matches(" %"), percent(high))
            }
        })
    };
    [(false, "more"), (true, "less")].into_iter().filter_map(clause).collect()
}

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

    pub fn count(&self) -> usize {
        self.shares.len()
    }

    /// `20 % more`, or `171 times the` where a percentage would be hard to read; the words are those for
    /// less, more and many times.
    pub fn written(&self, [less, more, times]: [&str; 3]) -> String {
        match self.median() {
            median if median < 0.0 => format!("{} {less}", percent(median)),
            median if median < MANY => format!("{} {more}", percent(median)),
            median => format!("{:.0} {times}", 1.0 + median),
        }
    }

    /// `15 to 30 % over 5 shapes`, from the smallest to the largest; `None` of a single size. Without `over`
    /// the number of shapes is left out.
    pub fn range(&self, over: bool) -> Option<String> {
        let (low, high, count) = (self.least(), self.most(), self.count());
        let [from, to] = if high < 0.0 { [high, low] } else { [low, high] };
        let range = match percent(from) == percent(to) {
            _ if self.median() >= MANY => format!("{:.0} to {:.0} times", 1.0 + low, 1.0 + high),
            _ if low < 0.0 && high >= 0.0 => format!("{} less to {} more", percent(low), percent(high)),
            true => percent(to),
            false => format!("{} to {}", percent(from).trim_end_matches(" %"), percent(to)),
        };
        let over = if over { format!(" over {count} {}s", self.repeated) } else { String::new() };
        (count > 1).then(|| format!("{range}{over}"))
    }
}

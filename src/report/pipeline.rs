//! [`Pipelined`]: a measured step of a pipeline, and the one that its schedule predicts.

use super::line::Line;
use crate::measure::Span;
use crate::row::computations;

/// Rank by rank: forwards and backwards, without updates.
pub struct Pipelined {
    pub predicted: Vec<Vec<Span>>,
    pub measured: Vec<Vec<Span>>,
}

impl Pipelined {
    /// Of the process with the median step; `None` of a cell without a pipeline, or that did not run to its end.
    pub fn new(line: &Line) -> Option<Self> {
        let row = line.typical_row()?;
        let predicted = row.derived.as_ref()?.schedule.clone()?;
        let ranks = &row.measurement.as_ref()?.ranks;
        Some(Self { predicted, measured: ranks.iter().map(|rank| computations(&rank.timeline)).collect() })
    }

    /// The measured time over the predicted one.
    pub fn over_predicted(&self) -> f64 {
        seconds(&self.measured) / seconds(&self.predicted)
    }
}

/// From the first start to the last end, in seconds.
pub fn seconds(ranks: &[Vec<Span>]) -> f64 {
    let spans = || ranks.iter().flatten();
    let start = spans().map(|span| span.start).fold(f64::INFINITY, f64::min);
    spans().map(|span| span.end).fold(0.0, f64::max) - start
}

/// The share of that in which a rank computes nothing, the mean over ranks.
pub fn idle(ranks: &[Vec<Span>]) -> f64 {
    let busy: f64 = ranks.iter().flatten().map(|span| span.end - span.start).sum();
    1.0 - busy / (seconds(ranks) * ranks.len() as f64)
}

//! Columns of cells in several processes.

use super::{Column, Of, column};
use crate::measure::RankRecord;
use crate::report::pipeline::{Pipelined, idle, seconds};
use crate::report::units::Unit::{Bytes, Count, PerSecond, Ratio, Seconds, Share};

/// A cell of several ranks compared with one process.
pub struct Scaling<'a> {
    pub ranks: &'a [RankRecord],
    pub tokens_per_second: f64,
    /// Of the baseline, where that is one process.
    pub of_one: Option<f64>,
    /// Bytes that the rank with the most sends in a step, by the formulas.
    pub sent: Option<u64>,
}

impl Scaling<'_> {
    fn most(&self, of: fn(&RankRecord) -> f64) -> Option<f64> {
        self.ranks.iter().map(of).reduce(f64::max)
    }

    /// How many times as fast as one process.
    fn speedup(&self) -> Option<f64> {
        Some(self.tokens_per_second / self.of_one?)
    }
}

type OfScaling = fn(&Scaling) -> Option<f64>;

/// A cell of several ranks.
pub const SCALING: &[Column<OfScaling>] = &[
    column("ranks", "ranks", Count, |s| Some(s.ranks.len() as f64)),
    column("tokens_per_second", "tokens/s", PerSecond, |s| Some(s.tokens_per_second)),
    column("speedup", "× one process", Ratio, |s| s.speedup()),
    column("scaling_efficiency", "scaling efficiency", Share, |s| Some(s.speedup()? / s.ranks.len() as f64)),
    column("most_sent", "sent, most", Bytes, |s| s.most(|rank| rank.sent_bytes)),
    column("sent_by_formula", "by the formula", Bytes, |s| s.sent.map(|bytes| bytes as f64)),
    column("most_exposed", "exposed, most", Seconds, |s| s.most(|rank| rank.exposed_seconds)),
    column("most_memory", "memory, most", Bytes, |s| s.most(|rank| rank.memory.live_peak as f64)),
];

/// One rank of a cell.
pub const RANKS: &[Column<Of<RankRecord>>] = &[
    column("rank_step_s", "step", Seconds, |r| Some(r.step_seconds)),
    column("rank_exchange_s", "exchange", Seconds, |r| Some(r.exchange_seconds)),
    column("rank_exposed_s", "exposed", Seconds, |r| Some(r.exposed_seconds)),
    column("rank_sent", "sent", Bytes, |r| Some(r.sent_bytes)),
    column("rank_memory", "peak memory", Bytes, |r| Some(r.memory.live_peak as f64)),
];

/// A step of a pipeline.
pub const PIPELINE: &[Column<Of<Pipelined>>] = &[
    column("pipeline_predicted_s", "predicted", Seconds, |p| Some(seconds(&p.predicted))),
    column("pipeline_measured_s", "measured", Seconds, |p| Some(seconds(&p.measured))),
    column("pipeline_predicted_idle", "idle, predicted", Share, |p| Some(idle(&p.predicted))),
    column("pipeline_measured_idle", "idle, measured", Share, |p| Some(idle(&p.measured))),
];

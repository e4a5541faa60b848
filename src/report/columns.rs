//! Every column of the report, defined once: its name in the files, its heading in tables and charts, its unit, and how it is
//! computed from a row. Polars holds the values (`frame`); tables, charts, sentences and `runner compare` read them by name.

mod answers;
mod documents;
mod ranks;
mod traces;

use super::learning::Learned;
use super::line::Line;
use super::statistics::half_width;
use super::units::Unit::{self, *};
use crate::measure::{
    Crossing, Loading, Magnitudes, Measurement, SMALLEST, SMALLEST_NORMAL, Samples, ScalerRecord,
};

pub use answers::{ANSWERS, Asked};
pub use documents::{MORE, MORE_RATIOS};
pub use ranks::{PIPELINE, RANKS, SCALING, Scaling};
pub use traces::{KERNELS, PARTS, TRACES, Traced};

/// A quantity and how it is computed: `F` is a function of a cell, a crossing of the bus, a trace or a part of it to an
/// `Option<f64>`, which is `None` where there is no such value.
pub struct Column<F> {
    pub name: &'static str,
    pub heading: &'static str,
    pub unit: Unit,
    pub over: Over,
    pub of: F,
}

/// How the values of several processes of a cell become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Median,
    Least,
    Most,
    /// The column is computed from all processes together.
    Whole,
}

const fn column<F: Copy>(name: &'static str, heading: &'static str, unit: Unit, of: F) -> Column<F> {
    Column { name, heading, unit, over: Over::Median, of }
}

const fn least(name: &'static str, heading: &'static str, of: OfLine) -> Column<OfLine> {
    Column { over: Over::Least, ..column(name, heading, Seconds, of) }
}

const fn most(name: &'static str, heading: &'static str, of: OfLine) -> Column<OfLine> {
    Column { over: Over::Most, ..column(name, heading, Seconds, of) }
}

const fn whole_cell(name: &'static str, heading: &'static str, unit: Unit, of: OfLine) -> Column<OfLine> {
    Column { over: Over::Whole, ..column(name, heading, unit, of) }
}

/// How the column of this name is computed of a cell.
///
/// # Panics
/// When there is no such column.
pub fn named(name: &str) -> OfLine {
    CELLS.iter().chain(MORE).find(|column| column.name == name).expect("a defined column").of
}

/// How a column is computed of each kind of row.
pub type Of<R> = fn(&R) -> Option<f64>;
pub type OfLine = fn(&Line) -> Option<f64>;
type OfGradients = fn(&(f64, &Magnitudes)) -> Option<f64>;

/// The columns of `table.csv` and `table.parquet`. Times in seconds, memory in bytes, losses in nats a token.
pub const CELLS: &[Column<OfLine>] = &[
    whole_cell("processes", "processes", Count, |l| {
        whole(Some(l.measurements().count() as u64)).filter(|n| *n > 0.0)
    }),
    column("forward_s_median", "forward", Seconds, |l| Some(forward(l)?.median)),
    least("forward_s_min", "forward, least", |l| Some(forward(l)?.min)),
    most("forward_s_max", "forward, most", |l| Some(forward(l)?.max)),
    column("backward_s_median", "backward", Seconds, |l| Some(backward(l)?.median)),
    least("backward_s_min", "backward, least", |l| Some(backward(l)?.min)),
    most("backward_s_max", "backward, most", |l| Some(backward(l)?.max)),
    column("optimizer_s_median", "optimizer", Seconds, |l| Some(optimizer(l)?.median)),
    least("optimizer_s_min", "optimizer, least", |l| Some(optimizer(l)?.min)),
    most("optimizer_s_max", "optimizer, most", |l| Some(optimizer(l)?.max)),
    column("step_s_median", "step time", Seconds, |l| Some(l.measured()?.step.median)),
    least("step_s_min", "step, least", |l| Some(l.measured()?.step.min)),
    most("step_s_max", "step, most", |l| Some(l.measured()?.step.max)),
    whole_cell("step_half_width", "± (95 %)", FineShare, |l| {
        half_width(&l.measurements().map(|m| m.step.median).collect::<Vec<_>>())
    }),
    column("host_update_s_median", "update", Seconds, |l| Some(l.measured()?.host_update.as_ref()?.median)),
    column("disk_rate", "disk GB/s", GigabytesPerSecond, |l| l.measured()?.disk_rate),
    column("host_update_hidden", "hidden", Share, |l| Some(l.hidden_update()?.0)),
    column("host_update_hidden_ceiling", "ceiling", Share, |l| Some(l.hidden_update()?.1)),
    column("tokens_per_second", "tokens/s", PerSecond, |l| Some(l.measured()?.tokens_per_second)),
    column("run_s", "whole run", Seconds, |l| Some(loading(l)?.run_seconds)),
    column("real_tokens", "real tokens", Count, |l| Some(loading(l)?.tokens() as f64)),
    column("padding_share", "padding", Share, |l| Some(loading(l)?.padding_share())),
    column("stall_share", "stall of the run", Share, |l| Some(loading(l)?.stall_share())),
    column("stall_s_median", "stall a step", Seconds, |l| Some(loading(l)?.stall.median)),
    column("dropped_samples", "dropped samples", Count, |l| Some(loading(l)?.dropped_samples as f64)),
    column("cut_samples", "cut samples", Count, |l| Some(loading(l)?.cut_samples? as f64)),
    column("cut_tokens", "cut tokens", Count, |l| Some(loading(l)?.cut_tokens as f64)),
    column("cut_share", "tokens cut", Share, |l| Some(loading(l)?.cut_share())),
    column("loss_first", "first loss", Nats, |l| l.measured()?.loss.first().copied()),
    column("loss_last", "last loss", Nats, |l| l.measured()?.loss.last().copied()),
    column("gradient_norm", "norm of gradients", Number, |l| l.measured()?.gradient_norm),
    column("train_loss_final", "last 5 %", Nats, |l| Some(Learned::of(l)?.train_last)),
    column("eval_loss", "held-out loss", Nats, |l| Some(Learned::of(l)?.end()?.loss)),
    column("eval_perplexity", "perplexity", Perplexity, |l| Some(Learned::of(l)?.end()?.perplexity())),
    column("eval_accuracy", "accuracy", FineShare, |l| Some(Learned::of(l)?.end()?.accuracy)),
    column("answers_right_before", "right before", FineShare, |l| {
        Some(answers::set(l, 0)?.before?.accuracy())
    }),
    column("answers_right", "right answers", FineShare, |l| Some(answers::set(l, 0)?.after.accuracy())),
    column("answers_right_low", "at least", FineShare, |l| Some(answers::set(l, 0)?.after.interval()[0])),
    column("answers_right_high", "at most", FineShare, |l| Some(answers::set(l, 0)?.after.interval()[1])),
    column("answers_right_other", "right in the other set", FineShare, |l| {
        Some(answers::set(l, 1)?.after.accuracy())
    }),
    column("feature_l2", "features moved, L2", Number, |l| Some(l.measured()?.feature_distance?.l2)),
    column("feature_cosine", "features moved, cosine", Number, |l| {
        Some(l.measured()?.feature_distance?.cosine)
    }),
    column("answer_tokens_per_second", "generated tokens/s", PerSecond, |l| {
        answers::set(l, 0)?.after.tokens_per_second()
    }),
    column("skipped_steps", "skipped steps", Count, |l| Some(scaler(l)?.skipped as f64)),
    column("final_scale", "final scale", PowerOfTwo, |l| Some(scaler(l)?.final_scale)),
    column("smallest_scale", "smallest scale", PowerOfTwo, |l| Some(scaler(l)?.smallest_scale)),
    column("gradients_below_2^-24", "< 2⁻²⁴", FineShare, |l| Some(gradients(l)?.share_below(SMALLEST))),
    column("gradients_below_2^-14", "< 2⁻¹⁴", FineShare, |l| {
        Some(gradients(l)?.share_below(SMALLEST_NORMAL))
    }),
    column("live_peak_bytes", "peak memory", Bytes, |l| Some(l.measured()?.memory.live_peak as f64)),
    column("forward_peak_bytes", "forward peak", Bytes, |l| Some(l.measured()?.memory.forward_peak as f64)),
    column("backward_peak_bytes", "backward peak", Bytes, |l| {
        backward(l).and(Some(l.measured()?.memory.backward_peak as f64))
    }),
    column("optimizer_peak_bytes", "optimizer peak", Bytes, |l| {
        Some(l.measured()?.memory.optimizer_peak as f64)
    }),
    column("after_forward_bytes", "after forward", Bytes, |l| {
        backward(l).and(Some(l.measured()?.memory.after_forward as f64))
    }),
    column("reserved_peak_bytes", "reserved", Bytes, |l| whole(l.measured()?.memory.reserved_peak)),
    column("driver_peak_bytes", "by the driver", Bytes, |l| whole(l.measured()?.memory.driver_peak)),
    column("pinned_bytes", "page-locked", Bytes, |l| whole(l.measured()?.memory.pinned)),
    column("host_bytes", "ordinary memory", Bytes, |l| whole(l.measured()?.memory.host)),
    column("resident_blocks", "resident blocks", Count, |l| Some(l.measured()?.resident_blocks? as f64)),
    column("process_rss_peak_bytes", "of the process", Bytes, |l| {
        whole(l.measured()?.memory.process_rss_peak)
    }),
    column("process_own_bytes", "of the process, files apart", Bytes, |l| {
        Some(l.measured()?.memory.process?.own as f64)
    }),
    column("process_files_bytes", "file-backed", Bytes, |l| {
        Some(l.measured()?.memory.process?.file_backed as f64)
    }),
    column("estimate_bytes", "estimate", Bytes, |l| Some(l.estimate() as f64)),
    column("estimate_over_measured", "est./peak", Ratio, |l| l.estimate_over_measured()),
    column("tflops", "TFLOP/s", Number, |l| Some(l.measured()?.flops_per_second / 1e12)),
    column("share_of_matmul_rate", "of the matmul rate", Share, |l| {
        let ceiling = l.ceilings.matmul(l.cell.precision.compute)?;
        Some(l.measured()?.flops_per_second / (ceiling * l.measured()?.devices()? as f64))
    }),
];

/// A ratio to the baseline: its name, its heading, and what it is a ratio of, the first of them that both
/// cells have. Steps of samplers do unequal work, so a real token's share of all of them is compared.
pub const RATIOS: &[(&str, &str, &[&str])] = &[
    ("forward_vs_baseline", "× forward", &["forward_s_per_token", "forward_s_median"]),
    ("backward_vs_baseline", "× backward", &["backward_s_per_token", "backward_s_median"]),
    ("step_vs_baseline", "× step", &["step_s_per_token", "step_s_median"]),
    ("live_peak_vs_baseline", "× memory", &["live_peak_bytes"]),
];

/// What crossed the bus in one direction during one phase.
pub const CROSSINGS: &[Column<Of<Crossing>>] = &[
    column("bytes", "bytes", Bytes, |c| whole(Some(c.bytes))),
    column("bytes_per_s", "GB/s", GigabytesPerSecond, |c| Some(c.rate())),
    column("copy_s", "copy time", Seconds, |c| Some(c.copy_seconds)),
    column("compute_s", "compute", Seconds, |c| Some(c.compute_seconds)),
    column("hidden_share", "hidden", Share, |c| Some(c.hidden_share())),
    column("hidden_ceiling", "ceiling", Share, |c| Some(c.ceiling())),
    column("hidden_of_ceiling", "of ceiling", Share, |c| {
        (c.ceiling() > 0.0).then(|| c.hidden_share() / c.ceiling())
    }),
];

/// The sizes of some gradients, and the scale that they were multiplied by.
pub const GRADIENTS: &[Column<OfGradients>] = &[
    column("scale", "scale", PowerOfTwo, |(scale, _)| Some(*scale)),
    column("zero", "zero", FineShare, |(_, of)| Some(of.zeros())),
    column("below_2^-24", "< 2⁻²⁴", FineShare, |(_, of)| Some(of.share_below(SMALLEST))),
    column("below_2^-14", "< 2⁻¹⁴", FineShare, |(_, of)| Some(of.share_below(SMALLEST_NORMAL))),
    column("unscaled_below_2^-24", "unscaled < 2⁻²⁴", FineShare, |(scale, of)| {
        Some(of.share_below(SMALLEST + scale.log2().round() as i32))
    }),
    column("unscaled_below_2^-14", "unscaled < 2⁻¹⁴", FineShare, |(scale, of)| {
        Some(of.share_below(SMALLEST_NORMAL + scale.log2().round() as i32))
    }),
];

fn whole(n: Option<u64>) -> Option<f64> {
    n.map(|n| n as f64)
}

/// `None` of a graph.
fn forward<'a>(line: &'a Line) -> Option<&'a Samples> {
    with_phases(line)?.forward.as_ref()
}

/// `None` of a pipeline: its schedule mixes forwards and backwards.
fn with_phases<'a>(line: &'a Line) -> Option<&'a Measurement> {
    line.measured().filter(|_| line.cell.parallel.pipeline.is_none())
}

/// `None` of a forward alone, and of a graph.
fn backward<'a>(line: &'a Line) -> Option<&'a Samples> {
    with_phases(line)?.backward.as_ref()
}

fn optimizer<'a>(line: &'a Line) -> Option<&'a Samples> {
    line.measured()?.optimizer.as_ref()
}

fn loading<'a>(line: &'a Line) -> Option<&'a Loading> {
    line.measured()?.loading.as_ref()
}

fn scaler<'a>(line: &'a Line) -> Option<&'a ScalerRecord> {
    line.measured()?.scaler.as_ref()
}

fn gradients<'a>(line: &'a Line) -> Option<&'a Magnitudes> {
    Some(&line.measured()?.gradient_histogram.as_ref()?.activations)
}

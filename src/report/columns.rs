//! Every column of the report, defined once: its name in the files, its heading in tables and charts, its unit, and how it is
//! computed from a row. Polars holds the values (`frame`); tables, charts, sentences and `runner compare` read them by name.

/// A list of columns, a line each: how the values of processes become one, name, heading, unit, and what it is of a row, a
/// [`Number`].
macro_rules! columns {
    ($(#[$doc:meta])* $list:ident: $of:ty, |$row:pat_param|
     $($over:ident $name:literal $heading:literal $unit:ident = $value:expr;)+) => {
        $(#[$doc])*
        pub const $list: &[$crate::report::columns::Column<$of>] = &[$($crate::report::columns::Column {
            name: $name,
            heading: $heading,
            unit: $crate::report::units::Unit::$unit,
            over: $crate::report::columns::Over::$over,
            of: |$row| $crate::report::columns::Number::number($value),
        }),+];
    };
}

mod documents;
mod parts;
mod traces;

use super::answers::set;
use super::learning::Learned;
use super::prelude::*;
use super::statistics::half_width;
use crate::measure::{
    Loading, Magnitudes, Measurement, MemoryUse, SMALLEST, SMALLEST_NORMAL, Samples, ScalerRecord,
};

pub use documents::{MORE, MORE_RATIOS};
pub use parts::{ANSWERS, CEILINGS, CROSSINGS, GRADIENTS, KERNELS, PARTS, RANKS};
pub use traces::TRACES;

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

columns! {
    /// The columns of `table.csv` and `table.parquet`. Times in seconds, memory in bytes, losses in nats a token.
    CELLS: OfLine, |l|
    Whole "processes" "processes" Count = positive(l.measurements().count());
    Median "forward_s_median" "forward" Seconds = forward(l)?.median;
    Least "forward_s_min" "forward, least" Seconds = forward(l)?.min;
    Most "forward_s_max" "forward, most" Seconds = forward(l)?.max;
    Median "backward_s_median" "backward" Seconds = backward(l)?.median;
    Least "backward_s_min" "backward, least" Seconds = backward(l)?.min;
    Most "backward_s_max" "backward, most" Seconds = backward(l)?.max;
    Median "optimizer_s_median" "optimizer" Seconds = optimizer(l)?.median;
    Least "optimizer_s_min" "optimizer, least" Seconds = optimizer(l)?.min;
    Most "optimizer_s_max" "optimizer, most" Seconds = optimizer(l)?.max;
    Median "step_s_median" "step time" Seconds = l.measured()?.step.median;
    Least "step_s_min" "step, least" Seconds = l.measured()?.step.min;
    Most "step_s_max" "step, most" Seconds = l.measured()?.step.max;
    Whole "step_half_width" "± (95 %)" FineShare = half_width(&l.measurements().map(|m| m.step.median).collect_vec());
    Median "host_update_s_median" "update" Seconds = l.measured()?.host_update.as_ref()?.median;
    Median "disk_rate" "disk GB/s" GigabytesPerSecond = l.measured()?.disk_rate;
    Median "host_update_hidden" "hidden" Share = l.hidden_update()?.0;
    Median "host_update_hidden_ceiling" "ceiling" Share = l.hidden_update()?.1;
    Median "tokens_per_second" "tokens/s" PerSecond = l.measured()?.tokens_per_second;
    Median "computed_tokens_per_second" "with padding" PerSecond = loading(l)?.computed_per_second();
    Median "run_s" "whole run" Seconds = loading(l)?.run_seconds;
    Median "real_tokens" "real tokens" Count = loading(l)?.tokens();
    Median "padding_share" "padding" Share = loading(l)?.padding_share();
    Median "stall_share" "stall of the run" Share = loading(l)?.stall_share();
    Median "stall_s_median" "stall a step" Seconds = loading(l)?.stall.median;
    Median "dropped_samples" "dropped samples" Count = loading(l)?.dropped_samples;
    Median "cut_samples" "cut samples" Count = loading(l)?.cut_samples?;
    Median "cut_tokens" "cut tokens" Count = loading(l)?.cut_tokens;
    Median "cut_share" "tokens cut" Share = loading(l)?.cut_share();
    Median "loss_first" "first loss" Nats = l.measured()?.loss.first().copied();
    Median "loss_last" "last loss" Nats = l.measured()?.loss.last().copied();
    Median "gradient_norm" "norm of gradients" Number = l.measured()?.gradient_norm;
    Median "train_loss_final" "last 5 %" Nats = Learned::of(l)?.train_last;
    Median "eval_loss" "held-out loss" Nats = Learned::of(l)?.end()?.loss;
    Median "eval_perplexity" "perplexity" Perplexity = Learned::of(l)?.end()?.perplexity();
    Median "eval_accuracy" "accuracy" FineShare = Learned::of(l)?.end()?.accuracy;
    Median "answers_right_before" "right before" FineShare = set(l, 0)?.before?.accuracy();
    Median "answers_right" "right answers" FineShare = set(l, 0)?.after.accuracy();
    Median "answers_right_low" "at least" FineShare = set(l, 0)?.after.interval()[0];
    Median "answers_right_high" "at most" FineShare = set(l, 0)?.after.interval()[1];
    Median "answers_right_other" "right in the other set" FineShare = set(l, 1)?.after.accuracy();
    Median "feature_l2" "features moved, L2" Number = l.measured()?.feature_distance?.l2;
    Median "feature_cosine" "features moved, cosine" Number = l.measured()?.feature_distance?.cosine;
    Median "answer_tokens_per_second" "generated tokens/s" PerSecond = set(l, 0)?.after.tokens_per_second;
    Median "skipped_steps" "skipped steps" Count = scaler(l)?.skipped;
    Median "final_scale" "final scale" PowerOfTwo = scaler(l)?.final_scale;
    Median "smallest_scale" "smallest scale" PowerOfTwo = scaler(l)?.smallest_scale;
    Median "gradients_below_2^-24" "< 2⁻²⁴" FineShare = gradients(l)?.share_below(SMALLEST);
    Median "gradients_below_2^-14" "< 2⁻¹⁴" FineShare = gradients(l)?.share_below(SMALLEST_NORMAL);
    Median "live_peak_bytes" "peak memory" Bytes = memory(l)?.live_peak;
    Median "forward_peak_bytes" "forward peak" Bytes = memory(l)?.forward_peak;
    Median "backward_peak_bytes" "backward peak" Bytes = backward(l).and(Some(memory(l)?.backward_peak as f64));
    Median "optimizer_peak_bytes" "optimizer peak" Bytes = memory(l)?.optimizer_peak;
    Median "after_forward_bytes" "after forward" Bytes = backward(l).and(Some(memory(l)?.after_forward as f64));
    Median "reserved_peak_bytes" "reserved" Bytes = memory(l)?.reserved_peak;
    Median "driver_peak_bytes" "by the driver" Bytes = memory(l)?.driver_peak;
    Median "pinned_bytes" "page-locked" Bytes = memory(l)?.pinned;
    Median "host_bytes" "ordinary memory" Bytes = memory(l)?.host;
    Median "resident_blocks" "resident blocks" Count = l.measured()?.resident_blocks?;
    Median "process_rss_peak_bytes" "of the process" Bytes = memory(l)?.process_rss_peak;
    Median "process_own_bytes" "of the process, files apart" Bytes = memory(l)?.process?.own;
    Median "process_files_bytes" "file-backed" Bytes = memory(l)?.process?.file_backed;
    Median "estimate_bytes" "estimate" Bytes = l.estimate();
    Median "estimate_over_measured" "est./peak" Ratio = over(l.estimate() as f64, memory(l)?.live_peak as f64);
    Median "tflops" "TFLOP/s" Number = l.measured()?.flops_per_second / 1e12;
    Median "share_of_matmul_rate" "of the matmul rate" Share = share_of_matmul_rate(l);
}

/// A ratio to the baseline: its name, its heading, and what it is a ratio of, the first of them that both
/// cells have. Steps of samplers do unequal work, so a real token's share of all of them is compared.
pub const RATIOS: &[(&str, &str, &[&str])] = &[
    ("forward_vs_baseline", "× forward", &["forward_s_per_token", "forward_s_median"]),
    ("backward_vs_baseline", "× backward", &["backward_s_per_token", "backward_s_median"]),
    ("step_vs_baseline", "× step", &["step_s_per_token", "step_s_median"]),
    ("live_peak_vs_baseline", "× memory", &["live_peak_bytes"]),
];

/// What a column may be of a row.
pub trait Number {
    fn number(self) -> Option<f64>;
}

macro_rules! numbers {
    ($($number:ty)+) => {$(impl Number for $number {
        fn number(self) -> Option<f64> {
            Some(self as f64)
        }
    })+};
}
numbers!(f64 u64 usize);

impl<N: Number> Number for Option<N> {
    fn number(self) -> Option<f64> {
        self?.number()
    }
}

/// A number above 0.
fn positive(of: impl Number) -> Option<f64> {
    of.number().filter(|number| *number > 0.0)
}

/// A quotient, where there is one.
fn over(own: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| own / of)
}

fn share_of_matmul_rate(line: &Line) -> Option<f64> {
    let ceiling = line.ceilings.matmul(line.cell.precision.compute)?;
    Some(line.measured()?.flops_per_second / (ceiling * line.measured()?.devices()? as f64))
}

fn memory<'a>(line: &'a Line) -> Option<&'a MemoryUse> {
    Some(&line.measured()?.memory)
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

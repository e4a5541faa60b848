//! Columns of traced steps: a step, an operator in a phase of it, and a kernel.

use super::super::profile::PartTime;
use super::super::units::Unit::*;
use super::{Column, Of, column};
use crate::measure::trace::{KernelTime, Summary};

/// A traced step.
pub struct Traced {
    pub summary: Summary,
    /// The share of the measured step that its kernels take, or of the traced one where batches differ in size.
    pub busy: f64,
    /// Seconds of the kernels of its update.
    pub update: f64,
}

/// One traced step.
pub const TRACES: &[Column<Of<Traced>>] = &[
    column("trace_s", "step", Seconds, |t| Some(t.summary.span as f64 * 1e-9)),
    column("trace_kernels", "kernels", Count, |t| Some(t.summary.kernels as f64)),
    column("trace_busy", "busy", Share, |t| Some(t.busy)),
    column("trace_update_s", "kernels of the update", Seconds, |t| (t.update > 0.0).then_some(t.update)),
    column("trace_idle_s", "longest idle", Seconds, |t| Some(t.summary.longest_idle as f64 * 1e-9)),
    column("trace_copies_to_device", "copies to the device", Count, |t| {
        Some(t.summary.to_device.count as f64)
    }),
    column("trace_bytes_to_device", "to the device", Bytes, |t| some(t.summary.to_device.bytes)),
    column("trace_rate_to_device", "GB/s", GigabytesPerSecond, |t| t.summary.to_device.rate()),
    column("trace_copies_to_host", "copies to the host", Count, |t| Some(t.summary.to_host.count as f64)),
    column("trace_bytes_to_host", "to the host", Bytes, |t| some(t.summary.to_host.bytes)),
    column("trace_rate_to_host", "GB/s", GigabytesPerSecond, |t| t.summary.to_host.rate()),
    column("trace_hidden", "copy time hidden", Share, |t| t.summary.hidden_share),
    column("trace_hidden_exchange", "exchange hidden", Share, |t| t.summary.hidden_exchange),
];

/// An operator in a phase of a traced step.
pub const PARTS: &[Column<Of<PartTime>>] = &[
    column("part_count", "count", Count, |p| Some(p.kernels? as f64)),
    column("part_s", "time", Seconds, |p| Some(p.seconds)),
    column("part_floor_s", "floor", Seconds, |p| p.floor),
    column("part_over_floor", "× floor", Ratio, |p| Some(p.seconds / p.floor?)),
    column("part_share", "of the step", Share, |p| Some(p.seconds / p.step)),
];

/// A kernel of a traced step, with the seconds of the step.
pub const KERNELS: &[Column<Of<(KernelTime, f64)>>] = &[
    column("kernel_count", "count", Count, |(k, _)| Some(k.count as f64)),
    column("kernel_s", "time", Seconds, |(k, _)| Some(k.time as f64 * 1e-9)),
    column("kernel_each_s", "each", Seconds, |(k, _)| Some(k.time as f64 * 1e-9 / k.count as f64)),
    column("kernel_share", "of the step", Share, |(k, step)| Some(k.time as f64 * 1e-9 / step)),
];

/// A number of bytes above 0.
fn some(bytes: u64) -> Option<f64> {
    (bytes > 0).then_some(bytes as f64)
}

//! Columns of the traced step of a cell.

use super::{OfLine, positive};
use crate::measure::trace::Summary;
use crate::report::line::Line;

columns! {
    /// One traced step.
    TRACES: OfLine, |l|
    Whole "trace_s" "step" Seconds = trace(l)?.span as f64 * 1e-9;
    Whole "trace_kernels" "kernels" Count = trace(l)?.kernels;
    Whole "trace_busy" "busy" Share = l.busy().unwrap_or(trace(l)?.busy_share());
    Whole "trace_copies_to_device" "copies to the device" Count = trace(l)?.to_device.count;
    Whole "trace_bytes_to_device" "to the device" Bytes = positive(trace(l)?.to_device.bytes);
    Whole "trace_rate_to_device" "GB/s" GigabytesPerSecond = trace(l)?.to_device.rate();
    Whole "trace_copies_to_host" "copies to the host" Count = trace(l)?.to_host.count;
    Whole "trace_bytes_to_host" "to the host" Bytes = positive(trace(l)?.to_host.bytes);
    Whole "trace_rate_to_host" "GB/s" GigabytesPerSecond = trace(l)?.to_host.rate();
    Whole "trace_hidden" "copy time hidden" Share = trace(l)?.hidden_share;
    Whole "trace_hidden_exchange" "exchange hidden" Share = trace(l)?.hidden_exchange;
}

fn trace<'l>(line: &'l Line) -> Option<&'l Summary> {
    line.trace.as_deref()
}

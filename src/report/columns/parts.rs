//! Columns of what a cell or a device has several of: crossings of the bus, sizes of gradients, test sets, ranks, operators and
//! kernels of a traced step, and measured rates.

use super::super::answers::Asked;
use super::super::profile::PartTime;
use super::{Of, over};
use crate::measure::trace::KernelTime;
use crate::measure::{Crossing, Magnitudes, RankRecord, SMALLEST, SMALLEST_NORMAL};
use crate::row::Ceilings;

columns! {
    /// What crossed the bus in one direction during one phase.
    CROSSINGS: Of<Crossing>, |c|
    Median "bytes" "bytes" Bytes = c.bytes;
    Median "bytes_per_s" "GB/s" GigabytesPerSecond = c.rate();
    Median "copy_s" "copy time" Seconds = c.copy_seconds;
    Median "compute_s" "compute" Seconds = c.compute_seconds;
    Median "hidden_share" "hidden" Share = c.hidden_share();
    Median "hidden_ceiling" "ceiling" Share = c.ceiling();
    Median "hidden_of_ceiling" "of ceiling" Share = over(c.hidden_share(), c.ceiling());
}

type OfGradients = fn(&(f64, &Magnitudes)) -> Option<f64>;

columns! {
    /// The sizes of some gradients, and the scale that they were multiplied by.
    GRADIENTS: OfGradients, |g|
    Median "scale" "scale" PowerOfTwo = g.0;
    Median "zero" "zero" FineShare = g.1.zeros();
    Median "below_2^-24" "< 2⁻²⁴" FineShare = g.1.share_below(SMALLEST);
    Median "below_2^-14" "< 2⁻¹⁴" FineShare = g.1.share_below(SMALLEST_NORMAL);
    Median "unscaled_below_2^-24" "unscaled < 2⁻²⁴" FineShare = g.1.share_below(SMALLEST + g.0.log2().round() as i32);
    Median "unscaled_below_2^-14" "unscaled < 2⁻¹⁴" FineShare = g.1.share_below(SMALLEST_NORMAL + g.0.log2().round() as i32);
}

type OfAsked = fn(&Asked) -> Option<f64>;

columns! {
    /// The answers to one test set.
    ANSWERS: OfAsked, |a|
    Median "questions" "questions" Count = a.after.questions;
    Median "before" "right before" FineShare = a.before?.accuracy();
    Median "before_low" "from" FineShare = a.before?.interval()[0];
    Median "before_high" "to" FineShare = a.before?.interval()[1];
    Median "after" "right after" FineShare = a.after.accuracy();
    Median "after_low" "from" FineShare = a.after.interval()[0];
    Median "after_high" "to" FineShare = a.after.interval()[1];
    Median "tokens_per_second" "tokens/s" PerSecond = a.after.tokens_per_second;
}

columns! {
    /// One rank of a cell.
    RANKS: Of<RankRecord>, |r|
    Median "rank_step_s" "step" Seconds = r.step_seconds;
    Median "rank_exchange_s" "exchange" Seconds = r.exchange_seconds;
    Median "rank_exposed_s" "exposed" Seconds = r.exposed_seconds;
    Median "rank_sent" "sent" Bytes = r.sent_bytes;
    Median "rank_memory" "peak memory" Bytes = r.memory.live_peak;
}

columns! {
    /// An operator in a phase of a traced step.
    PARTS: Of<PartTime>, |p|
    Median "part_count" "count" Count = p.kernels?;
    Median "part_s" "time" Seconds = p.seconds;
    Median "part_floor_s" "floor" Seconds = p.floor;
    Median "part_over_floor" "× floor" Ratio = p.seconds / p.floor?;
    Median "part_share" "of the step" Share = p.seconds / p.step;
}

columns! {
    /// A kernel of a traced step, with the seconds of the step.
    KERNELS: Of<(KernelTime, f64)>, |k|
    Median "kernel_count" "count" Count = k.0.count;
    Median "kernel_s" "time" Seconds = k.0.time as f64 * 1e-9;
    Median "kernel_each_s" "each" Seconds = k.0.time as f64 * 1e-9 / k.0.count as f64;
    Median "kernel_share" "of the step" Share = k.0.time as f64 * 1e-9 / k.1;
}

columns! {
    /// The measured rates of a device.
    CEILINGS: Of<Ceilings>, |c|
    Median "matmul_fp32" "fp32 TFLOP/s" Number = c.matmul_fp32? / 1e12;
    Median "matmul_tf32" "tf32 TFLOP/s" Number = c.matmul_tf32? / 1e12;
    Median "matmul_bf16" "bf16 TFLOP/s" Number = c.matmul_bf16? / 1e12;
    Median "matmul_fp16" "fp16 TFLOP/s" Number = c.matmul_fp16? / 1e12;
    Median "copy" "copy GB/s" GigabytesPerSecond = c.copy;
    Median "host_to_device" "to the device GB/s" GigabytesPerSecond = c.host_to_device;
    Median "device_to_host" "to the host GB/s" GigabytesPerSecond = c.device_to_host;
    Median "both_ways" "each way at once GB/s" GigabytesPerSecond = c.both_ways;
    Median "launch" "launch" Seconds = c.launch;
}

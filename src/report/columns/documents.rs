//! Columns of documents and charts that the files do not have.

use polars::prelude::{ChunkQuantile, Float64Chunked, QuantileMethod};

use super::{Column, Learned, OfLine, backward, column, forward, loading, whole};
use crate::measure::{Measurement, Samples};
use crate::report::line::Line;
use crate::report::offload::floor;
use crate::report::units::Unit::*;

/// Of each cell.
pub const MORE: &[Column<OfLine>] = &[
    column("trained_parameters", "trained parameters", Count, |l| Some(trained(l)?[0] as f64)),
    column("trained_share", "of all parameters", FineShare, |l| {
        let [trained, all] = trained(l)?;
        Some(trained as f64 / all as f64)
    }),
    column("steps", "steps", Count, |l| {
        let losses = l.measured()?.loss.len();
        Some(loading(l).map_or(losses, |loading| loading.step_tokens.len()) as f64)
    }),
    column("undivided_step_s", "step", Seconds, |l| {
        forward(l).is_none().then_some(l.measured()?.step.median)
    }),
    column("ranks", "ranks", Count, |l| {
        whole(Some(l.measured()?.ranks.len() as u64)).filter(|ranks| *ranks > 1.0)
    }),
    column("tokens", "tokens", Count, |l| Some(Learned::of(l)?.tokens as f64)),
    column("train_loss_initial", "training loss, first 5 %", Nats, |l| Some(Learned::of(l)?.train_first)),
    column("lowest_perplexity", "lowest perplexity", Perplexity, |l| {
        Some(Learned::of(l)?.better_than_end()?.perplexity())
    }),
    column("lowest_step", "after step", Count, |l| Some(Learned::of(l)?.better_than_end()?.step as f64)),
    column("host_update_of_ceiling", "of ceiling", Share, |l| {
        l.hidden_update().filter(|(_, ceiling)| *ceiling > 0.0).map(|(hidden, ceiling)| hidden / ceiling)
    }),
    column("run_s_per_token", "run", Seconds, |l| {
        loading(l).and(Some(1.0 / l.measured()?.tokens_per_second))
    }),
    column("time_s", "time", Seconds, |l| {
        Some(loading(l).map_or(l.measured()?.step.median, |l| l.run_seconds))
    }),
    column("forward_s_per_token", "forward", Seconds, |l| per_token(l, |m| m.forward.as_ref())),
    column("backward_s_per_token", "backward", Seconds, |l| per_token(l, |m| m.backward.as_ref())),
    column("optimizer_s_per_token", "optimizer", Seconds, |l| per_token(l, |m| m.optimizer.as_ref())),
    column("step_s_per_token", "step", Seconds, |l| per_token(l, |m| Some(&m.step))),
    column("forward_low", "forward, low", Ratio, |l| Some(spread(l, |m| m.forward.as_ref())?[0])),
    column("forward_high", "forward, high", Ratio, |l| Some(spread(l, |m| m.forward.as_ref())?[1])),
    column("backward_low", "backward, low", Ratio, |l| Some(spread(l, |m| m.backward.as_ref())?[0])),
    column("backward_high", "backward, high", Ratio, |l| Some(spread(l, |m| m.backward.as_ref())?[1])),
    column("step_low", "step, low", Ratio, |l| Some(spread(l, |m| Some(&m.step))?[0])),
    column("step_high", "step, high", Ratio, |l| Some(spread(l, |m| Some(&m.step))?[1])),
    column("weights_bytes", "weights", Bytes, |l| whole(Some(l.row?.estimate.weights))),
    column("gradients_bytes", "gradients", Bytes, |l| whole(Some(l.row?.estimate.gradients))),
    column("optimizer_bytes", "optimizer", Bytes, |l| whole(Some(l.row?.estimate.optimizer))),
    column("activations_bytes", "activations", Bytes, |l| whole(Some(l.row?.estimate.activations))),
    column("workspace_bytes", "workspace", Bytes, |l| whole(Some(l.row?.estimate.workspace))),
    column("floor_forward_s", "floor forward", Seconds, |l| forward(l).and(Some(floor(l)?[0]))),
    column("forward_over_floor", "×", Ratio, |l| over(forward(l)?.median, floor(l)?[0])),
    column("floor_backward_s", "floor backward", Seconds, |l| backward(l).and(Some(floor(l)?[1]))),
    column("backward_over_floor", "×", Ratio, |l| over(backward(l)?.median, floor(l)?[1])),
    column("both_over_floor", "both ×", Ratio, |l| {
        let floor = floor(l)?;
        over(forward(l)?.median + backward(l)?.median, floor[0] + floor[1])
    }),
    column("nearest_baseline", "nearest baseline", Count, |l| l.nearest.then_some(1.0)),
    column("published", "published", Count, |l| l.published.map(|_| 1.0)),
    column("published_forward_s", "forward published", Seconds, |l| l.published?.forward),
    column("published_backward_s", "backward published", Seconds, |l| l.published?.backward),
    column("published_memory", "memory published", Gigabytes, |l| Some(l.published?.memory? * 1e9)),
    column("memory", "memory", Gigabytes, |l| Some(l.measured()?.memory.live_peak as f64)),
];

/// A time over its floor, where there is one.
fn over(time: f64, floor: f64) -> Option<f64> {
    (floor > 0.0).then(|| time / floor)
}

/// Ratios to the baseline, as [`super::RATIOS`].
pub const MORE_RATIOS: &[(&str, &str, &[&str])] = &[
    ("perplexity_vs_baseline", "× perplexity", &["eval_perplexity"]),
    ("run_vs_baseline", "× run", &["run_s_per_token"]),
    ("published_backward_vs_baseline", "× backward published", &["published_backward_s"]),
    ("published_memory_vs_baseline", "× memory published", &["published_memory"]),
];

/// The number of trained parameters, and of all with those that tuning adds. `None` where nothing is trained, or everything
/// and no feature distance compares it with other methods.
fn trained(line: &Line) -> Option<[u64; 2]> {
    let compared = line.cell.eval.is_some_and(|eval| eval.feature_distance);
    let tuned = (!line.cell.tuning.is_full() || compared) && line.cell.train.mode.trains();
    let derived = line.derived().filter(|_| tuned)?;
    Some([derived.trained, derived.parameters])
}

/// A step in which the host stood still took this many times the median, by the clock and for each real token. A batch of long
/// samples is one by the clock alone, and one of few tokens for each token alone.
const STOOD_STILL: f64 = 10.0;

/// Seconds of a phase and real tokens of the steps, but for those in which the host stood still; `None` without a sampler.
fn steps(line: &Line, phase: &Samples) -> Option<Vec<[f64; 2]>> {
    let (tokens, whole) = (&loading(line)?.step_tokens, &line.measured()?.step);
    let each: Vec<f64> = whole.seconds.iter().zip(tokens).map(|(s, tokens)| s / *tokens as f64).collect();
    let median = Samples::of(each.clone())?.median;
    let moved = |i: &usize| whole.seconds[*i] < STOOD_STILL * whole.median || each[*i] < STOOD_STILL * median;
    let all = phase.seconds.len().min(each.len());
    Some((0..all).filter(moved).map(|i| [phase.seconds[i], tokens[i] as f64]).collect())
}

/// Seconds of the steps for each real token; `None` without a sampler.
fn per_token(line: &Line, of: fn(&Measurement) -> Option<&Samples>) -> Option<f64> {
    let steps = steps(line, of(line.measured()?)?)?;
    let [seconds, tokens] = [0, 1].map(|i| steps.iter().map(|step| step[i]).sum::<f64>());
    Some(seconds / tokens)
}

/// The quartiles of the samples over their median, which a single slow step does not change. With a sampler those of the mean
/// over the steps of the time for each real token.
fn spread(line: &Line, of: fn(&Measurement) -> Option<&Samples>) -> Option<[f64; 2]> {
    let samples = of(line.measured()?)?;
    let Some(steps) = steps(line, samples) else {
        return Some(quartiles(samples.seconds.clone()).map(|quartile| quartile / samples.median));
    };
    let [low, high] = quartiles(steps.iter().map(|[seconds, tokens]| seconds / tokens).collect());
    // A mean of many steps spreads less than they do.
    let half = (high - low) / per_token(line, of)? / (steps.len() as f64).sqrt() / 2.0;
    Some([1.0 - half, 1.0 + half])
}

fn quartiles(values: Vec<f64>) -> [f64; 2] {
    let values = Float64Chunked::from_vec("".into(), values);
    [0.25, 0.75].map(|q| values.quantile(q, QuantileMethod::Linear).ok().flatten().unwrap_or_default())
}

//! Columns of documents and charts that the files do not have.

use super::{Learned, OfLine, backward, forward, loading, memory, over, positive};
use crate::measure::{Measurement, RankRecord, Samples};
use crate::report::line::Line;
use crate::report::offload::floor;
use crate::report::pipeline::{Pipelined, idle, seconds};

columns! {
    /// Of each cell.
    MORE: OfLine, |l|
    Median "trained_parameters" "trained parameters" Count = trained(l)?[0];
    Median "all_trained" "trained parameters" Count = l.derived()?.trained;
    Median "saved_bytes" "saved" Bytes = l.derived()?.trained as f64 * l.cell.precision.stored_bytes() as f64;
    Median "time_of_training_s" "training time" Seconds = Learned::of(l)?.seconds();
    Median "trained_share" "of all parameters" FineShare = trained(l)?[0] / trained(l)?[1];
    Median "steps" "steps" Count = loading(l).map_or(l.measured()?.loss.len(), |loading| loading.step_tokens.len());
    Median "undivided_step_s" "step" Seconds = forward(l).is_none().then_some(l.measured()?.step.median);
    Median "ranks" "ranks" Count = Some(l.measured()?.ranks.len()).filter(|ranks| *ranks > 1);
    Whole "most_sent" "sent, most" Bytes = most_of_ranks(l, |rank| rank.sent_bytes);
    Whole "sent_by_formula" "by the formula" Bytes = l.derived()?.sent;
    Whole "most_exposed" "exposed, most" Seconds = most_of_ranks(l, |rank| rank.exposed_seconds);
    Whole "most_memory" "memory, most" Bytes = most_of_ranks(l, |rank| rank.memory.live_peak as f64);
    Whole "pipeline_predicted_s" "predicted" Seconds = seconds(&Pipelined::new(l)?.predicted);
    Whole "pipeline_measured_s" "measured" Seconds = seconds(&Pipelined::new(l)?.measured);
    Whole "pipeline_predicted_idle" "idle, predicted" Share = idle(&Pipelined::new(l)?.predicted);
    Whole "pipeline_measured_idle" "idle, measured" Share = idle(&Pipelined::new(l)?.measured);
    Whole "pipeline_over_predicted" "measured over predicted" Ratio = Pipelined::new(l)?.over_predicted();
    Median "all_host_bytes" "host memory" Bytes = positive(memory(l)?.pinned.unwrap_or(0) + memory(l)?.host.unwrap_or(0));
    Median "tokens" "tokens" Count = Learned::of(l)?.tokens;
    Median "train_loss_initial" "training loss, first 5 %" Nats = Learned::of(l)?.train_first;
    Median "lowest_perplexity" "lowest perplexity" Perplexity = Learned::of(l)?.better_than_end()?.perplexity();
    Median "lowest_step" "after step" Count = Learned::of(l)?.better_than_end()?.step;
    Median "host_update_of_ceiling" "of ceiling" Share = over(l.hidden_update()?.0, l.hidden_update()?.1);
    Median "run_s_per_token" "run" Seconds = loading(l).and(Some(1.0 / l.measured()?.tokens_per_second));
    Median "time_s" "time" Seconds = loading(l).map_or(l.measured()?.step.median, |l| l.run_seconds);
    Median "forward_s_per_token" "forward" Seconds = per_token(l, |m| m.forward.as_ref());
    Median "backward_s_per_token" "backward" Seconds = per_token(l, |m| m.backward.as_ref());
    Median "optimizer_s_per_token" "optimizer" Seconds = per_token(l, |m| m.optimizer.as_ref());
    Median "step_s_per_token" "step" Seconds = per_token(l, |m| Some(&m.step));
    Median "weights_bytes" "weights" Bytes = l.row?.estimate.weights;
    Median "gradients_bytes" "gradients" Bytes = l.row?.estimate.gradients;
    Median "optimizer_bytes" "optimizer" Bytes = l.row?.estimate.optimizer;
    Median "activations_bytes" "activations" Bytes = l.row?.estimate.activations;
    Median "workspace_bytes" "workspace" Bytes = l.row?.estimate.workspace;
    Median "floor_forward_s" "floor forward" Seconds = forward(l).and(Some(floor(l)?[0]));
    Median "forward_over_floor" "×" Ratio = over(forward(l)?.median, floor(l)?[0]);
    Median "floor_backward_s" "floor backward" Seconds = backward(l).and(Some(floor(l)?[1]));
    Median "backward_over_floor" "×" Ratio = over(backward(l)?.median, floor(l)?[1]);
    Median "both_over_floor" "both ×" Ratio = over(forward(l)?.median + backward(l)?.median, floor(l)?.iter().sum());
    Median "nearest_baseline" "nearest baseline" Count = l.nearest.then_some(1.0);
    Median "published" "published" Count = l.published.map(|_| 1.0);
    Median "published_forward_s" "forward published" Seconds = l.published?.forward;
    Median "published_backward_s" "backward published" Seconds = l.published?.backward;
    Median "published_memory" "memory published" Gigabytes = l.published?.memory? * 1e9;
    Median "memory" "memory" Gigabytes = l.measured()?.memory.live_peak;
}

/// Ratios to the baseline, as [`super::RATIOS`].
pub const MORE_RATIOS: &[(&str, &str, &[&str])] = &[
    ("perplexity_vs_baseline", "× perplexity", &["eval_perplexity"]),
    ("gradient_norm_vs_baseline", "× norm of gradients", &["gradient_norm"]),
    ("run_vs_baseline", "× run", &["run_s_per_token"]),
    ("published_backward_vs_baseline", "× backward published", &["published_backward_s"]),
    ("published_memory_vs_baseline", "× memory published", &["published_memory"]),
];

/// The number of trained parameters, and of all with those that tuning adds. `None` where nothing is trained, or everything
/// and no feature distance compares it with other methods.
fn trained(line: &Line) -> Option<[f64; 2]> {
    let compared = line.cell.eval.is_some_and(|eval| eval.feature_distance);
    let tuned = (!line.cell.tuning.is_full() || compared) && line.cell.train.mode.trains();
    let derived = line.derived().filter(|_| tuned)?;
    Some([derived.trained, derived.parameters].map(|count| count as f64))
}

/// The highest of the ranks.
fn most_of_ranks(line: &Line, of: fn(&RankRecord) -> f64) -> Option<f64> {
    line.typical()?.ranks.iter().map(of).reduce(f64::max)
}

/// A step in which the host stood still took this many times the median, by the clock and for each real token. A batch of long
/// samples is one by the clock alone, and one of few tokens for each token alone.
const STOOD_STILL: f64 = 10.0;

/// Seconds of a phase for each real token, without steps in which the host stood still; `None` without a sampler.
fn per_token(line: &Line, of: fn(&Measurement) -> Option<&Samples>) -> Option<f64> {
    let measured = line.measured()?;
    let (phase, step, tokens) = (of(measured)?, &measured.step, &loading(line)?.step_tokens);
    let each: Vec<f64> = step.seconds.iter().zip(tokens).map(|(s, tokens)| s / *tokens as f64).collect();
    let median = Samples::of(each.clone())?.median;
    let moved = |i: &usize| step.seconds[*i] < STOOD_STILL * step.median || each[*i] < STOOD_STILL * median;
    let moved = (0..phase.seconds.len().min(each.len())).filter(moved);
    let (time, real) = moved.fold((0.0, 0.0), |(s, t), i| (s + phase.seconds[i], t + tokens[i] as f64));
    Some(time / real)
}

//! [`Pipelined`]: a measured step of a pipeline, and the one that its schedule predicts.

use itertools::Itertools;

use super::columns::PIPELINE;
use super::document::Table;
use super::line::Line;
use super::table::Comparison;
use crate::measure::Span;
use crate::parallel::schedule::simulate::{Times, simulate};
use crate::recipe::Cell;
use crate::words::text::{self, percent, sentence as sentence_of};

/// Rank by rank: forwards and backwards, without updates.
pub struct Pipelined {
    pub predicted: Vec<Vec<Span>>,
    pub measured: Vec<Vec<Span>>,
}

impl Pipelined {
    /// Of the process with the median step; `None` of a cell without a pipeline, or that did not run to its end.
    pub fn of(line: &Line) -> Option<Self> {
        let ranks = &line.typical()?.ranks;
        let measured = ranks.iter().map(|rank| computations(&rank.timeline)).collect();
        let time = |stage| {
            let mut stages = ranks.iter().flat_map(|rank| &rank.stages);
            stages.find(|time| time.stage == stage).map(|time| (time.forward, time.backward))
        };
        let update = ranks.iter().map(|rank| mean_update(&rank.timeline)).collect();
        Some(Self { predicted: predicted(line.cell, time, update)?, measured })
    }
}

/// Seconds of one update; 0 without one.
fn mean_update(spans: &[Span]) -> f64 {
    let updates = spans.iter().filter(|span| span.action == "U").map(|span| span.end - span.start);
    let (count, seconds) = updates.fold((0.0, 0.0), |(count, sum), update| (count + 1.0, sum + update));
    if count > 0.0 { seconds / count } else { 0.0 }
}

fn computations(spans: &[Span]) -> Vec<Span> {
    spans.iter().filter(|span| span.action != "U").cloned().collect()
}

/// The schedule with these times of the stages and of each rank's updates; messages take none.
fn predicted(
    cell: &Cell,
    time: impl Fn(usize) -> Option<(f64, f64)>,
    update: Vec<f64>,
) -> Option<Vec<Vec<Span>>> {
    let order = cell.parallel.pipeline.as_ref()?.order();
    let times: Vec<(f64, f64)> = (0..order.shape.stages()).map(time).collect::<Option<_>>()?;
    let (forward, backward) = times.into_iter().unzip();
    let times = Times { forward, backward, update, message: 0.0 };
    let step = simulate(&order, &times).ok()?;
    Some(step.spans().iter().map(|rank| computations(rank)).collect())
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

/// A step slower by this than the median one is told.
const SLOW: f64 = 1.02;
/// Pipelines that a sentence has.
const FEW: usize = 4;

/// The median step where the recorded one is clearly slower, even without its update.
fn slow(line: &Line, of: &Pipelined) -> Option<String> {
    let median = line.typical()?.step.median;
    (seconds(&of.measured) > SLOW * median).then(|| text::seconds(median))
}

/// How long each pipeline's step is and how much of it a rank is idle, beside what the schedule predicts. Of many, the least and
/// the most by which they differ from that, and the one that is least idle.
pub fn sentence(comparison: &Comparison) -> Option<String> {
    let all = comparison.lines.iter().filter_map(|line| Some((line, Pipelined::of(line)?)));
    let all: Vec<(&Line, Pipelined)> = all.collect();
    let part = |(line, of): &(&Line, Pipelined)| {
        let [step, predicted] = [&of.measured, &of.predicted].map(|ranks| text::seconds(seconds(ranks)));
        let [idle, by_schedule] = [&of.measured, &of.predicted].map(|ranks| percent(idle(ranks)));
        let slow = slow(line, of).map_or_else(String::new, |median| {
            format!(" of a slow step (with its update the median one takes {median})")
        });
        format!(
            "{} takes {step} from the first forward to the last backward{slow}, {predicted} by the schedule and its stages' times, and is \
             idle for {idle} ({by_schedule} by the schedule)",
            comparison.name(line)
        )
    };
    if all.len() <= FEW {
        return (!all.is_empty()).then(|| format!("{}.", sentence_of(&all.iter().map(part).join("; "))));
    }
    let beyond = |of: &Pipelined| seconds(&of.measured) / seconds(&of.predicted) - 1.0;
    let (least, most) = all.iter().minmax_by(|a, b| beyond(&a.1).total_cmp(&beyond(&b.1))).into_option()?;
    let [least, most] = [least, most].map(|(line, of)| {
        let share = beyond(of);
        let than = if share < 0.0 { "shorter" } else { "longer" };
        let slow = slow(line, of).map_or_else(String::new, |median| {
            format!(
                ", a slow step: {}, where with its update the median one takes {median}",
                text::seconds(seconds(&of.measured))
            )
        });
        format!("{} {than} ({}{slow})", percent(share.abs()), comparison.name(line))
    });
    let least_idle = all.iter().min_by(|a, b| idle(&a.1.measured).total_cmp(&idle(&b.1.measured)))?;
    Some(format!(
        "Steps from the first forward to the last backward are from {least} to {most} than their schedules and stages' times predict. \
         The least idle: {}.",
        part(least_idle)
    ))
}

/// The step of each pipeline.
pub fn table(comparison: &Comparison) -> Option<Table> {
    let rows = comparison.lines.iter().enumerate();
    let rows = rows.filter_map(|(i, line)| Some((i, Vec::new(), Pipelined::of(line)?)));
    let caption = "The last measured step of each pipeline, from the first forward to the last backward, and the step that its \
                   schedule predicts, with the time that each stage takes by itself while all other ranks wait, that of \
                   updates between backwards as measured, and none for messages. Idle: the share in which a rank computes \
                   no forward or backward, as a mean over ranks. Ranks that share the \
                   cores of one CPU slow each other down where they have more threads than there are cores.";
    comparison.table_of(caption, PIPELINE, rows)
}

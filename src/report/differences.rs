//! [`Differences`]: the sizes at which the time of a method differs from its baseline's by more than chance. A process counts
//! as one value: steps of one process are alike, and say nothing about the next process.

use std::collections::BTreeSet;

use itertools::Itertools;

use super::line::Line;
use super::statistics::{LEVEL, holm, welch};
use super::table::{Comparison, Group};
use crate::advise::{Rates, with_launches};
use crate::data::sampler::Rows;
use crate::recipe::Cell;
use crate::row::Environment;
use crate::words::DeviceId;
use crate::words::text::{and, percent};

/// The compared quantities: the prefix of their columns, and their name.
pub const TIMES: [(&str, &str); 3] =
    [("step", "step time"), ("backward", "backward time"), ("forward", "forward time")];

/// With fewer processes on a side a t-test finds hardly anything.
pub const ENOUGH: usize = 3;

/// What is known about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is larger than processes, or the steps of a single one, are apart by chance.
    Clear,
    /// It may be chance.
    Chance,
    /// The two were measured by different builds of the runner.
    OtherBuild,
}

/// One quantity of a method against its baseline, at equal sizes.
pub struct Difference {
    pub method: usize,
    pub quantity: &'static str,
    /// Of medians over processes.
    pub ratio: f64,
    pub known: Known,
    /// The number of processes of the one with fewer.
    pub processes: usize,
}

/// All differences of a report.
pub struct Differences {
    pub all: Vec<Difference>,
}

impl Differences {
    pub fn new(comparison: &Comparison) -> Self {
        let (mut all, mut tested, mut p_values) = (Vec::new(), Vec::new(), Vec::new());
        for problem in 0..comparison.problems() {
            for method in 0..comparison.methods.len() {
                let own = comparison.of_problem(problem, method);
                let Some(base) = own.iter().find_map(|&i| comparison.lines[i].baseline) else { continue };
                let base = comparison.of_problem(problem, comparison.lines[base].method);
                if own == base {
                    continue;
                }
                let has_backward =
                    own.iter().any(|&i| comparison.frame.get("backward_s_median", i).is_some());
                // Without a backward a step is its forward.
                for (quantity, _) in TIMES.into_iter().filter(|(of, _)| has_backward || *of != "forward") {
                    let [times, others] = [&own, &base].map(|lines| times(comparison, lines, quantity));
                    let (Some(median), Some(other)) = (median(&times), median(&others)) else { continue };
                    let ratio = median / other;
                    let processes = times.len().min(others.len());
                    let known = if !are_of_one_build(comparison, [&own, &base]) {
                        Known::OtherBuild
                    } else if let Some(p) = welch(&times, &others) {
                        tested.push(all.len());
                        p_values.push(p);
                        Known::Chance
                    } else if beyond_steps(comparison, [&own, &base], quantity, ratio) {
                        Known::Clear
                    } else {
                        Known::Chance
                    };
                    all.push(Difference { method, quantity, ratio, known, processes });
                }
            }
        }
        for (difference, found) in tested.into_iter().zip(holm(&p_values, LEVEL)) {
            if found {
                all[difference].known = Known::Clear;
            }
        }
        Self { all }
    }

    pub fn of(&self, method: usize, quantity: &str) -> impl Iterator<Item = &Difference> {
        self.all.iter().filter(move |of| of.method == method && of.quantity == quantity)
    }

    /// What holds for all of them: whether the spread between processes was measured, and whether builds are mixed.
    pub fn caveats(&self, comparison: &Comparison) -> Vec<String> {
        let mut out = Vec::new();
        let measured = || (0..comparison.lines.len()).filter(|&i| comparison.lines[i].measured().is_some());
        let builds = builds(comparison, &measured().collect::<Vec<_>>());
        if builds.len() > 1 {
            out.push(format!(
                "The rows come from {} builds of the runner, {}: the report states no difference in time between cells of \
                 different builds. `runner run --stale` measures all of them with one build.",
                builds.len(),
                and(&builds)
            ));
        }
        // Also of methods that nothing is compared with, since the baseline did not run.
        let groups = comparison.groups();
        let processes: Vec<usize> = groups
            .iter()
            .map(|group| times(comparison, &group.lines, "step").len())
            .filter(|processes| *processes > 0)
            .collect();
        let compared = self.all.iter().filter(|of| of.known != Known::OtherBuild).count();
        if processes.len() < 2 || builds.len() > 1 && compared == 0 {
            return out;
        }
        let (single, several): (Vec<usize>, Vec<usize>) = processes.into_iter().partition(|n| *n < 2);
        if let Some(fewest) = several.iter().min().filter(|_| compared > 0) {
            let seeds = comparison.problems() < comparison.shapes.len();
            out.push(format!(
                "Times are medians over processes{}, {}at least {fewest} of each. The report states a difference where Welch's \
                 t-test finds one with a chance of error of {LEVEL} over all {compared} comparisons together (Holm), and in this \
                 answer over those of its methods (Bonferroni).{}",
                if seeds { ", those of other seeds among them" } else { "" },
                if single.is_empty() { "" } else { "of some cells " },
                if *fewest < ENOUGH { " Of two processes it finds only large ones: measure.repeats = 5 finds more." } else { "" },
            ));
        }
        if !single.is_empty() {
            let bounds = bounds(comparison, &measured().collect::<Vec<_>>());
            let cells = match several.is_empty() {
                true => "Cells were measured in one process each",
                false => "Some cells were measured in one process",
            };
            out.push(format!(
                "{cells}, so the spread between processes was not measured: the report states a difference in time where the \
                 middle halves of the steps are farther apart than two processes of one cell may be: {bounds}. \
                 measure.repeats = 5 shows by how much they do.",
            ));
        }
        out
    }
}

/// Whether a step of a group takes clearly longer than one of another group of the same problem. The chance of error is that of
/// a comparison with each other method.
pub fn is_slower(comparison: &Comparison, group: &Group, other: &Group) -> bool {
    let others = || comparison.groups().iter().filter(|of| of.problem == group.problem).count() - 1;
    let lines = [&*group.lines, &*other.lines];
    exceeds(comparison, lines, lines.map(|lines| times(comparison, lines, "step")), others)
}

/// Whether some lines clearly take longer for each real token than others: over the whole run with a sampler, else by the
/// steps.
pub fn takes_longer(comparison: &Comparison, lines: &[usize], others: &[usize]) -> bool {
    let times = |lines: &[usize]| lines.iter().flat_map(|&line| for_a_token(comparison, line)).collect();
    exceeds(comparison, [lines, others], [times(lines), times(others)], || 1)
}

/// Seconds for each real token in each process of a line.
pub fn for_a_token(comparison: &Comparison, line: usize) -> Vec<f64> {
    if comparison.with_samplers() {
        let rates = comparison.over_processes("tokens_per_second", &[line]);
        return rates.into_iter().map(f64::recip).collect();
    }
    let steps = comparison.over_processes("step_s_median", &[line]);
    let tokens = comparison.lines[line].cell.train.tokens_of_a_step() as f64;
    steps.into_iter().map(|seconds| seconds / tokens).collect()
}

/// Whether the values of the first lines, one for each process, are clearly higher than those of the second, where so many
/// comparisons are made. Nothing is known of lines of different builds.
fn exceeds(
    comparison: &Comparison,
    lines: [&[usize]; 2],
    [own, base]: [Vec<f64>; 2],
    comparisons: impl FnOnce() -> usize,
) -> bool {
    let (Some(median), Some(least)) = (median(&own), median(&base)) else { return false };
    median > least
        && are_of_one_build(comparison, lines)
        && match welch(&own, &base) {
            Some(p) => p < LEVEL / comparisons().max(1) as f64,
            None => beyond_steps(comparison, lines, "step", median / least),
        }
}

pub fn are_of_one_build(comparison: &Comparison, lines: [&[usize]; 2]) -> bool {
    builds(comparison, lines.into_iter().flatten()).len() < 2
}

/// The quantity in each process of the lines: for a step, or with a sampler for a real token.
fn times(comparison: &Comparison, lines: &[usize], quantity: &str) -> Vec<f64> {
    let unit = if comparison.with_samplers() { "per_token" } else { "median" };
    comparison.over_processes(&format!("{quantity}_s_{unit}"), lines)
}

pub fn median(values: &[f64]) -> Option<f64> {
    Some(crate::measure::Samples::of(values.to_vec())?.median)
}

/// Single processes of equal work on a GPU that never waits are this far apart: of nine pairs of steps of 54 to 148 ms in
/// `results/strong`, eight are within 3 %, and one is 5.3 % apart.
const ON_GPU: f64 = 0.06;
/// Where kernels take at least this share of the step they are not farther apart, however many they are: of 117 such rows in
/// `results` at the commits 9d382d64 and b2d48b39, 116 are within 3.4 % of their cell's row at the other commit, one 9.8 %.
const BUSY: f64 = 0.9;
/// The most that they are apart where the GPU waits for its host: beside other work of the host a step with tf32 in
/// `results/amp_wikitext` took 7.05, 9.47 and 13.18 ms.
const OF_HOST: f64 = 0.9;
/// The same on a CPU: on two cores one loss scale or another took 31.7 to 42.0 ms.
const ON_CPU: f64 = 0.33;

/// The column's value of the first of these lines that has one.
fn first(comparison: &Comparison, column: &str, lines: &[usize]) -> Option<f64> {
    lines.iter().find_map(|&line| comparison.frame.get(column, line))
}

/// By which share another process of a cell may be shorter, and longer, where it runs. `busy`: the share of the step that
/// kernels take, where it was traced.
fn apart(cell: &Cell, environment: &Environment, busy: Option<f64>) -> [f64; 2] {
    let cell = Cell { device: environment.device.id.clone(), ..cell.clone() };
    match cell.device_id() {
        DeviceId::Cpu => [ON_CPU; 2],
        DeviceId::Cuda(_) if busy.is_some_and(|busy| busy >= BUSY) => [ON_GPU; 2],
        device @ DeviceId::Cuda(_) => {
            let rates = Rates::of(device, environment.ceilings);
            // Twice as fast, and half as fast. What does not wait for its host is as long as before.
            let [shorter, longer] = [0.5, 2.0].map(|times| with_launches(&cell, &rates, times));
            // No step is shorter than its kernels.
            let shorter = busy.map_or(shorter.recip(), |busy| shorter.recip().min(busy.recip()));
            [shorter, longer].map(|ratio| (ON_GPU + ratio - 1.0).min(OF_HOST))
        }
    }
}

/// The cell with as many tokens a step as its batches have in the mean.
fn of_mean_batch(line: &Line) -> Cell {
    let mut cell = line.cell.clone();
    let loading = line.measured().and_then(|measured| measured.loading.as_ref());
    if let Some(loading) = loading.filter(|_| cell.data.sampler().sampler.rows() == Rows::Longest) {
        let tokens = loading.step_tokens.iter().sum::<u64>() + loading.padding_tokens;
        // A step's tokens are those of all its micro-batches.
        let rows = loading.step_tokens.len() * cell.train.batch_size * cell.train.accumulation_steps;
        cell.train.seq_len = (tokens as usize / rows).max(1);
    }
    cell
}

/// By which share another process of a line may be shorter, and longer; 0 if it did not run.
fn single(comparison: &Comparison, line: usize) -> [f64; 2] {
    let line = &comparison.lines[line];
    *line.apart.get_or_init(|| {
        line.row.map_or([0.0; 2], |row| apart(&of_mean_batch(line), &row.environment, line.busy()))
    })
}

/// How far single processes of the lines are apart, in words.
fn bounds(comparison: &Comparison, lines: &[usize]) -> String {
    let apart = lines.iter().map(|&line| single(comparison, line)[1]);
    let (on_cpu, on_gpu): (Vec<f64>, Vec<f64>) = apart.partition(|&apart| apart == ON_CPU);
    let range = on_gpu.into_iter().minmax().into_option().map(|(least, most)| [least, most].map(percent));
    let on_gpu = range.map(|[least, most]| match least == most {
        true => format!("{most} on a GPU"),
        false => format!("{least} to {most} on a GPU, the more the longer it waits for its host"),
    });
    let on_cpu = (!on_cpu.is_empty()).then(|| format!("{} on a CPU", percent(ON_CPU)));
    and(on_cpu.into_iter().chain(on_gpu))
}

/// Whether a ratio is beyond what the middle half of the steps on either side spans, and beyond what another process of the
/// slower side may be shorter by, or one of the faster side longer.
fn beyond_steps(comparison: &Comparison, sides: [&[usize]; 2], quantity: &str, ratio: f64) -> bool {
    let ([slower, faster], ratio) =
        if ratio > 1.0 { (sides, ratio) } else { ([sides[1], sides[0]], ratio.recip()) };
    let quartile = |lines, which| first(comparison, &format!("{quantity}_{which}"), lines).unwrap_or(1.0);
    // The most of any line: one that did not run has none.
    let single = |lines: &[usize]| {
        let apart = lines.iter().map(|&line| single(comparison, line));
        apart.fold([0.0_f64; 2], |[shorter, longer], [a, b]| [shorter.max(a), longer.max(b)])
    };
    let other = single(slower)[0].max(single(faster)[1]);
    ratio * quartile(slower, "low") / quartile(faster, "high") > 1.0 + other
}

/// The builds of the lines' rows, by their commits where these are known.
pub fn builds<'i>(comparison: &Comparison, lines: impl IntoIterator<Item = &'i usize>) -> BTreeSet<String> {
    let rows = lines.into_iter().flat_map(|&i| &comparison.lines[i].rows);
    rows.map(|row| match (&row.environment.commit, &row.environment.build) {
        (commit, build) if commit.is_empty() => build.clone(),
        (commit, _) => commit.clone(),
    })
    .collect()
}

#[cfg(test)]
#[path = "differences_tests.rs"]
mod tests;

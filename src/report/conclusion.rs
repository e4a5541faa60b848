//! The conclusion in plain words: what each method changes against the baseline, with the numbers.

use std::collections::BTreeSet;

use polars::prelude::ChunkAgg;

use super::change::{Change, MANY};
use super::table::Comparison;
use super::{ladder, loading, pareto, quality};
use crate::row::Status;
use crate::words::text::{and, percent, ratio, sentence};

/// Less than this is nobody's reason to choose a method.
const NEGLIGIBLE: f64 = 0.002;

/// Sentences, the most important first.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let measured = comparison.lines.iter().filter(|line| line.measured().is_some()).count();
    let mut out = Vec::new();
    if measured == 0 {
        out.push("No cell ran to its end, so there is nothing to compare.".to_string());
    }
    out.extend(ladder::sentence(comparison));
    for method in 0..comparison.methods.len() {
        out.extend(against_baseline(comparison, method));
    }
    out.extend(loading::sentences(comparison));
    out.extend(quality::sentences(comparison));
    out.extend(fits(comparison));
    if comparison.methods.len() > 1 {
        out.extend(pareto::sentence(comparison));
    }
    out.extend(estimates(comparison));
    out.extend(incomplete(comparison));
    out
}

/// A method's change of time or memory.
struct Cost {
    change: Change,
    /// Whether the change is larger than the samples' spread at most shapes.
    measurable: bool,
}

impl Cost {
    /// Of `forward`, `backward`, `step` or `live_peak`.
    fn new(comparison: &Comparison, method: usize, quantity: &str) -> Option<Self> {
        let name = format!("{quantity}_vs_baseline");
        let ratios: Vec<(usize, f64)> = comparison
            .of_method(method)
            .filter(|&i| !comparison.is_baseline(i))
            .filter_map(|i| Some((i, comparison.value(&name, i)?)))
            .collect();
        // Memory is counted, so any difference that matters is real.
        let clear = |&&(i, ratio): &&(usize, f64)| match quantity {
            "live_peak" => (ratio - 1.0).abs() > NEGLIGIBLE,
            _ => {
                let spread = |line: usize| comparison.value(&format!("{quantity}_spread"), line);
                let base = comparison.lines[i].baseline.and_then(spread).unwrap_or_default();
                (ratio - 1.0).abs() > (spread(i).unwrap_or_default() * ratio).max(base)
            }
        };
        let measurable = 2 * ratios.iter().filter(clear).count() > ratios.len();
        Some(Self { change: Change::new(comparison, method, &name)?, measurable })
    }

    /// ` (15 to 30 % over 5 shapes)`; `over` is false where the number of shapes was just said.
    fn range(&self, over: bool) -> String {
        let Some(range) = self.change.range() else { return String::new() };
        let (same, sizes) = (range == percent(self.change.median()), self.change.over());
        match (same, over) {
            (true, true) => format!(" (at each of {})", sizes.trim_start_matches("over ")),
            (true, false) => String::new(),
            (false, true) => format!(" ({range} {sizes})"),
            (false, false) => format!(" ({range})"),
        }
    }
}

/// What a method saves and costs against the baseline.
fn against_baseline(comparison: &Comparison, method: usize) -> Option<String> {
    let lines: Vec<usize> = comparison.of_method(method).filter(|&i| !comparison.is_baseline(i)).collect();
    let name = sentence(&comparison.methods[method]);
    let costs = ["live_peak", "backward", "forward", "step"].map(|of| Cost::new(comparison, method, of));
    let [Some(memory), Some(backward), Some(forward), Some(step)] = costs else {
        let ran = lines.iter().any(|&i| comparison.lines[i].measured().is_some());
        return ran.then(|| format!("{name} has no baseline measurement to be compared with."));
    };
    let bases = lines.iter().filter_map(|&i| comparison.lines[i].baseline);
    let bases: BTreeSet<usize> = bases.map(|i| comparison.lines[i].method).collect();
    let against = match bases.iter().eq([&method]) {
        true => String::new(),
        false => {
            let names: Vec<String> = bases.iter().map(|&m| comparison.methods[m].clone()).collect();
            format!(" against {}", and(&names))
        }
    };
    let (m, b) = (memory.change.median(), backward.change.median());
    let first = match (memory.measurable, m < 0.0) {
        (false, _) => format!("{name} needs about the same peak memory{against}"),
        (true, true) => {
            format!("{name} saves {} of peak memory{against}{}", percent(m), memory.range(true))
        }
        (true, false) => {
            format!("{name} needs {}{against}{}", more(m, "peak memory"), memory.range(true))
        }
    };
    let gives = memory.measurable && m < 0.0;
    let second = match (backward.measurable, b > 0.0) {
        (false, _) => ", with no measurable difference in backward time".to_string(),
        (true, true) => {
            let joint = if gives { "for" } else { "and takes" };
            format!(" {joint} {}{}", more(b, "backward time"), backward.range(!memory.measurable))
        }
        (true, false) => {
            let joint = if gives || !memory.measurable { "and takes" } else { "but takes" };
            format!(" {joint} {} less backward time{}", percent(b), backward.range(!memory.measurable))
        }
    };
    let rest = if forward.measurable || step.measurable {
        format!("{}; {}", time_change("forward", &forward), time_change("the whole step", &step))
    } else {
        "forward and the whole step show no measurable difference".into()
    };
    Some(format!("{first}{second}. {}.", sentence(&rest)))
}

/// `20 % more time`; `171 times the time` where a percentage would be hard to read.
fn more(share: f64, what: &str) -> String {
    if share < MANY {
        format!("{} more {what}", percent(share))
    } else {
        format!("{:.0} times the {what}", 1.0 + share)
    }
}

/// `the whole step takes 20 % more time (16 to 23 %)`
fn time_change(what: &str, cost: &Cost) -> String {
    let (share, range) = (cost.change.median(), cost.range(false));
    match (cost.measurable, share > 0.0) {
        (false, _) => format!("{what} shows no measurable difference"),
        (true, true) => format!("{what} takes {}{range}", more(share, "time")),
        (true, false) => format!("{what} takes {} less time{range}", percent(share)),
    }
}

/// `Level 0 does not fit at 3 of 5 shapes; level 1 fits at all.`
fn fits(comparison: &Comparison) -> Option<String> {
    let count = |method: usize, status: Status| {
        let rows = comparison.of_method(method).filter_map(|i| comparison.lines[i].row);
        rows.filter(|row| row.status == status).count()
    };
    let all = |method: usize| comparison.of_method(method).count();
    let methods = 0..comparison.methods.len();
    let repeated = comparison.repeated();
    let at = |n: usize, of: usize| match (n == of, of) {
        (true, 1) => String::new(),
        (true, _) => format!(" at any of {of} {repeated}s"),
        (false, _) => format!(" at {n} of {of} {repeated}s"),
    };
    let name = |method: usize| comparison.methods[method].clone();
    let mut parts = Vec::new();
    for method in methods.clone() {
        let oom = count(method, Status::Oom);
        if oom > 0 {
            parts.push(format!("{} does not fit{}", name(method), at(oom, all(method))));
        }
    }
    if parts.is_empty() {
        return None;
    }
    let names: Vec<String> = methods.filter(|&m| count(m, Status::Ok) == all(m)).map(name).collect();
    if !names.is_empty() {
        let verb = if names.len() == 1 { "fits" } else { "fit" };
        let all = if comparison.shapes.len() > 1 { " at all" } else { "" };
        parts.push(format!("{} {verb}{all}", and(&names)));
    }
    Some(format!("{}.", sentence(&parts.join("; "))))
}

fn estimates(comparison: &Comparison) -> Option<String> {
    let ratios = comparison.frame.column("estimate_over_measured");
    let (low, high) = (ratio(ratios.min()?), ratio(ratios.max()?));
    let cells = match ratios.len() - ratios.null_count() {
        1 => "the one measured cell".into(),
        n => format!("{n} cells"),
    };
    if low == high {
        return Some(format!("The memory estimate was {low} the measured peak at {cells}."));
    }
    Some(format!("The memory estimate was {low} to {high} the measured peak over {cells}."))
}

fn incomplete(comparison: &Comparison) -> Option<String> {
    let count = |status: Option<Status>| {
        comparison.lines.iter().filter(|line| line.row.map(|row| row.status) == status).count()
    };
    let parts: Vec<String> = [
        (count(Some(Status::Oom)), "ran out of memory"),
        (count(Some(Status::Failed)), "failed"),
        (count(Some(Status::Diverged)), "diverged"),
        (count(None), "did not run"),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("{n} {what}"))
    .collect();
    (!parts.is_empty()).then(|| format!("Of {} cells {}.", comparison.lines.len(), and(&parts)))
}

#[cfg(test)]
#[path = "conclusion_tests.rs"]
mod tests;

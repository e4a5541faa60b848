//! The conclusion in plain words: what each method changes against the baseline, with the numbers.

use std::collections::BTreeSet;

use polars::prelude::ChunkAgg;

use super::change::Change;
use super::table::Comparison;
use super::{answers, ladder, loading, pareto, quality};
use crate::row::Status;
use crate::words::text::{and, ratio, sentence};

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
    out.extend(answers::sentences(comparison));
    out.extend(fits(comparison));
    if comparison.methods.len() > 1 {
        out.extend(pareto::sentence(comparison));
    }
    out.extend(estimates(comparison));
    out.extend(incomplete(comparison));
    out
}

/// What is compared with the baseline: the column's name before `_vs_baseline`, and what it is called.
const COMPARED: [(&str, &str); 4] = [
    ("live_peak", "peak memory"),
    ("backward", "backward time"),
    ("forward", "forward time"),
    ("step", "step time"),
];

/// Whether a quantity differs from the baseline's by more than the samples spread. Memory is counted, so any
/// difference that matters is real.
fn differs(comparison: &Comparison, line: usize, quantity: &str, ratio: f64) -> bool {
    if quantity == "live_peak" {
        return (ratio - 1.0).abs() > NEGLIGIBLE;
    }
    let spread = |line: usize| comparison.frame.get(&format!("{quantity}_spread"), line);
    let base = comparison.lines[line].baseline.and_then(spread).unwrap_or_default();
    (ratio - 1.0).abs() > (spread(line).unwrap_or_default() * ratio).max(base)
}

/// `Against level 0, level 1 has 26 % less peak memory, 31 % more backward time and no measurable difference
/// in forward time and step time.` A difference is measurable where it is so at most shapes.
fn against_baseline(comparison: &Comparison, method: usize) -> Option<String> {
    let name = &comparison.methods[method];
    let lines: Vec<usize> = comparison.of_method(method).filter(|&i| !comparison.is_baseline(i)).collect();
    let (mut clauses, mut same) = (Vec::new(), Vec::new());
    let has_backward =
        comparison.of_method(method).any(|i| comparison.frame.get("backward_s_median", i).is_some());
    // Without a backward a step is its forward.
    let compared = COMPARED.iter().filter(|(of, _)| has_backward || !["backward", "step"].contains(of));
    for &(quantity, what) in compared {
        let column = format!("{quantity}_vs_baseline");
        let Some(change) = Change::new(comparison, method, &column) else {
            let ran = lines.iter().any(|&i| comparison.lines[i].measured().is_some());
            return ran
                .then(|| format!("{} has no baseline measurement to be compared with.", sentence(name)));
        };
        let ratios = lines.iter().filter_map(|&i| Some((i, comparison.frame.get(&column, i)?)));
        let clear = ratios.filter(|(i, ratio)| differs(comparison, *i, quantity, *ratio)).count();
        if 2 * clear > change.count() {
            // The number of shapes once is enough.
            let range = change.range(clauses.is_empty()).map_or(String::new(), |range| format!(" ({range})"));
            clauses.push(format!("{} {what}{range}", change.written(["less", "more", "times the"])));
        } else {
            same.push(what.to_string());
        }
    }
    clauses.extend((!same.is_empty()).then(|| format!("no measurable difference in {}", and(&same))));
    let bases = lines.iter().filter_map(|&i| comparison.lines[i].baseline);
    let bases: BTreeSet<usize> = bases.map(|i| comparison.lines[i].method).collect();
    let names = and(bases.iter().map(|&m| &comparison.methods[m]));
    Some(match bases.iter().eq([&method]) {
        true => format!("{} has {}.", sentence(name), and(&clauses)),
        false => format!("Against {names}, {name} has {}.", and(&clauses)),
    })
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
    let name = |method: usize| &comparison.methods[method];
    let oom = methods.clone().map(|method| (method, count(method, Status::Oom))).filter(|(_, oom)| *oom > 0);
    let part = |(method, oom)| format!("{} does not fit{}", name(method), at(oom, all(method)));
    let mut parts: Vec<String> = oom.map(part).collect();
    if parts.is_empty() {
        return None;
    }
    let names: Vec<&String> = methods.filter(|&m| count(m, Status::Ok) == all(m)).map(name).collect();
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
    let counts = [
        (count(Some(Status::Oom)), "ran out of memory"),
        (count(Some(Status::Failed)), "failed"),
        (count(Some(Status::Diverged)), "diverged"),
        (count(None), "did not run"),
    ];
    let parts = and(counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    (!parts.is_empty()).then(|| format!("Of {} cells {parts}.", comparison.lines.len()))
}

#[cfg(test)]
#[path = "conclusion_tests.rs"]
mod tests;

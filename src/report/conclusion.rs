//! The findings as sentences with numbers: what each method changes against the baseline.

use std::collections::BTreeSet;

use polars::prelude::{ChunkAgg, ChunkQuantile};

use super::alike::groups;
use super::differences::{Difference, Differences, ENOUGH, Known, TIMES};
use super::labels::FEW;
use super::quality::{self, MANY};
use super::table::Comparison;
use super::{answers, loading, pareto};
use crate::row::Status;
use crate::words::text::{and, few, percent, ratio, sentence, verb};

/// A smaller change of memory is no reason to choose a method.
const NEGLIGIBLE: f64 = 0.002;

/// Sentences about single methods that a reader follows, and names in a sentence.
const MOST_FOUND: usize = 20;
const MOST_NAMES: usize = 12;

/// Sentences, the most important first.
pub fn sentences(comparison: &Comparison, differences: &Differences) -> Vec<String> {
    let measured = comparison.lines.iter().filter(|line| line.measured().is_some()).count();
    let mut out = Vec::new();
    if measured == 0 {
        out.push("No cell ran to its end, so there is nothing to compare.".to_string());
    }
    let found = findings(comparison, differences);
    let told = most_telling(comparison, &found);
    out.extend(told.iter().map(|group| of_group(comparison, group)));
    if told.len() < found.len() {
        let others =
            found.iter().map(Vec::len).sum::<usize>() - told.iter().map(|group| group.len()).sum::<usize>();
        out.push(format!("How the other {others} methods compare with the baseline is in the table."));
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

/// What each method changes against its baseline, a sentence for those with the same changes.
pub fn against_baselines(comparison: &Comparison, differences: &Differences) -> Vec<String> {
    findings(comparison, differences).iter().map(|group| of_group(comparison, group)).collect()
}

/// Methods with the same changes are together.
fn findings(comparison: &Comparison, differences: &Differences) -> Vec<Vec<Finding>> {
    let findings = (0..comparison.methods.len()).filter_map(|m| against_baseline(comparison, differences, m));
    groups(findings, |a, b| (&a.bases, &a.found) == (&b.bases, &b.found))
}

/// All of them where a reader can follow, else those with a method on a Pareto front.
fn most_telling<'f>(comparison: &Comparison, found: &'f [Vec<Finding>]) -> Vec<&'f Vec<Finding>> {
    if found.len() <= MOST_FOUND {
        return found.iter().collect();
    }
    let fronts = (0..comparison.problems()).flat_map(|problem| pareto::front(comparison, problem));
    let fronts: BTreeSet<usize> = fronts.map(|group| group.method).collect();
    let on_front = |group: &&Vec<Finding>| group.iter().any(|of| fronts.contains(&of.method));
    found.iter().filter(on_front).take(MOST_FOUND).collect()
}

/// The changes of a method against the methods of its baselines.
struct Finding {
    method: usize,
    bases: BTreeSet<usize>,
    /// `20 % more step time and 26 % less peak memory`; empty where no baseline was measured.
    found: String,
}

/// `Against level 0, level 1 has 20 % more step time and 26 % less peak memory.` Methods with the same findings share a
/// sentence: `Packing and prefetching each have 98 % less step time, against plain loop.`
fn of_group(comparison: &Comparison, group: &[Finding]) -> String {
    let Finding { method, bases, found } = &group[0];
    let of = |methods: &mut dyn Iterator<Item = usize>| few(methods.map(|m| comparison.said(m)), MOST_NAMES);
    let (own, base) = (of(&mut group.iter().map(|of| of.method)), of(&mut bases.iter().copied()));
    let has = if group.len() == 1 { verb(&own, "has", "have") } else { "each have" };
    match (found.is_empty(), bases.iter().eq([method])) {
        (true, _) => format!("{} {has} no baseline measurement to be compared with.", sentence(&own)),
        (_, true) => format!("{} {has} {found}.", sentence(&own)),
        _ if group.len() > 1 => format!("{} {has} {found}, against {base}.", sentence(&own)),
        _ => format!("Against {base}, {own} {has} {found}."),
    }
}

/// `20 % more step time, 26 % less peak memory, 10 to 15 % more backward time at 2 of 5 shapes, and no measurable
/// difference in forward time`: each number is of the shapes where a difference is known.
fn against_baseline(comparison: &Comparison, differences: &Differences, method: usize) -> Option<Finding> {
    let lines: Vec<usize> = comparison.of_method(method).filter(|&i| !comparison.is_baseline(i)).collect();
    let ran = lines.iter().any(|&i| comparison.lines[i].measured().is_some());
    let bases = lines.iter().filter_map(|&i| comparison.lines[i].baseline);
    let bases: BTreeSet<usize> = bases.map(|i| comparison.lines[i].method).collect();
    let memory = memory(comparison, method, &lines);
    if memory.is_empty() {
        return ran.then(|| Finding { method, bases: BTreeSet::new(), found: String::new() });
    }
    let (mut clauses, mut same, mut single) = (Vec::new(), Vec::new(), true);
    let mut add = |shares: Vec<f64>, of: usize, what: &str| {
        if shares.is_empty() {
            same.push(what.to_string());
        }
        clauses.extend(self::clauses(&shares, of, what));
    };
    for (place, (quantity, what)) in TIMES.into_iter().enumerate() {
        let known: Vec<&Difference> =
            differences.of(method, quantity).filter(|of| of.known != Known::OtherBuild).collect();
        single &= known.iter().all(|of| of.processes < ENOUGH);
        let clear = known.iter().filter(|of| of.known == Known::Clear).map(|of| of.ratio - 1.0);
        let clear = clear.filter(|share| share.abs() > NEGLIGIBLE).collect();
        if !known.is_empty() {
            let each = if comparison.with_samplers() { " for each real token" } else { "" };
            add(clear, known.len(), &format!("{what}{each}"));
        }
        if place == 0 {
            // Memory is counted, so any difference that matters is real.
            let shares = memory.iter().copied().filter(|share| share.abs() > NEGLIGIBLE).collect();
            add(shares, memory.len(), "peak memory");
        }
    }
    let kind = if single { "clear" } else { "measurable" };
    clauses.extend((!same.is_empty()).then(|| format!("no {kind} difference in {}", and(&same))));
    Some(Finding { method, bases, found: and(&clauses) })
}

/// `10 to 15 % more step time at 2 of 5 shapes`, and the same of those that are less: relative changes that are known, of
/// so many sizes.
fn clauses(shares: &[f64], of: usize, what: &str) -> Vec<String> {
    let clause = |(less, word): (bool, &str)| {
        let mut shares: Vec<f64> = shares.iter().copied().filter(|share| (*share < 0.0) == less).collect();
        shares.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let (low, high) = (*shares.first()?, *shares.last()?);
        let at = match (shares.len(), of) {
            (_, 1) => String::new(),
            (2, 2) => " at both shapes".into(),
            (n, of) if n == of => format!(" at all {of} shapes"),
            (n, of) => format!(" at {n} of {of} shapes"),
        };
        let times = |share: f64| match 1.0 + share {
            times if times < 9.95 => format!("{times:.1}"),
            times => format!("{times:.0}"),
        };
        let share = |share: f64| percent(share).trim_end_matches(" %").to_string();
        let (written, how) = match high >= MANY {
            true => ([low, high].map(times), "times the".to_string()),
            false => ([low, high].map(share), format!("% {word}")),
        };
        let [low, high] = written;
        let range = if low == high { high } else { format!("{low} to {high}") };
        Some(format!("{range} {how} {what}{at}"))
    };
    [(false, "more"), (true, "less")].into_iter().filter_map(clause).collect()
}

/// The relative change of peak memory at each problem where both were measured.
fn memory(comparison: &Comparison, method: usize, lines: &[usize]) -> Vec<f64> {
    let of_problem = |problem: usize| {
        let of = comparison.of_problem(problem, method).into_iter().filter(|i| lines.contains(i));
        comparison.frame.of_rows("live_peak_vs_baseline", of).median().map(|ratio| ratio - 1.0)
    };
    (0..comparison.problems()).filter_map(of_problem).collect()
}

/// `Level 0 does not fit at 3 of 5 shapes; level 1 fits at every shape.`
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
    let name = |method: usize| comparison.said(method);
    let oom = methods.clone().map(|method| (method, count(method, Status::Oom))).filter(|(_, oom)| *oom > 0);
    let oom: Vec<(usize, usize)> = oom.collect();
    if comparison.shapes.len() == 1 && oom.len() > 2 {
        let names = few(oom.iter().map(|(method, _)| name(*method)), FEW);
        return Some(format!("{} of {} methods do not fit: {names}.", oom.len(), comparison.methods.len()));
    }
    let part = |(method, oom)| {
        let name = name(method);
        format!("{name} {} not fit{}", verb(&name, "does", "do"), at(oom, all(method)))
    };
    let mut parts: Vec<String> = oom.into_iter().map(part).collect();
    if parts.len() > MOST_NAMES {
        let more = parts.split_off(MOST_NAMES).len();
        parts.push(format!("{more} more do not fit everywhere"));
    }
    if parts.is_empty() {
        return None;
    }
    let is_ok = |line: usize| comparison.lines[line].rows.iter().all(|row| row.status == Status::Ok);
    let everywhere = |m: usize| {
        all(m) == comparison.shapes.len()
            && count(m, Status::Ok) == all(m)
            && comparison.of_method(m).all(is_ok)
    };
    let fitting: Vec<String> = methods.filter(|&m| everywhere(m)).map(name).collect();
    if !fitting.is_empty() {
        let verb = if let [one] = &fitting[..] { verb(one, "fits", "fit") } else { "fit" };
        let at = if comparison.shapes.len() > 1 { format!(" at every {repeated}") } else { String::new() };
        parts.push(format!("{} {verb}{at}", few(&fitting, MOST_NAMES)));
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
    // Of one shape it is said which do not fit.
    let oom = if comparison.shapes.len() == 1 { 0 } else { count(Some(Status::Oom)) };
    let counts = [
        (oom, "ran out of memory"),
        (count(Some(Status::Failed)), "failed"),
        (count(Some(Status::Diverged)), "diverged"),
        (count(Some(Status::Skipped)), "lacked the hardware"),
        (count(None), "did not run"),
    ];
    let parts = and(counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    (!parts.is_empty()).then(|| format!("Of {} cells {parts}.", comparison.lines.len()))
}

#[cfg(test)]
#[path = "conclusion_tests.rs"]
mod tests;

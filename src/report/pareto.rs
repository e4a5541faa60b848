//! The Pareto front of step time and peak memory.

use super::table::{Comparison, Group};
use crate::words::text::names;

/// The column of the time that methods are compared by: of a step, or where samplers make steps of unequal work of a real token.
pub fn time(comparison: &Comparison) -> &'static str {
    if comparison.with_samplers() { "step_s_per_token" } else { "step_s_median" }
}

/// Memory that is more than this share of another is as much.
pub const AS_MUCH: f64 = 0.998;

/// The groups of a problem that no other group beats in time and peak memory at once, by rising time.
pub fn front(comparison: &Comparison, problem: usize) -> Vec<Group> {
    front_of(comparison, comparison.groups().into_iter().filter(|group| group.problem == problem))
}

/// The same of these groups alone.
pub fn front_of(comparison: &Comparison, groups: impl Iterator<Item = Group>) -> Vec<Group> {
    let point = |group: Group| {
        let [time, memory] = [time(comparison), "live_peak_bytes"].map(|of| comparison.of_group(of, &group));
        Some((time?, memory?, group))
    };
    let mut points: Vec<(f64, f64, Group)> = groups.filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut least = f64::INFINITY;
    let better = |(_, memory, group)| {
        let better = memory < AS_MUCH * least;
        least = least.min(memory);
        better.then_some(group)
    };
    points.into_iter().filter_map(better).collect()
}

/// `On the Pareto front of step time and peak memory: level 0 and level 1 (2 of 5 shapes).`
pub fn sentence(comparison: &Comparison) -> Option<String> {
    // Steps of samplers do unequal work.
    if comparison.with_samplers() {
        return None;
    }
    let ran = |group: &&Group| group.lines.iter().any(|&i| comparison.lines[i].measured().is_some());
    let groups = comparison.groups();
    let count = |problem: usize| groups.iter().filter(|group| group.problem == problem).filter(ran).count();
    let compared: Vec<usize> = (0..comparison.problems()).filter(|&problem| count(problem) > 1).collect();
    let fronts: Vec<Group> = compared.iter().flat_map(|&problem| front(comparison, problem)).collect();
    let name = |method: usize| {
        let n = fronts.iter().filter(|group| group.method == method).count();
        let name = comparison.said(method);
        let at = format!(" ({n} of {} shapes)", compared.len());
        (n > 0).then(|| format!("{name}{}", if compared.len() > 1 { at } else { String::new() }))
    };
    let names = names((0..comparison.methods.len()).filter_map(name));
    (!names.is_empty()).then(|| format!("On the Pareto front of step time and peak memory: {names}."))
}

//! The Pareto front of step time and peak memory.

use super::table::{Comparison, Group};

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

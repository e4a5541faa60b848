//! The Pareto front of step time and peak memory.

use super::table::{Comparison, Group};

/// The column of the time that methods are compared by: of a step, or where samplers make steps of unequal work of a real token.
pub fn time(comparison: &Comparison) -> &'static str {
    if comparison.with_samplers() { "step_s_per_token" } else { "step_s_median" }
}

/// Memory that is more than this share of another is as much.
pub const AS_MUCH: f64 = 0.998;

/// Those of the groups that no other one beats in time and peak memory at once, by rising time.
pub fn front<'g>(comparison: &Comparison, groups: impl IntoIterator<Item = &'g Group>) -> Vec<&'g Group> {
    let point = |group| {
        let value = |column| comparison.of_group(column, group);
        Some((value(time(comparison))?, value("live_peak_bytes")?, group))
    };
    let mut points: Vec<(f64, f64, &Group)> = groups.into_iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut least = f64::INFINITY;
    points.retain(|(_, memory, _)| {
        let better = *memory < AS_MUCH * least;
        least = least.min(*memory);
        better
    });
    points.into_iter().map(|(.., group)| group).collect()
}

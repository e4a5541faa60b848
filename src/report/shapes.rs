//! The part of the answer that holds beyond the largest size: what each method changes at how many of the sizes.

use std::cmp::Reverse;

use super::differences::{Differences, are_of_one_build, is_slower};
use super::table::{Comparison, Group};
use super::{conclusion, pareto};
use crate::words::text::{counted, few};

/// With more methods than this each is told in the findings alone.
const EACH: usize = 3;

/// Of few methods: what each changes against the baseline over all sizes, as the findings say it. Of more: at how many sizes which
/// are the fastest and have the least memory. Nothing where one size alone compares methods.
pub fn sentences(comparison: &Comparison, differences: &Differences) -> Vec<String> {
    let groups = comparison.groups();
    let measured = |problem: usize| -> Vec<&Group> {
        let of = |of: &&Group| of.problem == problem && comparison.of_group("step_s_median", of).is_some();
        groups.iter().filter(of).collect()
    };
    let problems: Vec<Vec<&Group>> =
        (0..comparison.problems()).map(measured).filter(|of| of.len() > 1).collect();
    if problems.len() < 2 || comparison.with_samplers() {
        return Vec::new();
    }
    let found = conclusion::against_baselines(comparison, differences);
    if (1..=EACH).contains(&found.len()) {
        return found;
    }
    let of = |column: &str, group: &Group| comparison.of_group(column, group).unwrap_or(f64::INFINITY);
    let least = |column: &str, of_problem: &[&Group]| -> f64 {
        of_problem.iter().map(|group| of(column, group)).fold(f64::INFINITY, f64::min)
    };
    // Of times of different builds nothing is known.
    let is_fast = |group: &Group, of_problem: &[&Group]| {
        let quickest = least("step_s_median", of_problem);
        of_problem.iter().any(|other| {
            of("step_s_median", other) == quickest
                && are_of_one_build(comparison, [&group.lines, &other.lines])
                && !is_slower(comparison, group, other)
        })
    };
    let is_small = |group: &Group, of_problem: &[&Group]| {
        pareto::AS_MUCH * of("live_peak_bytes", group) <= least("live_peak_bytes", of_problem)
    };
    let all = problems.len();
    let [fast, small] = [&is_fast as &dyn Fn(&Group, &[&Group]) -> bool, &is_small].map(|holds| {
        let count = |method: usize| {
            let own = |of: &&Vec<&Group>| of.iter().any(|group| group.method == method && holds(group, of));
            (method, problems.iter().filter(own).count())
        };
        let mut counts: Vec<(usize, usize)> =
            (0..comparison.methods.len()).map(count).filter(|(_, count)| *count > 0).collect();
        counts.sort_by_key(|(_, count)| Reverse(*count));
        few(
            counts.into_iter().map(|(method, count)| format!("{} (at {count})", comparison.said(method))),
            EACH,
        )
    });
    vec![format!(
        "Of {}, the fastest, or not clearly slower than it: {fast}; with the least memory: {small}.",
        counted(all, "shape")
    )]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{STUDY, ok_row, on_gpu, recipe};
    use super::*;
    use crate::row::Row;
    use crate::words::Compute;

    /// Level 1 is slower at the two shapes of hidden size 512 alone; each level has less memory than the one before it.
    #[test]
    fn every_shape_counts_and_not_the_largest_alone() {
        let recipe = recipe(STUDY);
        let row = |cell: &crate::recipe::Cell| {
            let level = cell.checkpoint.level.number();
            let slower = level == 1.0 && cell.settings()["model.hidden_size"] == 512;
            ok_row(cell, 0.1, if slower { 0.4 } else { 0.2 }, 1000 - (level * 500.0) as u64)
        };
        let rows: Vec<Row> = on_gpu(&recipe.cells.iter().map(row).collect::<Vec<_>>());
        let comparison = Comparison::new(&recipe, &rows);
        let said = sentences(&comparison, &Differences::new(&comparison));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[1].contains("at 2 of 5 shapes") && said[1].contains("50 % less peak memory at all 5 shapes"),
            "{said:?}"
        );
    }

    /// Five levels of precision and checkpointing, more than are told one by one.
    #[test]
    fn many_methods_are_counted() {
        let recipe = recipe(
            "[grid]\n\"train.batch_size\" = [8, 16]\n\"checkpoint.level\" = [0, 0.5, 1]\n\
             \"precision.compute\" = [\"fp32\", \"bf16\"]\n",
        );
        let row = |cell: &crate::recipe::Cell| {
            let level = cell.checkpoint.level.number();
            let backward = if level == 0.0 && cell.train.batch_size == 8 { 0.2 } else { 2.0 };
            let bytes = match cell.precision.compute {
                _ if level == 1.0 => 500,
                Compute::Fp32 => 1000 - (level * 200.0) as u64,
                _ => 800 - (level * 200.0) as u64,
            };
            ok_row(cell, 0.1, backward, bytes)
        };
        let rows: Vec<Row> = on_gpu(&recipe.cells.iter().map(row).collect::<Vec<_>>());
        let comparison = Comparison::new(&recipe, &rows);
        let said = sentences(&comparison, &Differences::new(&comparison));
        assert_eq!(said.len(), 1, "{said:?}");
        let [fast, small] = said[0].split("; with the least memory: ").collect::<Vec<_>>()[..] else {
            panic!("{said:?}")
        };
        assert!(fast.starts_with("Of 2 shapes, the fastest, or not clearly slower than it: "), "{fast}");
        assert!(fast.matches("(at 2)").count() == 2 && fast.contains("3 more"), "{fast}");
        assert!(small.matches("(at 2)").count() == 2, "{small}");
    }
}

//! The answer of a recipe whose cells have different memory limits: the highest rates within the smallest and the largest.

use super::super::page;
use super::super::prelude::*;
use super::super::table::budgets;
use super::{MOST, Verdict};
use crate::common::Bytes;

impl Verdict<'_> {
    /// The smallest and the largest of several limits.
    fn ends_of_budgets(&self) -> Option<[Bytes; 2]> {
        let budgets = budgets(self.comparison.recipe);
        Some([*budgets.first()?, *budgets.last()?])
    }

    /// A sentence for each of the first sizes; none where limits do not differ.
    pub(super) fn within_budgets(&self) -> Option<Vec<String>> {
        let ends = self.ends_of_budgets()?;
        let of_size = |(problem, groups): (&usize, &Vec<Group>)| {
            let said = |which: usize| {
                let within = |limit: Bytes| {
                    Some(format!("{} within {limit}", self.rate(self.fastest(groups, limit)[which]?)))
                };
                ends.into_iter().filter_map(within).join(" and ")
            };
            let [all, whole] = [said(0), said(1)];
            let whole = Some(whole).filter(|whole| *whole != all && !whole.is_empty());
            let whole = whole.map_or(String::new(), |whole| format!("; of all parameters {whole}"));
            let at = self.size(*problem).map_or(String::new(), |label| format!("{label}: "));
            format!("{at}at most {all}{whole}.")
        };
        Some(self.groups.iter().take(MOST).map(of_size).collect())
    }

    /// The first lines of the methods with these rates.
    pub(super) fn named_within_budgets(&self) -> Option<Vec<usize>> {
        let ends = self.ends_of_budgets()?;
        let sizes = self.groups.values().take(MOST);
        let named =
            sizes.cartesian_product(ends).flat_map(|(groups, limit)| self.fastest(groups, limit)).flatten();
        Some(named.map(|group| group.lines[0]).unique().collect())
    }

    /// The fastest within a limit, and the fastest that trains every parameter.
    fn fastest<'g>(&self, groups: &'g [Group], limit: Bytes) -> [Option<&'g Group>; 2] {
        let cell = |group: &Group| self.comparison.lines[group.lines[0]].cell;
        let fits = |group: &&Group| cell(group).measure.memory_limit.is_some_and(|own| own <= limit);
        let (rate, _) = page::rate(self.comparison);
        let mut ranked = self.comparison.ranked(rate, groups.iter().filter(fits));
        if rate == "tokens_per_second" {
            ranked.reverse();
        }
        let whole = ranked.iter().copied().find(|group| cell(group).tuning.is_full());
        [ranked.first().copied(), whole]
    }
}

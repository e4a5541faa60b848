//! Updates in the answer: how long one takes with each optimizer, and how much memory its state needs.

use itertools::Itertools;

use super::table::{Comparison, Group};
use crate::recipe::keys::is_repetition;
use crate::words::text::and;

/// Optimizers that a sentence has.
const FEW: usize = 6;
/// From so many times the shortest update on, the median one has waited for its host.
const WAITS: f64 = 1.5;

/// `An update takes 5.99 ms with adamw (kernels 3.70 ms, state of 3.68 GiB) and 6.28 ms with adamw8bit (…).` Only where a recipe
/// compares optimizers and nothing else but precisions.
pub fn sentence(comparison: &Comparison) -> Option<String> {
    let is_optimizer = |key: &&String| key.starts_with("train.optimizer");
    let mut methods = comparison.swept.iter().filter(|key| !is_repetition(key));
    if !comparison.swept.iter().any(|key| is_optimizer(&key))
        || !methods.all(|key| is_optimizer(&key) || key.starts_with("precision."))
    {
        return None;
    }
    let part = |group: &Group| {
        let time = comparison.written_of_group("optimizer_s_median", group)?;
        let state = comparison.of_group("optimizer_bytes", group).filter(|bytes| *bytes > 0.0);
        let state = state.and(comparison.written_of_group("optimizer_bytes", group));
        let traced = comparison.frame.has("trace_update_s");
        let kernels = traced.then(|| comparison.written_of_group("trace_update_s", group)).flatten();
        let more =
            [kernels.map(|time| format!("kernels {time}")), state.map(|bytes| format!("state of {bytes}"))];
        let more = more.into_iter().flatten().join(", ");
        let more = if more.is_empty() { more } else { format!(" ({more})") };
        Some(format!("{time} with {}{more}", comparison.name_of_group(group)))
    };
    let groups = comparison.groups();
    let parts: Vec<String> = groups.iter().filter_map(part).collect();
    let waits = |group: &Group| {
        let of = |column: &str| comparison.of_group(column, group);
        of("optimizer_s_median")
            .zip(of("optimizer_s_min"))
            .is_some_and(|(median, least)| median > WAITS * least)
    };
    let waiting = if groups.iter().any(waits) { ", the wait for the host included" } else { "" };
    (2..=FEW).contains(&parts.len()).then(|| format!("An update takes {}{waiting}.", and(&parts)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{recipe, rows};
    use super::*;

    #[test]
    fn updates_are_compared_where_nothing_else_is() {
        let said = |grid: &str| {
            let recipe = recipe(&format!("[grid]\n\"train.optimizer.kind\" = [\"sgd\", \"adamw\"]\n{grid}"));
            let rows = rows(&recipe);
            sentence(&Comparison::new(&recipe, &rows))
        };
        let text = said("").expect("a sentence");
        assert!(text.starts_with("An update takes ") && text.contains(" ms with sgd and "), "{text}");
        assert_eq!(said("\"checkpoint.level\" = [0, 1]\n"), None);
    }
}

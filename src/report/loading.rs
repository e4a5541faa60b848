//! What the batches of cells with a sampler came to: the sentences of the conclusion.

use super::table::Comparison;
use crate::words::text::sentence;

/// One for each method with a sampler, the same samples against the baseline's run.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    // A ladder reports it stage by stage.
    if !comparison.recipe.report.ladder.is_empty() {
        return Vec::new();
    }
    let of_line = |i: usize| {
        let written = |column: &str| comparison.frame.written(column, i).unwrap_or_default();
        let against = match comparison.frame.get("run_vs_baseline", i) {
            Some(_) if !comparison.is_baseline(i) => {
                format!(", {} the baseline's time for each", written("run_vs_baseline"))
            }
            _ => String::new(),
        };
        format!(
            "{} trained on {} real tokens in {}{against}: {} of its tokens are padding, and it waits for batches in {} \
             of the run.",
            sentence(&comparison.name(&comparison.lines[i])),
            written("real_tokens"),
            written("run_s"),
            written("padding_share"),
            written("stall_share")
        )
    };
    comparison.having("run_s").map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, loading_row};
    use super::*;

    #[test]
    fn a_run_is_compared_by_its_real_tokens() {
        let recipe = language_recipe("[grid]\n\"data.sampler\" = [\"padded\", \"packed\"]\n");
        // 1000 real tokens in 2 s; 990 in 0.99 s.
        let rows = [
            loading_row(&recipe.cells[0], 2.0, &[500, 500], 1000, 0),
            loading_row(&recipe.cells[1], 0.99, &[990], 10, 7),
        ];
        let comparison = Comparison::new(&recipe, &rows);
        let table = comparison.table("loading").expect("a table");
        let cells: Vec<&str> = table.rows[1].iter().map(String::as_str).collect();
        assert_eq!(&cells[..7], ["packed", "990 ms", "0.50x", "1", "990", "1000", "1 %"]);
        assert_eq!(&cells[9..], ["0", "7"]);
        let sentences = sentences(&comparison);
        assert!(
            sentences[0].starts_with("Padded trained on 1000 real tokens in 2.00 s: 50 %"),
            "{sentences:?}"
        );
        assert!(
            sentences[1].starts_with(
                "Packed trained on 990 real tokens in 990 ms, 0.50x the baseline's time for each: 1 %"
            ),
            "{sentences:?}"
        );
    }

    #[test]
    fn nothing_is_said_without_a_sampler() {
        let recipe = language_recipe("");
        let rows = super::super::testing::language_rows(&recipe, 20);
        let comparison = Comparison::new(&recipe, &rows);
        assert!(comparison.table("loading").is_none() && sentences(&comparison).is_empty());
    }
}

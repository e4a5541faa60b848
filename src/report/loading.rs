//! What the batches of cells with a sampler came to: the sentences of the conclusion.

use super::table::Comparison;
use crate::words::text::{percent, sentence};

/// Less than this is nobody's reason to choose a sampler.
const NEGLIGIBLE: f64 = 0.02;

/// One for each method with a sampler, the same samples against the baseline's run.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    // A ladder reports it stage by stage.
    if !comparison.recipe.report.ladder.is_empty() {
        return Vec::new();
    }
    let of_line = |i: usize| {
        let line = &comparison.lines[i];
        let at = match comparison.shapes.len() {
            1 => String::new(),
            _ => format!(" at {}", comparison.shapes[line.shape].label),
        };
        let name = sentence(&comparison.methods[line.method]);
        let written = |column: &str| comparison.frame.written(column, i).unwrap_or_default();
        let run = match comparison.value("run_vs_baseline", i).filter(|_| !comparison.is_baseline(i)) {
            None => {
                format!(
                    "{name} trained on {} real tokens in {}{at}",
                    written("real_tokens"),
                    written("run_s")
                )
            }
            Some(ratio) if (ratio - 1.0).abs() < NEGLIGIBLE => {
                format!("{name} takes as long for a real token over the whole run as the baseline{at}")
            }
            Some(ratio) => format!(
                "{name} takes {} {} time for a real token over the whole run than the baseline{at}",
                percent(ratio - 1.0),
                if ratio < 1.0 { "less" } else { "more" },
            ),
        };
        format!(
            "{run}: {} of its tokens are padding, and it waits for batches in {} of the run.",
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
        assert!(sentences[1].starts_with("Packed takes 50 % less time for a real token"), "{sentences:?}");
    }

    #[test]
    fn nothing_is_said_without_a_sampler() {
        let recipe = language_recipe("");
        let rows = super::super::testing::language_rows(&recipe, 20);
        let comparison = Comparison::new(&recipe, &rows);
        assert!(comparison.table("loading").is_none() && sentences(&comparison).is_empty());
    }
}

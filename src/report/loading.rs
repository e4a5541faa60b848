//! The conclusion about samplers: padding, waiting for batches, and how fast cells learn.

use itertools::Itertools;

use super::differences::{builds, takes_longer};
use super::frame::EQUAL_LOSS;
use super::labels::FEW;
use super::table::Comparison;
use crate::words::text::{few, ratio, sentence};

/// Which sampler trains on the most real tokens a second, and which learns fastest. Samplers make steps of unequal number and
/// size.
pub fn answer(comparison: &Comparison) -> Vec<String> {
    let frame = &comparison.frame;
    let (get, written) = (
        |column: &str, i: usize| frame.get(column, i).unwrap_or_default(),
        |column: &str, i: usize| frame.written(column, i).unwrap_or_default(),
    );
    let name = |i: usize| sentence(&comparison.name(&comparison.lines[i]));
    let of = |column: &str| comparison.having(column).collect::<Vec<_>>();
    let mut out = Vec::new();
    let by_rate = of("tokens_per_second");
    let padding = |i: usize| get("padding_share", i);
    let base = by_rate.iter().copied().find(|&i| comparison.is_baseline(i) && padding(i) > 0.0);
    out.extend(base.map(|i| {
        format!(
            "With {}, {} of all tokens are padding.",
            comparison.name(&comparison.lines[i]),
            written("padding_share", i)
        )
    }));
    let rate = |i: &&usize| get("tokens_per_second", **i);
    // Rates of different builds are not compared.
    let compared = by_rate.len() > 1 && builds(comparison, &by_rate).len() == 1;
    if let Some(&first) = by_rate.iter().filter(|_| compared).max_by(|a, b| rate(a).total_cmp(&rate(b))) {
        let base = comparison.lines[first].baseline.filter(|base| *base != first && by_rate.contains(base));
        let against = base.map_or(String::new(), |base| {
            format!(
                ", {} as many as {}",
                ratio(get("tokens_per_second", first) / get("tokens_per_second", base)),
                comparison.name(&comparison.lines[base])
            )
        });
        let rivals = by_rate.iter().filter(|&&i| i != first && !takes_longer(comparison, &[i], &[first]));
        let rivals: Vec<String> = rivals.map(|&i| comparison.name(&comparison.lines[i])).unique().collect();
        let equal = match rivals.as_slice() {
            [] => String::new(),
            rivals => format!(" (not clearly more than {})", few(rivals.iter().cloned(), FEW)),
        };
        out.push(format!(
            "{} trains on the most real tokens a second: {}{against}{equal}.",
            name(first),
            written("tokens_per_second", first)
        ));
    }
    let learned = of(EQUAL_LOSS);
    let time = |i: &&usize| get(EQUAL_LOSS, **i);
    if let Some(&first) = learned.iter().min_by(|a, b| time(a).total_cmp(&time(b))) {
        let base = comparison.lines[first].baseline.filter(|base| *base != first && learned.contains(base));
        let against = base.map_or(String::new(), |base| {
            format!(", {} after {}", comparison.name(&comparison.lines[base]), written(EQUAL_LOSS, base))
        });
        let loss = learned.iter().map(|&i| get("train_loss_final", i)).fold(0.0, f64::max);
        let steps = |least: bool| {
            let steps = learned.iter().map(|&i| get("steps", i));
            if least { steps.fold(f64::INFINITY, f64::min) } else { steps.fold(0.0, f64::max) }
        };
        out.push(format!(
            "{} reach a training loss of {loss:.2} nats, {} first: after {}{against}. The same samples make {} to {} updates, \
             so final losses compare numbers of updates, at one learning rate.",
            if learned.len() < comparison.lines.len() { "All that ran" } else { "All" },
            comparison.name(&comparison.lines[first]),
            written(EQUAL_LOSS, first),
            steps(true),
            steps(false),
        ));
    }
    out
}

/// A sentence for each cell with a sampler: its run over the same samples as the baseline's.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    // A ladder reports it stage by stage.
    if !comparison.recipe.report.ladder.is_empty() || !comparison.compares_samplers() {
        return Vec::new();
    }
    let of_line = |i: usize| {
        let written = |column: &str| comparison.frame.written(column, i).unwrap_or_default();
        let against = match comparison.frame.get("run_vs_baseline", i) {
            Some(_) if !comparison.is_baseline(i) => {
                format!(", {} the baseline's time per token", written("run_vs_baseline"))
            }
            _ => String::new(),
        };
        format!(
            "{} trained on {} real tokens in {}{against}: {} of its tokens are padding, and it waits for batches during {} \
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
        assert_eq!(&cells[..7], ["packed", "990 ms", "0.50x", "1", "990", "1,000", "1 %"]);
        assert_eq!(&cells[9..], ["0", "1", "7", "0.7 %"]);
        let sentences = sentences(&comparison);
        assert!(
            sentences[0].starts_with("Padded trained on 1000 real tokens in 2.00 s: 50 %"),
            "{sentences:?}"
        );
        assert!(
            sentences[1].starts_with(
                "Packed trained on 990 real tokens in 990 ms, 0.50x the baseline's time per token: 1 %"
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

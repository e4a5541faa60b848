//! What the batches of cells with a sampler came to: the table of it, and the sentences of the conclusion.

use super::content::{naming, or_dash, strings};
use super::document::Table;
use super::learning::{Learned, count};
use super::table::{Comparison, Line};
use crate::measure::{Loading, Measurement};
use crate::words::text::{percent, rate, seconds, sentence};

/// Less than this is nobody's reason to choose a sampler.
const NEGLIGIBLE: f64 = 0.02;

fn loading<'a>(line: &'a Line) -> Option<(&'a Measurement, &'a Loading)> {
    let m = line.measured()?;
    Some((m, m.loading.as_ref()?))
}

/// Of every cell with a sampler; `None` without one.
pub fn table(comparison: &Comparison) -> Option<Table> {
    let (mut header, names) = naming(comparison);
    let text_columns = (0..header.len()).collect();
    header.extend(strings(&[
        "whole run",
        "× run",
        "steps",
        "real tokens",
        "real tokens/s",
        "padding",
        "stall of the run",
        "stall a step",
        "dropped samples",
        "cut tokens",
        "held-out loss",
    ]));
    let row = |line: &Line| {
        let (m, loading) = loading(line)?;
        let mut row = names(line);
        row.extend([
            seconds(loading.run_seconds),
            or_dash(over_baseline(comparison, line).map(|ratio| format!("{ratio:.2}"))),
            loading.step_tokens.len().to_string(),
            count(loading.tokens()),
            rate(m.tokens_per_second),
            percent(loading.padding_share()),
            percent(loading.stall_share()),
            seconds(loading.stall.median),
            count(loading.dropped_samples),
            count(loading.cut_tokens),
            or_dash(Learned::of(line).and_then(|l| l.end()).map(|end| format!("{:.3}", end.loss))),
        ]);
        Some(row)
    };
    let rows: Vec<Vec<String>> = comparison.lines.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table {
        caption: "The whole run of the measured steps, without evaluation; real tokens are those of samples, \
                  padding is its share of all tokens that were computed with. A stall is the time in which the \
                  training loop waited for a batch to be ready on the host. Dropped samples and cut tokens \
                  were not trained on; the held-out loss is that after the last step, in nats a token. Text that is \
                  tokenised once is so before the run."
            .into(),
        header,
        rows,
        text_columns,
    })
}

/// Seconds of the whole run for each real token over those of the baseline.
fn over_baseline(comparison: &Comparison, line: &Line) -> Option<f64> {
    let (own, _) = loading(line)?;
    let (base, _) = loading(&comparison.lines[line.baseline?])?;
    Some(base.tokens_per_second / own.tokens_per_second)
}

/// One for each method with a sampler, the same samples against the baseline's run.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    // A ladder tells it stage by stage.
    if !comparison.recipe.report.ladder.is_empty() {
        return Vec::new();
    }
    let of_line = |(i, line): (usize, &Line)| {
        let (_, own) = loading(line)?;
        let at = match comparison.shapes.len() {
            1 => String::new(),
            _ => format!(" at {}", comparison.shapes[line.shape].label),
        };
        let name = sentence(&comparison.methods[line.method]);
        let run = match over_baseline(comparison, line).filter(|_| !comparison.is_baseline(i)) {
            None => format!(
                "{name} trained on {} real tokens in {}{at}",
                count(own.tokens()),
                seconds(own.run_seconds)
            ),
            Some(ratio) if (ratio - 1.0).abs() < NEGLIGIBLE => {
                format!("{name} takes as long for a real token over the whole run as the baseline{at}")
            }
            Some(ratio) => format!(
                "{name} takes {} {} time for a real token over the whole run than the baseline{at}",
                percent((ratio - 1.0).abs()),
                if ratio < 1.0 { "less" } else { "more" },
            ),
        };
        Some(format!(
            "{run}: {} of its tokens are padding, and it waits for batches in {} of the run.",
            percent(own.padding_share()),
            percent(own.stall_share())
        ))
    };
    comparison.lines.iter().enumerate().filter_map(of_line).collect()
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
        let table = table(&comparison).expect("a table");
        let cells: Vec<&str> = table.rows[1].iter().map(String::as_str).collect();
        assert_eq!(&cells[..7], ["packed", "990 ms", "0.50", "1", "990", "1000", "1 %"]);
        assert_eq!(&cells[9..], ["0", "7", "–"]);
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
        assert!(table(&comparison).is_none() && sentences(&comparison).is_empty());
    }
}

//! Text that a model wrote: its continuations of the recipe's prompts, and its perplexity on held-out text, before training and
//! after it.

use super::prelude::*;
use crate::common::text::{printable, sentence};

/// A table for each cell that wrote something.
pub fn elements(comparison: &Comparison) -> Vec<Element> {
    let table = |line: &Line| table(line, &sentence(&comparison.title(line)));
    Element::section("Text before training and after it", comparison.lines.iter().map(table))
}

fn table(line: &Line, name: &str) -> Option<Table> {
    let measured = line.measured()?;
    let (first, last) = (measured.continuations.first()?.step, measured.continuations.last()?.step);
    let texts = |step: usize| {
        let perplexity = measured.evaluations.iter().find(|of| of.step == step);
        let texts = measured.continuations.iter().filter(move |of| of.step == step);
        let texts = texts.map(|of| (printable(&of.prompt), printable(&of.text))).collect_vec();
        (perplexity.map(|of| Unit::Perplexity.write(of.perplexity())), texts)
    };
    let ((perplexity, before), (perplexity_after, after)) = (texts(first), texts(last));
    // Without training there is one column.
    let is_trained = last > first;
    let row = |name: String, before: String, after: Option<String>| {
        [name, before].into_iter().chain(after.filter(|_| is_trained)).collect_vec()
    };
    let quality = perplexity.zip(perplexity_after);
    let quality =
        quality.map(|(before, after)| row("perplexity of held-out text".into(), before, Some(after)));
    let mut after = after.into_iter().map(|(_, text)| text);
    let texts = before.into_iter().map(|(prompt, before)| row(prompt, before, after.next()));
    let rows = quality.into_iter().chain(texts).collect();
    let header = match is_trained {
        false => vec!["prompt".to_string(), "continuation".into()],
        true => vec!["prompt".into(), "before training".into(), format!("after {} steps", last - first)],
    };
    let drawn = match &line.cell.generate.as_ref()?.temperature {
        None => "the most probable tokens".to_string(),
        Some(temperature) => {
            format!("tokens drawn at temperature {temperature}, both times by the same seed")
        }
    };
    let caption = format!("{name}: how the model continues each prompt, with {drawn}.");
    Some(Table { caption, texts: header.len(), header, rows, left_out: 0 })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, learned_row};
    use super::*;
    use crate::measure::Continuation;

    #[test]
    fn text_stands_side_by_side_with_its_perplexity() {
        let recipe = language_recipe("[generate]\nprompts = [\"Once\", \"The\"]\ntemperature = 0.5\n");
        // e^3 = 20.1, e^2 = 7.39.
        let mut row = learned_row(&recipe.cells[0], vec![5.0; 40], &[(0, 3.0, 0.0), (40, 2.0, 0.25)]);
        assert!(elements(&Comparison::new(&recipe, std::slice::from_ref(&row))).is_empty());
        let written =
            |step, prompt: &str, text: &str| Continuation { step, prompt: prompt.into(), text: text.into() };
        row.measurement.as_mut().unwrap().continuations = vec![
            written(0, "Once", "\u{14}xx"),
            written(0, "The", "yy"),
            written(40, "Once", " upon a time"),
            written(40, "The", " end"),
        ];
        let comparison = Comparison::new(&recipe, std::slice::from_ref(&row));
        let found = elements(&comparison);
        let [Element::Heading { .. }, Element::Table(table)] = &found[..] else { panic!("no table") };
        assert_eq!(table.header, ["prompt", "before training", "after 40 steps"]);
        assert_eq!(
            table.rows,
            [
                ["perplexity of held-out text", "20.1", "7.389"],
                ["Once", "\u{fffd}xx", " upon a time"],
                ["The", "yy", " end"],
            ]
        );
        assert!(
            table.caption.ends_with("with tokens drawn at temperature 0.5, both times by the same seed.")
        );
    }
}

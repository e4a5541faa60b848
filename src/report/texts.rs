//! What was trained on, in the report: the samples in numbers, and one of them as it is trained.

use super::prelude::*;
use crate::common::text::{grouped, percent, printable, sentence};
use crate::measure::Texts;

/// Around what is learned.
const LEARNED: [&str; 2] = ["⟦", "⟧"];

/// Cells with samples of texts, one of those whose samples are the same.
pub fn distinct<'l, 'a>(comparison: &'l Comparison<'a>) -> Vec<(&'l Line<'a>, &'a Texts)> {
    let texts = |line: &'l Line<'a>| Some((line, line.measured()?.loading.as_ref()?.texts.as_ref()?));
    let mut distinct: Vec<(&Line, &Texts)> = Vec::new();
    for (line, texts) in comparison.lines.iter().filter_map(texts) {
        if distinct.iter().all(|(_, other)| *other != texts) {
            distinct.push((line, texts));
        }
    }
    distinct
}

/// The table, and the first sample; nothing where no cell has samples of texts.
pub fn elements(comparison: &Comparison) -> Vec<Element> {
    let all = distinct(comparison);
    let mut out = Element::section("What was trained on", [table(comparison, &all)]);
    if let Some((line, texts)) = all.first().filter(|(_, texts)| !texts.first.is_empty()) {
        let name = sentence(&comparison.name(line));
        let [begin, end] = LEARNED;
        out.push(Element::paragraph(format!(
            "{name}: the first sample as it is trained. What counts in the loss stands within {begin}{end}."
        )));
        out.push(Element::Code { text: shown(texts) });
    }
    out
}

fn table(comparison: &Comparison, all: &[(&Line, &Texts)]) -> Option<Table> {
    let row = |(line, texts): &(&Line, &Texts)| {
        let [_, quarter, median, _, most, longest] = texts.lengths;
        let Texts { samples, tokens, cut_samples, cut_tokens, broken, duplicates, nothing_to_learn, .. } =
            **texts;
        let lengths = [quarter, median, most, longest];
        let left_out = [cut_samples, cut_tokens, broken, duplicates, nothing_to_learn];
        let name = [comparison.name(line), grouped(samples), grouped(tokens), percent(texts.learned)];
        name.into_iter().chain(lengths.into_iter().chain(left_out).map(grouped)).collect_vec()
    };
    let header = [
        "cell",
        "samples",
        "tokens",
        "learned",
        "25 %",
        "median",
        "95 %",
        "longest",
        "cut samples",
        "cut tokens",
        "broken",
        "duplicates",
        "nothing to learn",
    ];
    let caption = "The samples of the training split. Learned is the share of the first samples' tokens that count in the loss. \
                   Lengths are in tokens, before cutting; a quarter, a half and so on of the samples are at most so long. \
                   Broken records, records of another split and records with nothing to learn do not count.";
    let streams = all.iter().any(|(line, _)| line.settings.contains_key("data.shuffle_buffer"));
    let caption = format!(
        "{caption}{}",
        if streams { " With data.shuffle_buffer they are those of the first buffer." } else { "" }
    );
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let header = header.map(String::from).to_vec();
    (!rows.is_empty()).then_some(Table { caption, header, rows, texts: 1, left_out: 0 })
}

/// The first sample, and its tokens one by one.
fn shown(texts: &Texts) -> String {
    let within = |text: String, learned: bool| {
        if learned { format!("{}{text}{}", LEARNED[0], LEARNED[1]) } else { text }
    };
    let text = texts.first.iter().map(|piece| within(printable(&piece.text), piece.learned)).join("");
    let tokens = texts.first.iter().map(|piece| {
        let tokens = piece.tokens.iter().map(|token| printable(token).replace('\n', "\\n")).join("│");
        within(tokens, piece.learned)
    });
    format!("{text}\n\ntokens:\n{}", tokens.collect_vec().join("│"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, loading_row};
    use super::*;
    use crate::measure::Piece;

    #[test]
    fn samples_are_numbers_and_one_is_shown() {
        let recipe = language_recipe("");
        let mut row = loading_row(&recipe.cells[0], 10.0, &[100, 80], 20, 0);
        assert!(elements(&Comparison::new(&recipe, std::slice::from_ref(&row))).is_empty());
        let piece = |learned, text: &str, tokens: &[&str]| Piece {
            learned,
            text: text.into(),
            tokens: tokens.iter().map(|token| (*token).to_string()).collect(),
        };
        let texts = Texts {
            samples: 1234,
            tokens: 56_789,
            learned: 0.25,
            lengths: [1, 2, 3, 4, 5, 6000],
            nothing_to_learn: 7,
            first: vec![piece(false, "Hi\n", &["Hi", "\n"]), piece(true, "you", &["yo", "u"])],
            ..Texts::default()
        };
        row.measurement.as_mut().unwrap().loading.as_mut().unwrap().texts = Some(texts);
        let comparison = Comparison::new(&recipe, std::slice::from_ref(&row));
        let elements = elements(&comparison);
        let [
            Element::Heading { .. },
            Element::Table(table),
            Element::Paragraph { text },
            Element::Code { text: sample },
        ] = &elements[..]
        else {
            panic!("other elements")
        };
        let numbers = ["1,234", "56,789", "25 %", "2", "3", "5", "6,000", "0", "0", "0", "0", "7"];
        assert_eq!(table.rows[0][1..], numbers);
        assert!(text.ends_with("stands within ⟦⟧."), "{text}");
        assert_eq!(sample, "Hi\n⟦you⟧\n\ntokens:\nHi│\\n│⟦yo│u⟧");
    }
}

//! Answers to a task's questions in the report: how many were right before training and after it, and some samples.

use super::columns::ANSWERS;
use super::prelude::*;
use crate::common::text::{printable, sentence};
use crate::measure::{Answer, Answers, wilson};

/// Cells of which samples are shown.
const SAMPLED: usize = 2;

/// Wrong answers that are shown of each.
const WRONG: usize = 3;

/// Answers to one test set, before training and after it.
pub struct Asked<'a> {
    pub set: &'a str,
    /// `None` where nothing was trained between.
    pub before: Option<Counted>,
    pub after: Counted,
    /// Of a single cell's answers, or of the first of several.
    samples: Vec<&'a Answers>,
}

/// Answers of one or several runs, which differ in their seed, to a test set.
#[derive(Clone, Copy, Default)]
pub struct Counted {
    right: usize,
    answers: usize,
    /// The most that one run answered.
    pub questions: usize,
    pub tokens_per_second: Option<f64>,
}

impl Counted {
    fn add(&mut self, answers: &Answers) {
        self.right += answers.right;
        self.answers += answers.questions;
        self.questions = self.questions.max(answers.questions);
        self.tokens_per_second = answers.tokens_per_second();
    }

    pub fn accuracy(self) -> f64 {
        self.right as f64 / self.answers.max(1) as f64
    }

    /// Its 95 % interval. Answers of several runs to one question are no independent trials: with k runs and a correlation ρ of
    /// answers to one question the variance is 1 + (k - 1) ρ times that of independent ones (Kish 1965, "Survey Sampling"). Rows
    /// do not have ρ, so it is the most, 1, and a question counts once, however many seeds answered it.
    pub fn interval(self) -> [f64; 2] {
        wilson(self.accuracy(), self.questions)
    }
}

/// The answers of some lines to each of their test sets.
pub fn asked<'l, 'a: 'l>(lines: impl IntoIterator<Item = &'l Line<'a>>) -> Vec<Asked<'a>> {
    let mut out: Vec<Asked> = Vec::new();
    for measured in lines.into_iter().filter_map(Line::measured) {
        let all = &measured.answers;
        for before in all.iter().take_while(|of| of.step == all[0].step) {
            let after = all.iter().rev().find(|after| after.set == before.set).unwrap_or(before);
            let (place, trained) = (out.iter().position(|of| of.set == after.set), after.step > before.step);
            let place = place.unwrap_or_else(|| {
                let samples = trained.then_some(before).into_iter().chain([after]).collect();
                out.push(Asked { set: &after.set, before: None, after: Counted::default(), samples });
                out.len() - 1
            });
            out[place].after.add(after);
            if trained {
                out[place].before.get_or_insert_default().add(before);
            }
        }
    }
    out
}

/// The answers to one of the test sets of a cell, counted from 0.
pub fn set<'a>(line: &Line<'a>, number: usize) -> Option<Asked<'a>> {
    asked([line]).into_iter().nth(number)
}

/// The table and samples; nothing where no cell answered.
pub fn elements(comparison: &Comparison) -> Vec<Element> {
    let mut out = Element::section("Answers", [table(comparison)]);
    let asked = comparison.lines.iter().filter_map(|line| Some((line, set(line, 0)?)));
    for (line, Asked { before, samples, .. }) in asked.take(SAMPLED) {
        let name = sentence(&comparison.name(line));
        let after = if before.is_some() { ", after training" } else { "" };
        let when = before.map(|_| ", before training").into_iter().chain([after]);
        for (answers, when) in samples.into_iter().zip(when) {
            for (right, what, most) in [(true, "right", 1), (false, "wrong", WRONG)] {
                let samples = answers.samples.iter().filter(|sample| sample.right == right).take(most);
                out.extend(samples.flat_map(|sample| {
                    let heading = format!("{name}{when}: a {what} answer.");
                    [Element::paragraph(heading), Element::Code { text: written(sample) }]
                }));
            }
        }
    }
    out
}

/// The question with its answer, and the expected one where that is wrong.
fn written(Answer { question, expected, given, right, margin }: &Answer) -> String {
    let given = printable(&format!("{question}{given}"));
    if *right {
        return given;
    }
    let margin = margin.map(|margin| format!("\nmargin: {margin:.3} nats a character")).unwrap_or_default();
    format!("{given}\n\nexpected: {}{margin}", expected.trim_start())
}

fn table(comparison: &Comparison) -> Option<Table> {
    let rows = comparison.lines.iter().enumerate().flat_map(|(i, line)| {
        asked([line]).into_iter().map(move |asked| (i, vec![("set", asked.set.to_string())], asked))
    });
    comparison.table_of("answers", ANSWERS, rows)
}

/// The answers of a group to each of its test sets.
pub fn pooled<'a>(comparison: &Comparison<'a>, group: &Group) -> Vec<Asked<'a>> {
    asked(group.lines.iter().map(|&i| &comparison.lines[i]))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, learned_row};
    use super::*;

    fn answers(step: usize, set: &str, right: usize) -> Answers {
        let sample = |right, given: &str| Answer {
            question: "2+2=".into(),
            expected: "#### 4".into(),
            given: given.into(),
            right,
            margin: None,
        };
        // None was right before.
        let samples = [sample(true, "so #### 4"), sample(false, "\u{14}#### 5")];
        let samples = samples.into_iter().filter(|sample| step > 0 || !sample.right).collect();
        Answers { step, set: set.into(), questions: 100, right, tokens: 900, seconds: 3.0, samples }
    }

    /// 33 of 3 x 400: the interval is that of 11 of 400, by the formula in Python.
    #[test]
    fn a_question_counts_once_however_many_seeds_answer_it() {
        let recipe = language_recipe("[grid]\nseed = [1, 2, 3]\n");
        let rows = recipe.cells.iter().zip([8, 14, 11]).map(|(cell, right)| {
            let mut row = learned_row(cell, vec![5.0; 40], &[]);
            let counted = |step, right| Answers { questions: 400, ..answers(step, "test.jsonl", right) };
            row.measurement.as_mut().unwrap().answers = vec![counted(0, 0), counted(40, right)];
            row
        });
        let rows: Vec<_> = rows.collect();
        let comparison = Comparison::new(&recipe, &rows);
        let [Asked { before: Some(before), after, .. }] = &pooled(&comparison, &comparison.groups()[0])[..]
        else {
            panic!("one set")
        };
        assert!((after.accuracy() - 0.0275).abs() < 1e-9);
        let near = |interval: [f64; 2], known: [f64; 2]| {
            assert!(interval.iter().zip(known).all(|(is, of)| (is - of).abs() < 5e-5), "{interval:?}");
        };
        near(after.interval(), [0.0154, 0.0486]);
        near(before.interval(), [0.0, 0.0095]);
    }

    #[test]
    fn answers_before_and_after_by_hand() {
        let recipe = language_recipe("");
        let mut row = learned_row(&recipe.cells[0], vec![5.0; 40], &[]);
        assert!(elements(&Comparison::new(&recipe, std::slice::from_ref(&row))).is_empty());
        row.measurement.as_mut().unwrap().answers = vec![
            answers(0, "test", 4),
            answers(0, "test.jsonl", 0),
            answers(40, "test", 94),
            answers(40, "test.jsonl", 50),
        ];
        let comparison = Comparison::new(&recipe, std::slice::from_ref(&row));
        let found = table(&comparison).expect("a table");
        // Wilson's intervals of 4, 94, 0 and 50 of 100.
        assert_eq!(
            found.rows.iter().map(|row| row[1..].to_vec()).collect::<Vec<_>>(),
            [
                ["test", "100", "4.00 %", "1.57 %", "9.84 %", "94.0 %", "87.5 %", "97.2 %", "300"],
                ["test.jsonl", "100", "0", "0", "3.70 %", "50.0 %", "40.4 %", "59.6 %", "300"],
            ]
        );
        let codes: Vec<String> = elements(&comparison)
            .into_iter()
            .filter_map(|element| if let Element::Code { text } = element { Some(text) } else { None })
            .collect();
        let wrong = "2+2=\u{fffd}#### 5\n\nexpected: #### 4";
        assert_eq!(codes, [wrong, "2+2=so #### 4", wrong]);
    }
}

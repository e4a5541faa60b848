//! Answers to a task's questions in the report: how many were right before training and after it, and some samples.

use super::columns::{ANSWERS, Asked};
use super::document::{Element, Table};
use super::line::Line;
use super::table::{Comparison, Group};
use crate::common::text::{printable, sentence};
use crate::measure::{Answer, Answers, wilson};

/// Cells of which samples are shown.
const SAMPLED: usize = 2;

/// The answers to each test set of a cell.
pub fn asked<'a>(line: &Line<'a>) -> Vec<Asked<'a>> {
    let answers: &'a [Answers] = line.measured().map_or(&[], |measured| &measured.answers);
    let before = answers.iter().take_while(|of| of.step == answers[0].step);
    let pair = |before: &'a Answers| {
        let after = answers.iter().rev().find(|after| after.set == before.set)?;
        Some(Asked { before: (after.step > before.step).then_some(before), after })
    };
    before.filter_map(pair).collect()
}

/// The table and samples; nothing where no cell answered.
pub fn elements(comparison: &Comparison) -> Vec<Element> {
    let mut out = Element::section("Answers", [table(comparison)]);
    let asked = comparison.lines.iter().filter_map(|line| Some((line, asked(line).into_iter().next()?)));
    for (line, Asked { before, after }) in asked.take(SAMPLED) {
        let when = if before.is_some() { ", after training" } else { "" };
        let asked = before.map(|before| (", before training", before)).into_iter().chain([(when, after)]);
        for (when, answers) in asked {
            for (right, what) in [(true, "a right answer"), (false, "a wrong answer")] {
                let Some(sample) = answers.samples.iter().find(|sample| sample.right == right) else {
                    continue;
                };
                let name = sentence(&comparison.name(line));
                out.push(Element::paragraph(format!("{name}{when}: {what}.")));
                out.push(Element::Code { text: written(sample) });
            }
        }
    }
    out
}

/// The question with its answer, and the expected one where that is wrong.
fn written(Answer { question, expected, given, right }: &Answer) -> String {
    let given = printable(&format!("{question}{given}"));
    if *right { given } else { format!("{given}\n\nexpected: {}", expected.trim_start()) }
}

fn table(comparison: &Comparison) -> Option<Table> {
    let rows = comparison.lines.iter().enumerate().flat_map(|(i, line)| {
        asked(line).into_iter().map(move |asked| (i, vec![("set", asked.after.set.clone())], asked))
    });
    let caption = "The share of questions with the right number or class as their answer, before training and after it, each \
                   with its 95 % interval (Wilson). Text is generated greedily; tokens/s are those of the answers after training, \
                   with the time of their prompts.";
    let mut sets = comparison.lines.iter().flat_map(asked).map(|asked| &asked.after.set);
    let split = match sets.any(|set| set.contains('.')) {
        true => {
            " A set with a file's name is that file; the other one is what the seed holds out of the training file."
        }
        false => "",
    };
    comparison.table_of(&(caption.to_string() + split), ANSWERS, rows)
}

/// The answers of all cells of a group to a test set, before training and after it.
pub struct Pooled {
    pub set: String,
    pub before: Option<Counted>,
    pub after: Counted,
}

/// Answers of several runs, which differ in their seed, to a test set.
#[derive(Clone, Copy, Default)]
pub struct Counted {
    right: usize,
    answers: usize,
    /// The most that one run answered.
    questions: usize,
}

impl Counted {
    fn add(&mut self, answers: &Answers) {
        self.right += answers.right;
        self.answers += answers.questions;
        self.questions = self.questions.max(answers.questions);
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

/// The answers of a group to each of its test sets.
pub fn pooled(comparison: &Comparison, group: &Group) -> Vec<Pooled> {
    let mut out: Vec<Pooled> = Vec::new();
    for asked in group.lines.iter().flat_map(|&i| asked(&comparison.lines[i])) {
        let Asked { before, after } = asked;
        let place = out.iter().position(|of| of.set == after.set).unwrap_or_else(|| {
            out.push(Pooled { set: after.set.clone(), before: None, after: Counted::default() });
            out.len() - 1
        });
        out[place].after.add(after);
        before.into_iter().for_each(|before| out[place].before.get_or_insert_default().add(before));
    }
    out
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
            let of = |step, right| Answers { questions: 400, ..answers(step, "test.jsonl", right) };
            row.measurement.as_mut().unwrap().answers = vec![of(0, 0), of(40, right)];
            row
        });
        let rows: Vec<_> = rows.collect();
        let comparison = Comparison::new(&recipe, &rows);
        let [Pooled { before: Some(before), after, .. }] = &pooled(&comparison, &comparison.groups()[0])[..]
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

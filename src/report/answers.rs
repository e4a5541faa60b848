//! Answers to a task's questions in the report: how many were right before training and after it, and some samples.

use itertools::Itertools;

use super::columns::{ANSWERS, Asked};
use super::document::{Element, Table};
use super::line::Line;
use super::table::{Comparison, Group};
use super::units::Unit;
use crate::measure::{Answer, Answers, wilson};
use crate::words::text::{few, printable, sentence};

/// Methods whose answers a sentence has, one by one.
const FEW: usize = 3;

/// Cells of which samples are shown.
const SAMPLED: usize = 6;

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
struct Pooled {
    name: String,
    set: String,
    before: Option<Counted>,
    after: Counted,
}

/// Answers of several runs, which differ in their seed, to a test set.
#[derive(Clone, Copy, Default)]
struct Counted {
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

    fn accuracy(self) -> f64 {
        self.right as f64 / self.answers.max(1) as f64
    }

    /// Its 95 % interval. Answers of several runs to one question are no independent trials: with k runs and a correlation ρ of
    /// answers to one question the variance is 1 + (k - 1) ρ times that of independent ones (Kish 1965, "Survey Sampling"). Rows
    /// do not have ρ, so it is the most, 1, and a question counts once, however many seeds answered it.
    fn interval(self) -> [f64; 2] {
        wilson(self.accuracy(), self.questions)
    }
}

/// A sentence for each test set. Of few methods: `Lr 0.01 answered 94.0 % of "test" correctly after training (95 % interval
/// 91.2 % to 96.0 %), clearly more than 2.00 % before it (1.00 % to 4.00 %).` Of many: which answered the most, and which clearly less.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let pooled: Vec<Pooled> =
        comparison.groups().iter().flat_map(|group| pooled(comparison, group)).collect();
    let sets = pooled.iter().map(|of| &of.set).unique();
    sets.map(|set| {
        let of_set: Vec<&Pooled> = pooled.iter().filter(|of| of.set == *set).collect();
        let text =
            if of_set.len() > FEW { most(&of_set) } else { of_set.iter().map(|of| each(of)).join("; ") };
        format!("{}.", sentence(&text))
    })
    .collect()
}

/// Whether any cell answered questions.
pub fn are_asked(comparison: &Comparison) -> bool {
    comparison.lines.iter().any(|line| !asked(line).is_empty())
}

/// Whether a method's share of right answers to a test set is clearly below its baseline's: its interval ends where the other
/// has not begun.
pub fn clearly_fewer(comparison: &Comparison, method: usize) -> bool {
    let of_method = |method: usize| {
        let groups = comparison.groups().into_iter().filter(move |group| group.method == method);
        groups.flat_map(|group| pooled(comparison, &group)).collect::<Vec<_>>()
    };
    let base = comparison.of_method(method).find_map(|i| comparison.lines[i].baseline);
    let Some(base) = base.map(|i| comparison.lines[i].method).filter(|base| *base != method) else {
        return false;
    };
    let base = of_method(base);
    let fewer = |own: &Pooled| {
        let same = base.iter().filter(|base| base.set == own.set);
        same.into_iter().any(|base| own.after.interval()[1] < base.after.interval()[0])
    };
    of_method(method).iter().any(fewer)
}

fn pooled(comparison: &Comparison, group: &Group) -> Vec<Pooled> {
    let mut out: Vec<Pooled> = Vec::new();
    for asked in group.lines.iter().flat_map(|&i| asked(&comparison.lines[i])) {
        let Asked { before, after } = asked;
        let place = out.iter().position(|of| of.set == after.set).unwrap_or_else(|| {
            let (name, set) = (comparison.name_of_group(group), after.set.clone());
            out.push(Pooled { name, set, before: None, after: Counted::default() });
            out.len() - 1
        });
        out[place].after.add(after);
        before.into_iter().for_each(|before| out[place].before.get_or_insert_default().add(before));
    }
    out
}

fn share(value: f64) -> String {
    Unit::FineShare.write(value)
}

fn each(Pooled { name, set, before, after }: &Pooled) -> String {
    let [low, high] = after.interval().map(share);
    let when = if before.is_some() { " after training" } else { "" };
    let before = before.map_or(String::new(), |before| {
        let [least, most] = before.interval();
        let change = match after.interval() {
            [low, _] if low > most => "clearly more than",
            [_, high] if high < least => "clearly less than",
            _ => "not clearly different from",
        };
        let before = share(before.accuracy());
        format!(", {change} {before} before it ({} to {})", share(least), share(most))
    });
    let right = share(after.accuracy());
    format!("{name} answered {right} of “{set}” correctly{when} (95 % interval {low} to {high}){before}")
}

/// `BitFit answered the most of “test” correctly after training, 88.0 % (95 % interval 84.8 % to 90.6 %); clearly less: prompt
/// tuning 70.0 %; before it 22.4 % to 24.0 %`
fn most(of_set: &[&Pooled]) -> String {
    let accuracy = |of: &&Pooled| of.after.accuracy();
    let best = of_set.iter().max_by(|a, b| accuracy(a).total_cmp(&accuracy(b))).expect("some method");
    let equal = of_set.iter().filter(|of| accuracy(of) == accuracy(best)).map(|of| of.name.clone());
    let equal: Vec<String> = equal.collect();
    let each = if equal.len() > 1 { " each" } else { "" };
    let [low, high] = best.after.interval();
    let clear = of_set.iter().filter(|of| of.after.interval()[1] < low);
    let clear: Vec<String> = clear.map(|of| format!("{} {}", of.name, share(of.after.accuracy()))).collect();
    let less = match clear.is_empty() {
        true => "; no other interval lies below that".to_string(),
        false => format!("; clearly less: {}", clear.join(", ")),
    };
    let before = of_set.iter().filter_map(|of| of.before).map(Counted::accuracy).minmax();
    let before =
        before.into_option().map_or(String::new(), |(least, most)| match share(least) == share(most) {
            true => format!("; before it {}", share(least)),
            false => format!("; before it {} to {}", share(least), share(most)),
        });
    let when = if before.is_empty() { "" } else { " after training" };
    format!(
        "{} answered the most of “{}” correctly{when}, {}{each} (95 % interval {} to {}){less}{before}",
        sentence(&few(equal, FEW)),
        best.set,
        share(best.after.accuracy()),
        share(low),
        share(high)
    )
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
        let said = &sentences(&Comparison::new(&recipe, &rows))[0];
        assert!(
            said.contains("2.75 % of “test.jsonl” correctly after training (95 % interval 1.54 % to 4.86 %)"),
            "{said}"
        );
        assert!(said.contains("before it (0 to 0.951 %)"), "{said}");
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
        let said = &sentences(&comparison)[0];
        let expected = "answered 94.0 % of “test” correctly after training (95 % interval 87.5 % to 97.2 %), clearly \
                        more than 4.00 % before it (1.57 % to 9.84 %).";
        assert!(said.ends_with(expected), "{said}");
        let codes: Vec<String> = elements(&comparison)
            .into_iter()
            .filter_map(|element| if let Element::Code { text } = element { Some(text) } else { None })
            .collect();
        let wrong = "2+2=\u{fffd}#### 5\n\nexpected: #### 4";
        assert_eq!(codes, [wrong, "2+2=so #### 4", wrong]);
    }
}

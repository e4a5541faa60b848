//! Which methods learn as well as the baseline: by held-out perplexity, right answers to a task's questions, and divergence.

use super::answers;
use itertools::Itertools;
use strum::IntoEnumIterator;

use super::labels::FEW;
use super::line::Line;
use super::quality::{self, Verdict};
use super::table::Comparison;
use crate::row::Status;
use crate::words::text::{few, percent, sentence, verb};

/// The methods that learn as well as the baseline: their held-out perplexity is as low at every size, and their right answers
/// are not clearly fewer; and the others that ran. Where nothing was evaluated or asked, all methods are good; where the
/// baseline has no perplexity, all that did not diverge.
pub fn as_good(comparison: &Comparison) -> (Vec<usize>, Vec<usize>) {
    let evaluated = is_evaluated(comparison);
    let compared = has_reference(comparison);
    let asked = answers::are_asked(comparison);
    let judged = |method: &usize| {
        let mut lines = comparison.of_method(*method).map(|i| &comparison.lines[i]);
        !(evaluated || asked) || lines.any(|line| line.measured().is_some() || has_diverged(line))
    };
    let good = |method: &usize| {
        let learned = || {
            comparison.of_method(*method).all(|i| !has_diverged(&comparison.lines[i]))
                && (!compared || quality::verdict(comparison, *method) == Verdict::AsGood)
        };
        (!evaluated || learned()) && !(asked && answers::clearly_fewer(comparison, *method))
    };
    (0..comparison.methods.len()).filter(judged).partition(good)
}

fn has_diverged(line: &Line) -> bool {
    line.rows.iter().any(|row| row.status == Status::Diverged)
}

/// Whether held-out text says what the methods learn. Random weights learn nothing from random tokens.
pub fn is_evaluated(comparison: &Comparison) -> bool {
    let learns = |i: usize| {
        let cell = comparison.lines[i].cell;
        !cell.data.is_random() || cell.model.weights_folder().is_some()
    };
    comparison.having("eval_perplexity").any(learns)
}

/// How a method that does not learn as well as the baseline compares with it.
#[derive(Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "lowercase")]
pub enum Lack {
    Worse,
    #[strum(serialize = "fewer right answers")]
    Fewer,
    #[strum(serialize = "not clear")]
    NotClear,
    Diverged,
}

impl Lack {
    pub fn of(comparison: &Comparison, method: usize) -> Self {
        let unknown = is_evaluated(comparison) && !has_reference(comparison);
        if comparison.of_method(method).any(|i| has_diverged(&comparison.lines[i])) {
            Self::Diverged
        } else if unknown {
            Self::Fewer
        } else if answers::clearly_fewer(comparison, method)
            || quality::verdict(comparison, method) == Verdict::Worse
        {
            Self::Worse
        } else {
            Self::NotClear
        }
    }
}

/// Whether a baseline has a held-out perplexity that the others can be compared with.
fn has_reference(comparison: &Comparison) -> bool {
    comparison.having("eval_perplexity").any(|i| comparison.is_baseline(i))
}

/// `As good as fp32 (held-out perplexity at most 3 % above it at every seed): 2^0 and bf16; worse: 2^-14 (23.1, 15 % higher); not clear: 2^4;
/// diverged: 2^24.`
pub fn told(comparison: &Comparison, good: &[usize], lost: &[usize]) -> Vec<String> {
    let base = comparison.lines.iter().find_map(|line| line.baseline);
    let evaluated = is_evaluated(comparison);
    let unknown = evaluated && !has_reference(comparison);
    let Some(base) = base.map(|i| comparison.lines[i].method).filter(|_| unknown || !lost.is_empty()) else {
        return Vec::new();
    };
    // With how much worse it is.
    let named = |method: &usize| match quality::verdict(comparison, *method) {
        Verdict::Worse => quality::told(comparison, *method).unwrap_or_default(),
        _ => comparison.said(*method),
    };
    let names = |methods: &mut dyn Iterator<Item = &usize>| few(methods.map(named), FEW);
    let mut equal = good.iter().filter(|method| **method != base).peekable();
    let mut text = match equal.peek() {
        _ if unknown => format!(
            "{} {} no held-out perplexity, so what the others learn is not compared",
            sentence(&comparison.said(base)),
            verb(&comparison.said(base), "has", "have")
        ),
        None => format!("No other method is clearly as good as {}", comparison.said(base)),
        Some(_) => format!("As good as {}: {}", comparison.said(base), names(&mut equal)),
    };
    let perplexity = evaluated.then(|| {
        let at = match comparison.shapes.len() {
            1 => String::new(),
            _ => format!(" at every {}", comparison.repeated()),
        };
        format!("held-out perplexity at most {} above it{at}", percent(quality::BOUND))
    });
    let asked = answers::are_asked(comparison).then(|| "right answers not clearly fewer".to_string());
    if !unknown {
        text += &format!(" ({})", perplexity.into_iter().chain(asked).join(", "));
    }
    for what in Lack::iter() {
        let mut of = lost.iter().filter(|method| Lack::of(comparison, **method) == what).peekable();
        if of.peek().is_some() {
            text += &format!("; {what}: {}", names(&mut of));
        }
    }
    vec![text + "."]
}

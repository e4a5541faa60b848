//! Columns of answers to a task's questions.

use super::{Column, column};
use crate::measure::Answers;
use crate::report::answers::asked;
use crate::report::line::Line;
use crate::report::units::Unit::{Count, FineShare, PerSecond};

/// Answers to one test set, before training and after it.
pub struct Asked<'a> {
    /// `None` where nothing was trained between.
    pub before: Option<&'a Answers>,
    pub after: &'a Answers,
}

/// What a column takes of a test set.
type Take = fn(&Asked) -> Option<f64>;

/// The answers to one test set.
pub const ANSWERS: &[Column<Take>] = &[
    column("questions", "questions", Count, |a| Some(a.after.questions as f64)),
    column("before", "right before", FineShare, |a| Some(a.before?.accuracy())),
    column("before_low", "from", FineShare, |a| Some(a.before?.interval()[0])),
    column("before_high", "to", FineShare, |a| Some(a.before?.interval()[1])),
    column("after", "right after", FineShare, |a| Some(a.after.accuracy())),
    column("after_low", "from", FineShare, |a| Some(a.after.interval()[0])),
    column("after_high", "to", FineShare, |a| Some(a.after.interval()[1])),
    column("tokens_per_second", "tokens/s", PerSecond, |a| a.after.tokens_per_second()),
];

/// The answers to one of the test sets of a cell, counted from 0.
pub fn set<'a>(line: &Line<'a>, number: usize) -> Option<Asked<'a>> {
    asked(line).into_iter().nth(number)
}

//! Rules of `train.mode = "inference"`: settings that affect only a backward or an update are refused.

use super::tuning::counted;
use super::{Checked, drops};
use crate::keys::Rule;
use crate::ops::Level;
use crate::optim::Schedule;
use crate::params::table::Tuning;
use crate::recipe::Cell;
use crate::residence::Memory;

pub(super) fn check(cell: &Cell) -> Checked {
    let (train, offload) = (&cell.train, &cell.offload);
    if train.mode.trains() {
        return Ok(());
    }
    let (no_update, no_backward) = ("no weight is updated", "nothing is kept for backward");
    let unused = [
        ("train.optimizer", train.optimizer.rule().is_some(), no_update),
        ("train.clip_norm", train.clip_norm.is_some(), no_update),
        ("train.schedule", train.schedule != Schedule::default(), no_update),
        ("train.accumulation_steps", train.accumulation_steps > 1, "there are no gradients to add up"),
        ("precision.scaler", cell.precision.scaler.is_some(), "there are no gradients to scale"),
        ("checkpoint.level", cell.checkpoint.level != Level::Keep, no_backward),
        ("checkpoint.blocks", cell.checkpoint.blocks > 0, no_backward),
        ("offload.activations", offload.activations == Memory::Host, no_backward),
        ("offload.optimizer", offload.optimizer == Memory::Host, no_update),
        ("tuning.dropout", drops(cell), "only training drops anything"),
        (
            "tuning.method",
            adds_nothing(cell),
            "nothing is trained, and this method adds nothing to the network",
        ),
        ("measure.gradient_histogram", cell.measure.gradient_histogram, "there are no gradients to count"),
        ("eval", cell.eval.is_some(), "the weights stay as they are; each step has its loss"),
        ("save", cell.save.is_some(), "the weights stay as they are"),
    ];
    match unused.into_iter().find(|(_, written, _)| *written) {
        None => Ok(()),
        Some((key, _, reason)) => Err(Rule::new(
            &[key],
            format!("{key} has no effect with train.mode = \"inference\": {reason}"),
            format!("remove {key}, or train.mode"),
        )),
    }
}

/// Whether the tuning only chooses which parameters are trained.
fn adds_nothing(cell: &Cell) -> bool {
    let untuned = Tuning { classes: cell.classes(), ..Tuning::default() };
    let parameters = |tuning: &Tuning| counted(cell, tuning).parameters();
    !cell.tuning.is_full() && parameters(&cell.tuning()) == parameters(&untuned)
}

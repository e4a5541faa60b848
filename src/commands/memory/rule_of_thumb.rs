//! A rule of thumb for the memory of training a language model, compared with the account.
//!
//! With P parameters, of h columns, t tokens of a micro-batch and L layers:
//!
//! | | fp32 | mixed precision |
//! |---|---|---|
//! | weights | 4 P | 2 P, and 4 P of a master copy |
//! | gradients | 4 P | 2 P |
//! | Adam's moments | 8 P | 8 P |
//! | activations | 12 h t L · 4 | 12 h t L · 2; with checkpointing 6 in the place of 12 |
//! | context | 1 GB | 1 GB |

use super::lines::{Class, Unit, gigabytes};
use crate::model::Account;
use crate::ops::Level;
use crate::recipe::Cell;
use crate::words::text::significant;

const CONTEXT: u64 = 1_000_000_000;

pub struct Rule {
    pub class: Class,
    pub what: &'static str,
    pub formula: String,
    pub bytes: u64,
}

/// The rule's parts for a language model; `None` for another network.
pub fn rule_of_thumb(cell: &Cell) -> Option<Vec<Rule>> {
    cell.model.decoder()?;
    let parameters = cell.model.parameters();
    let element = cell.precision.compute.bytes();
    let mixed = cell.precision.autocast;
    let state = if cell.train.optimizer.rule().is_some() { 8 } else { 0 };
    let unit = Unit::of(cell);
    let again = cell.checkpoint.blocks > 0 || cell.checkpoint.level != Level::Keep;
    let times = if again { 6 } else { 12 };
    let rule = |class, what, formula, bytes| Rule { class, what, formula, bytes };
    let of_parameters = |class, what, each: u64| rule(class, what, format!("{each} P"), each * parameters);
    let all = [
        of_parameters(Class::Weights, "weights", element),
        of_parameters(Class::Weights, "master copy", if mixed { 4 } else { 0 }),
        of_parameters(Class::Gradients, "gradients", element),
        of_parameters(Class::Optimizer, "moments", state),
        rule(
            Class::Activations,
            "activations",
            format!("{times} h t L {element} B"),
            (times as f64 * unit.bytes()) as u64,
        ),
        rule(Class::Context, "context", "1 GB".into(), CONTEXT),
    ];
    Some(all.into_iter().filter(|rule| rule.bytes > 0).collect())
}

/// The classes in which the rule is off by a tenth or more, and why.
pub fn differences(cell: &Cell, account: &Account, rules: &[Rule]) -> Vec<String> {
    let estimate = account.estimate();
    let of = |class| rules.iter().filter(|rule| rule.class == class).map(|rule| rule.bytes).sum::<u64>();
    let unit = Unit::of(cell);
    let coefficient = |bytes: u64| significant(bytes as f64 / unit.bytes());
    let compute = cell.precision.compute.into_str();
    let mut notes = Vec::new();
    let mut note = |class: Class, ours: u64, why: String| {
        let theirs = of(class);
        if ours.abs_diff(theirs) * 10 > theirs.max(ours) {
            let name = class.into_str();
            notes.push(format!(
                "{name}: {} by the rule, {} by the account: {why}",
                gigabytes(theirs),
                gigabytes(ours)
            ));
        }
    };
    let weights = match (cell.offload.moves(), cell.precision.autocast) {
        (true, _) => "blocks that move are in slots of the workspace",
        (false, true) => "only matrices are copied, and one block at a time where blocks are computed again",
        (false, false) => "parameters in the compute type have no master copy",
    };
    note(Class::Weights, estimate.weights, weights.into());
    let gradients = match cell.precision.autocast {
        true => format!("they are stored as the parameters are, in fp32, and only products are in {compute}"),
        false => "not all of them are there at the highest moment".into(),
    };
    note(Class::Gradients, estimate.gradients, gradients);
    let state = "it is on the host, or of another size than two moments in fp32";
    note(Class::Optimizer, estimate.optimizer, state.into());
    let kept = account.kept.kept;
    let activations = format!(
        "{} h t L from forward to backward, and {} at the highest moment, with what is computed again",
        coefficient(kept),
        coefficient(estimate.activations)
    );
    note(Class::Activations, estimate.activations, activations);
    note(Class::Workspace, estimate.workspace, "the rule has none".into());
    notes
}

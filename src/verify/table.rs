//! The verdict as a person reads it: a line for each quantity, and what could not be compared.

use super::check::count;
use super::check::{Check, Outcome};
use crate::common::text;

/// Whether something was compared and nothing is wrong.
pub fn passes(checks: &[Check]) -> bool {
    checks.iter().any(Check::is_compared) && checks.iter().all(Check::passes)
}

/// One line per quantity: largest difference, tolerance, pass or FAIL.
pub fn table(checks: &[Check]) -> String {
    let mut lines = Vec::new();
    let mut rest = String::new();
    let mut left_out = 0;
    for Check { name, outcome } in checks {
        match outcome {
            Outcome::Compared(difference) => {
                left_out += difference.left_out;
                if !difference.passes() {
                    rest += &format!("FAIL: {name} differs by more than is allowed\n");
                }
                let allowed = difference.relative_allowed;
                lines.push(vec![
                    name.clone(),
                    if difference.passes() { "pass" } else { "FAIL" }.into(),
                    format!("{:.2e}", difference.absolute),
                    format!("{:.0e}", difference.absolute_allowed),
                    format!("{:.2e}", difference.relative),
                    if allowed.is_finite() { format!("{allowed:.0e}") } else { "rounding".into() },
                ]);
            }
            Outcome::NotCompared(reason) => rest += &format!("not compared: {name}: {reason}\n"),
            Outcome::Failed(reason) => rest += &format!("FAIL: {name}: {reason}\n"),
        }
    }
    let header = ["quantity", "verdict", "max |a-b|", "allowed", "‖a-b‖/‖b‖", "allowed"];
    let table = text::table(&header, lines, 2);
    if left_out > 0 {
        rest += &format!(
            "{left_out} elements of parameters are compared by their gradients alone: AdamW makes a whole step of \
             a gradient however small, and these are so small that rounding changes them\n"
        );
    }
    let (passed, judged) = count(checks);
    let legend = "a: computed here; b: the reference; ‖·‖: the norm over the whole tensor";
    format!("{table}\n{legend}\n{rest}{passed} of {judged} quantities pass")
}

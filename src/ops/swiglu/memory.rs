//! What one SwiGLU operator holds, step by step: the operator's part of the memory estimate.
//! The walks follow `formula.rs` line by line.

use crate::measure::Ledger;
use crate::ops::{Level, Operator};

/// Bytes of the tensors of one operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// x, y and their gradients: [tokens, hidden].
    pub x: u64,
    /// a, s, b, h and their gradients: [tokens, intermediate].
    pub a: u64,
    /// W, V, U and their gradients: [hidden, intermediate].
    pub weight: u64,
}

impl Sizes {
    /// N, H and I, and the bytes of one element.
    pub fn new(tokens: u64, hidden: u64, intermediate: u64, element: u64) -> Self {
        Self {
            x: tokens * hidden * element,
            a: tokens * intermediate * element,
            weight: hidden * intermediate * element,
        }
    }

    /// Bytes kept from forward to backward besides x and the weights.
    pub fn kept(&self, level: Level, operator: Operator) -> u64 {
        match (operator, level) {
            (Operator::Custom, Level::Keep) => 3 * self.a,
            (Operator::Custom, Level::Elementwise) => 2 * self.a,
            (Operator::Custom, Level::Full) => 0,
            // Burn's autodiff keeps a, σ(a), s, b and h, one for each operator that needs it.
            (Operator::Plain, _) => 5 * self.a,
        }
    }

    /// Bytes one operator keeps from forward to backward, x included and the weights not.
    pub fn kept_with_input(&self, level: Level, operator: Operator) -> u64 {
        self.x + self.kept(level, operator)
    }

    /// Walks forward: afterwards `now.activations` holds what is kept and the workspace holds y.
    pub fn forward(&self, ledger: &mut Ledger, level: Level, operator: Operator) {
        let Self { x, a, weight } = *self;
        ledger.matmul(x, weight, a);
        ledger.matmul(x, weight, a);
        // a and b; with what is kept beside h there are `live` tensors of that size.
        let live = match (operator, level) {
            (Operator::Custom, Level::Keep) => 4,
            (Operator::Custom, Level::Elementwise) => 3,
            (Operator::Custom, Level::Full) => 1,
            (Operator::Plain, _) => 5,
        };
        ledger.give(2 * a);
        ledger.take(live * a);
        ledger.matmul(a, weight, x);
        ledger.give(live * a);
        ledger.now.activations += self.kept(level, operator);
    }

    /// Walks backward: the workspace holds g before and dx after, the three weight gradients are
    /// added, and what was kept is freed.
    pub fn backward(&self, ledger: &mut Ledger, level: Level, operator: Operator) {
        let Self { x, a, weight } = *self;
        // What was kept becomes workspace: a, b and, at level 0, s.
        let kept = self.kept(level, operator);
        ledger.now.activations -= kept;
        ledger.take(kept);
        if operator == Operator::Plain {
            // Eleven operators, each with its own results; at most two more of this size at once.
            ledger.take(2 * a);
            ledger.give(2 * a);
        }
        if level == Level::Full {
            ledger.matmul(x, weight, a);
            ledger.matmul(x, weight, a);
        }
        ledger.matmul(x, weight, a);
        // a, b and dh become da, db and h in place.
        let held = match level {
            _ if operator == Operator::Plain => 6,
            Level::Keep => 4,
            Level::Elementwise | Level::Full => 3,
        };
        ledger.give(held * a);
        ledger.take(3 * a);
        let gradient = |ledger: &mut Ledger, rows: u64| {
            ledger.matmul(rows, a, weight);
            ledger.give(weight);
            ledger.now.gradients += weight;
        };
        gradient(ledger, x);
        // h and g are freed.
        ledger.give(a + x);
        gradient(ledger, x);
        ledger.matmul(a, weight, x);
        ledger.give(a);
        gradient(ledger, x);
        ledger.matmul(a, weight, x);
        ledger.give(x);
        ledger.give(a);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_keeps_what_the_table_says() {
        // N = 10, H = 4, I = 6, fp32: x is 160 bytes, a is 240.
        let sizes = Sizes::new(10, 4, 6, 4);
        let kept = Level::ALL.map(|level| sizes.kept_with_input(level, Operator::Custom));
        assert_eq!(kept, [160 + 3 * 240, 160 + 2 * 240, 160]);
    }
}

//! [`Cost`]: what an operator, or a part of a network made of operators, costs in memory and arithmetic.
//!
//! Each operator derives its own from its code; [`Cost::sequence`], [`Cost::fan`], [`Cost::residual`] and
//! [`Cost::recomputed`] give those of what is made of several. An operator's bytes do not count its input x and
//! the gradient g of its result: they exist before it, and the operators around it made them.
//!
//! ```text
//!                       forward                           backward
//! before                x                                 x where it is held, kept, g
//! at its highest        x + forward                       x + backward + g
//! after                 x where it is held, kept, y       dx, and the gradients of its parameters
//! ```

mod by_field;
mod moment;
mod setting;
mod tensors;
#[cfg(test)]
mod tests;
mod work;

pub use moment::{Flops, Moment};
pub use setting::{Setting, Trained, WeightCost};
pub use tensors::{SMALL, Tensors};
pub use work::{Passes, Work, Works};

use super::name::OperatorName;

/// See the module; all but the FLOPs, the works and the number of parameters are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// x, and its gradient.
    pub input: u64,
    /// y, and its gradient.
    pub output: u64,
    /// Whether x stays until backward.
    pub holds_input: bool,
    /// From forward to backward, besides x.
    pub kept: u64,
    /// The highest moment of forward when what backward needs is kept, and when nothing is.
    pub forward: Moment,
    pub passing: Moment,
    /// The highest moment of backward; what is kept counts as long as it is there.
    pub backward: Moment,
    /// Numbers in parameters; their bytes as stored, of their gradients, and of casts that serve all micro-batches.
    pub parameters: u64,
    /// Of those that are trained, and in the largest trained one.
    pub trained: Tensors,
    pub largest: u64,
    pub weights: u64,
    pub gradients: u64,
    pub casts: u64,
    pub flops: Flops,
    /// By operator; each sets its own with [`named`](Self::named).
    pub works: Works,
}

impl Cost {
    /// An operator whose moments are the same where nothing is kept.
    pub fn new(forward: Moment, backward: Moment) -> Self {
        Self { forward, passing: forward, backward, ..Self::default() }
    }

    /// An operator after the other. The first one's input is that of the whole.
    pub fn sequence(parts: &[Self]) -> Self {
        Self::chain(parts, true)
    }

    /// `g_ends`: whether the gradient of the result is free after the last operator's backward.
    fn chain(parts: &[Self], g_ends: bool) -> Self {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Self::default() };
        // What each one reads is what the one before it made; the first one's input is the whole's.
        let input = |i: usize| if i == 0 { 0 } else { parts[i - 1].output };
        let held = |i: usize| if parts[i].holds_input { input(i) } else { 0 };
        let mut kept_before = vec![0];
        for (i, part) in parts.iter().enumerate() {
            kept_before.push(kept_before[i] + part.kept + held(i));
        }
        let mut cost = Self {
            input: first.input,
            output: last.output,
            holds_input: first.holds_input,
            kept: kept_before[parts.len()],
            ..Self::default()
        };
        let mut gradients = 0;
        for (i, part) in parts.iter().enumerate().rev() {
            let (before, x) = (Moment::kept(kept_before[i]), Moment::workspace(input(i)));
            // The input of the whole is free where no operator holds it.
            let gone = if i > 0 && !first.holds_input { first.input } else { 0 };
            cost.forward = Moment::highest([(before + x + part.forward).less(gone), cost.forward]);
            cost.passing = Moment::highest([(x + part.passing).less(gone), cost.passing]);
            let (g, gone) = match i + 1 == parts.len() {
                true => (0, 0),
                false => (part.output, if g_ends { last.output } else { 0 }),
            };
            let there = before + Moment { kept: held(i), gradients, workspace: g };
            cost.backward = Moment::highest([(there + part.backward).less(gone), cost.backward]);
            gradients += part.gradients;
        }
        cost.total_of(parts)
    }

    /// With the parameters and FLOPs of all parts.
    fn total_of(mut self, parts: &[Self]) -> Self {
        for part in parts {
            self.parameters += part.parameters;
            self.trained = self.trained + part.trained;
            self.largest = self.largest.max(part.largest);
            self.weights += part.weights;
            self.gradients += part.gradients;
            self.casts += part.casts;
            self.flops = self.flops + part.flops;
            self.works = self.works + part.works;
        }
        self
    }

    /// Operators of one input, whose results lie side by side; in backward their gradients of the input are added.
    pub fn fan(parts: &[Self]) -> Self {
        let Some(first) = parts.first() else { return Self::default() };
        let output = parts.iter().map(|part| part.output).sum();
        let mut cost = Self {
            input: first.input,
            output,
            holds_input: parts.iter().any(|part| part.holds_input),
            ..Self::default()
        };
        let (mut results, mut gradients, mut dx) = (0, 0, 0);
        for part in parts {
            let there = Moment::workspace(results);
            cost.forward = Moment::highest([cost.forward, Moment::kept(cost.kept) + there + part.forward]);
            cost.passing = Moment::highest([cost.passing, there + part.passing]);
            cost.kept += part.kept;
            results += part.output;
        }
        let mut kept = cost.kept;
        let mut left = output;
        for part in parts.iter().rev() {
            kept -= part.kept;
            let there = Moment { kept, gradients, workspace: dx };
            // The gradients of other results are free when their operators have run.
            cost.backward = Moment::highest([cost.backward, (there + part.backward).less(output - left)]);
            gradients += part.gradients;
            left -= part.output;
            dx = part.input;
        }
        cost.total_of(parts)
    }

    /// x + f(x) in x's type, f being these operators one after the other.
    pub fn residual(parts: &[Self]) -> Self {
        let Some(last) = parts.last() else { return Self::default() };
        let mut parts = parts.to_vec();
        let x = parts[0].input;
        // The gradient of the sum is that of x and of f(x); in another type it is cast for f(x).
        if last.output != x {
            let cast = Moment::workspace(last.output);
            let end = parts.last_mut().expect("there is one");
            end.backward = end.backward + cast;
        }
        let branch = Self::chain(&parts, false);
        let sum = Moment::workspace(branch.output + x);
        let bytes = |bytes: u64| Work { bytes: bytes as f64, ..Work::default() };
        let both = bytes(x + branch.output + x);
        // Where the types are the same, the gradient is handed on as it is.
        let backward = bytes(if branch.output == x { 0 } else { x + branch.output });
        let own = Passes { forward: both, passing: both, backward, ..Passes::default() };
        Self {
            works: branch.works + Works::new(OperatorName::Residual, own),
            output: x,
            forward: Moment::highest([branch.forward, Moment::kept(branch.kept) + sum]),
            passing: Moment::highest([branch.passing, sum]),
            ..branch
        }
    }

    /// Two operators without an input whose results are added, as those of two tables.
    #[must_use]
    pub fn sum(one: Self, other: Self) -> Self {
        let result = Moment::workspace(one.output);
        let cost = Self {
            output: one.output,
            kept: one.kept + other.kept,
            forward: Moment::highest([one.forward, result + other.forward]),
            passing: Moment::highest([one.passing, result + other.passing]),
            backward: Moment::highest([other.backward, Moment::gradients(other.gradients) + one.backward]),
            ..Self::default()
        };
        cost.total_of(&[one, other])
    }

    /// Keeps x alone: backward computes forward again, and then what it differentiates.
    #[must_use]
    pub fn recomputed(self) -> Self {
        let Flops { forward, backward, recompute } = self.flops;
        Self {
            holds_input: true,
            kept: 0,
            forward: self.passing,
            backward: Moment::highest([self.forward, self.backward]),
            flops: Flops { forward, backward, recompute: recompute + forward },
            works: self.works.recomputed(),
            ..self
        }
    }
}

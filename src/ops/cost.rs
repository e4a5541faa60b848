//! [`Cost`]: what an operator, or a part of a network made of operators, costs in memory and arithmetic.
//!
//! Each operator derives its own cost from its code. [`Cost::sequence`], [`Cost::fan`], [`Cost::residual`] and
//! [`Cost::recomputed`] combine the costs of several. The bytes of an operator do not count its input x and the
//! gradient g of its result: the operators around it made them, so they exist before it runs.
//!
//! ```text
//!                       forward                           backward
//! before                x                                 x where it is held, kept, g
//! at its highest        x + forward                       x + backward + g
//! after                 x where it is held, kept, y       dx, and the gradients of its parameters
//! ```

mod by_field;
mod kept_by;
mod moment;
mod network;
mod setting;
mod tensors;
#[cfg(test)]
mod tests;
mod work;

pub use kept_by::KeptBy;
pub use moment::{Flops, Moment, Sent};
pub use network::{BlockCosts, Operators, each_once};
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
    /// Whether x stays until backward, and for which operator: `None` where backward computes all of them again.
    pub holds_input: bool,
    pub holder: Option<OperatorName>,
    /// Bytes kept from forward to backward, besides x; and those of each named operator.
    pub kept: u64,
    pub kept_by: KeptBy,
    /// The highest moment of forward when what backward needs is kept, and when nothing is.
    pub forward: Moment,
    pub passing: Moment,
    /// The highest moment of backward; what is kept counts as long as it is there.
    pub backward: Moment,
    /// Numbers in parameters; their bytes as stored, of their gradients, and of casts that serve all micro-batches.
    pub parameters: u64,
    /// The trained parameters, and the numbers in the largest of them.
    pub trained: Tensors,
    pub largest: u64,
    pub weights: u64,
    pub gradients: u64,
    pub casts: u64,
    pub flops: Flops,
    /// Kernels of an operator in forward and in backward on a GPU, besides casts of weights.
    pub launches: [u32; 2],
    pub sent: Sent,
    /// The work of each operator, which sets its own with [`named`](Self::named).
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
        let held =
            |i: usize| Moment::kept_by(parts[i].holder, if parts[i].holds_input { input(i) } else { 0 });
        let mut kept_before = vec![Moment::default()];
        for (i, part) in parts.iter().enumerate() {
            kept_before.push(kept_before[i] + part.keeps() + held(i));
        }
        let Moment { kept, by: kept_by, .. } = kept_before[parts.len()];
        let mut cost = Self {
            input: first.input,
            output: last.output,
            holds_input: first.holds_input,
            holder: first.holder,
            kept,
            kept_by,
            ..Self::default()
        };
        let mut gradients = 0;
        for (i, part) in parts.iter().enumerate().rev() {
            let (before, x) = (kept_before[i], Moment::workspace(input(i)));
            // The input of the whole is free where no operator holds it.
            let gone = if i > 0 && !first.holds_input { first.input } else { 0 };
            cost.forward = Moment::highest([(before + x + part.forward).less(gone), cost.forward]);
            cost.passing = Moment::highest([(x + part.passing).less(gone), cost.passing]);
            let (g, gone) = match i + 1 == parts.len() {
                true => (0, 0),
                false => (part.output, if g_ends { last.output } else { 0 }),
            };
            let there = before + held(i) + Moment::gradients(gradients) + Moment::workspace(g);
            cost.backward = Moment::highest([(there + part.backward).less(gone), cost.backward]);
            gradients += part.gradients;
        }
        cost.total_of(parts)
    }

    /// What stays from forward to backward, besides x.
    fn keeps(&self) -> Moment {
        Moment { kept: self.kept, by: self.kept_by, ..Moment::default() }
    }

    /// Adds the parameters and FLOPs of all parts.
    fn total_of(mut self, parts: &[Self]) -> Self {
        for part in parts {
            self.parameters += part.parameters;
            self.trained = self.trained + part.trained;
            self.largest = self.largest.max(part.largest);
            self.weights += part.weights;
            self.gradients += part.gradients;
            self.casts += part.casts;
            self.flops = self.flops + part.flops;
            self.sent = self.sent + part.sent;
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
            holder: parts.iter().find(|part| part.holds_input).and_then(|part| part.holder),
            ..Self::default()
        };
        let (mut results, mut gradients, mut dx) = (0, 0, 0);
        for part in parts {
            let there = Moment::workspace(results);
            cost.forward = Moment::highest([cost.forward, cost.keeps() + there + part.forward]);
            cost.passing = Moment::highest([cost.passing, there + part.passing]);
            cost.kept += part.kept;
            cost.kept_by = cost.kept_by + part.kept_by;
            results += part.output;
        }
        let (mut kept, mut by) = (cost.kept, cost.kept_by);
        let mut left = output;
        for part in parts.iter().rev() {
            kept -= part.kept;
            by = by - part.kept_by;
            let there = Moment { kept, by, gradients, workspace: dx };
            // The gradients of other results are free when their operators have run.
            cost.backward = Moment::highest([cost.backward, (there + part.backward).less(output - left)]);
            gradients += part.gradients;
            left -= part.output;
            dx = part.input;
        }
        cost.total_of(parts)
    }

    /// Operators of one input, one after the other in each branch, whose results are added up in the first one's place.
    /// Each branch gets the gradient of the sum, which somebody else holds.
    pub fn branches(branches: &[&[Self]]) -> Self {
        let parts: Vec<Self> = branches.iter().map(|branch| Self::chain(branch, false)).collect();
        let Some(first) = parts.first() else { return Self::default() };
        let mut cost = Self { output: first.output, ..Self::fan(&parts) };
        let sum = Moment::workspace(2 * first.output);
        (cost.forward, cost.passing) = (Moment::default(), Moment::default());
        let (mut kept, mut there) = (Moment::default(), Moment::default());
        for part in &parts {
            cost.forward = Moment::highest([cost.forward, kept + there + part.forward]);
            cost.passing = Moment::highest([cost.passing, there + part.passing]);
            kept = kept + part.keeps();
            there = Moment::workspace(first.output);
        }
        cost.forward = Moment::highest([cost.forward, kept + sum]);
        cost.passing = Moment::highest([cost.passing, sum]);
        cost.backward = Moment::default();
        let (mut gradients, mut dx) = (0, 0);
        for part in parts.iter().rev() {
            kept = Moment { kept: kept.kept - part.kept, by: kept.by - part.kept_by, ..kept };
            let there = kept + Moment::gradients(gradients) + Moment::workspace(dx);
            cost.backward = Moment::highest([cost.backward, there + part.backward]);
            gradients += part.gradients;
            dx = part.input;
        }
        // The gradients of x are added.
        let added = Moment::gradients(gradients) + Moment::workspace(2 * dx);
        cost.backward = Moment::highest([cost.backward, added]);
        cost
    }

    /// x + f(x) in x's type, f being these operators one after the other. `in_product`: the last one's product adds x to its
    /// result, as [`residual_in_product`](super::residual::residual_in_product) has it; that it reads x is not counted.
    pub fn residual(parts: &[Self], in_product: bool) -> Self {
        let Some(last) = parts.last() else { return Self::default() };
        let mut parts = parts.to_vec();
        let x = parts[0].input;
        // The gradient of the sum is that of x and of f(x); in another type it is cast for f(x).
        if last.output != x {
            let cast = Moment::workspace(last.output);
            let end = parts.last_mut().expect("there is one");
            end.backward = end.backward + cast;
        }
        // The sum reads x at the end, whether or not the first operator holds it.
        let holds_input = std::mem::replace(&mut parts[0].holds_input, true);
        let branch = Self { holds_input, ..Self::chain(&parts, false) };
        if in_product {
            return branch;
        }
        let sum = Moment::workspace(branch.output + x);
        let bytes = |bytes: u64| Work {
            bytes: bytes as f64,
            launches: f64::from(u8::from(bytes > 0)),
            ..Work::default()
        };
        let both = bytes(x + branch.output + x);
        // Where the types are the same, the gradient is handed on as it is.
        let backward = bytes(if branch.output == x { 0 } else { x + branch.output });
        let own = Passes { forward: both, passing: both, backward, ..Passes::default() };
        Self {
            works: branch.works + Works::new(OperatorName::Residual, own),
            output: x,
            forward: Moment::highest([branch.forward, branch.keeps() + sum]),
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
            kept_by: one.kept_by + other.kept_by,
            forward: Moment::highest([one.forward, result + other.forward]),
            passing: Moment::highest([one.passing, result + other.passing]),
            backward: Moment::highest([other.backward, Moment::gradients(other.gradients) + one.backward]),
            ..Self::default()
        };
        cost.total_of(&[one, other])
    }

    /// Without a backward: nothing is held, kept or trained.
    #[must_use]
    pub fn forward_alone(self) -> Self {
        let forward = Moment::workspace(self.passing.total());
        Self { forward, trained: Tensors::default(), largest: 0, casts: 0, ..self.without_backward() }
    }

    /// The cost where backward does not run, since nothing in the operators or before them is trained.
    #[must_use]
    pub fn without_backward(self) -> Self {
        Self {
            holds_input: false,
            holder: None,
            kept: 0,
            kept_by: KeptBy::default(),
            forward: self.passing,
            backward: Moment::default(),
            gradients: 0,
            flops: Flops { forward: self.flops.forward, ..Flops::default() },
            sent: Sent { backward: 0, ..self.sent },
            works: self.works.without_backward(),
            ..self
        }
    }

    /// Keeps x alone: backward computes forward again, and then what it differentiates.
    #[must_use]
    pub fn recomputed(self) -> Self {
        let Flops { forward, backward, recompute } = self.flops;
        Self {
            holds_input: true,
            holder: None,
            kept: 0,
            kept_by: KeptBy::default(),
            forward: self.passing,
            backward: Moment::highest([self.forward, self.backward]),
            flops: Flops { forward, backward, recompute: recompute + forward },
            sent: Sent { backward: self.sent.forward + self.sent.backward, ..self.sent },
            works: self.works.recomputed(),
            ..self
        }
    }
}

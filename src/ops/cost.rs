//! [`Cost`]: what an operator, or a part of a network made of operators, costs in memory and arithmetic.
//!
//! Each operator derives its own from its code; [`Cost::sequence`], [`Cost::fan`], [`Cost::residual`] and
//! [`Cost::recomputed`] give those of what is made of several. An operator's bytes do not count its input x and
//! the gradient g of its result: they are there before it and are what the operators beside it made.
//!
//! ```text
//!                       forward                           backward
//! before                x                                 x where it is held, kept, g
//! at its highest        x + forward                       x + backward + g
//! after                 x where it is held, kept, y       dx, and the gradients of its parameters
//! ```

use std::ops::{Add, Mul};

use serde::{Deserialize, Serialize};

use super::{Level, Ops};
use crate::words::Compute;
use crate::words::DeviceId;

/// What the operators of a network compute on, and how.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub device: DeviceId,
    /// Sequences of a micro-batch and tokens of each.
    pub batch: u64,
    pub sequence: u64,
    /// The squared lengths of all sequences added up.
    pub squares: f64,
    pub compute: Compute,
    /// Bytes of a number as parameters and the sums between blocks are stored.
    pub stored: u64,
    /// Casts of weights serve all micro-batches of a step: no operator keeps its own.
    pub keeps_casts: bool,
    pub ops: Ops,
    pub level: Level,
}

impl Setting {
    pub fn tokens(&self) -> u64 {
        self.batch * self.sequence
    }

    /// Bytes of a number in a product.
    pub fn element(&self) -> u64 {
        self.compute.bytes()
    }

    pub fn on_cuda(&self) -> bool {
        self.device != DeviceId::Cpu
    }

    /// Bytes of [tokens, columns] in the compute type.
    pub fn activation(&self, columns: u64) -> u64 {
        self.tokens() * columns * self.element()
    }

    /// Bytes of [tokens, columns] in fp32.
    pub fn wide(&self, columns: u64) -> u64 {
        self.tokens() * columns * 4
    }

    /// A weight matrix of this shape.
    pub fn weight(&self, shape: [u64; 2]) -> WeightCost {
        let cast = if self.stored == self.element() { 0 } else { self.device.padded(shape, self.element()) };
        let (kept_cast, cast) = if self.keeps_casts { (cast, 0) } else { (0, cast) };
        let elements = shape[0] * shape[1];
        let gradient = elements * self.stored;
        WeightCost { elements, bytes: self.device.padded(shape, self.stored), gradient, cast, kept_cast }
    }

    /// What a product of operands of `lhs` and `rhs` elements in the compute type takes for a moment besides its
    /// result of `out` elements, in that type or `wide`, in fp32.
    ///
    /// The CPU zeroes a result in one buffer and moves it to an aligned one. It widens operands to the result's
    /// type, and multiplies bf16 in fp32 copies of all three.
    pub fn product(&self, lhs: u64, rhs: u64, out: u64, wide: bool) -> u64 {
        match (self.device, self.compute) {
            (DeviceId::Cuda(_), _) => 0,
            (DeviceId::Cpu, Compute::Fp32 | Compute::Tf32) => 4 * out,
            (DeviceId::Cpu, _) if wide => 4 * (lhs + rhs + out),
            (DeviceId::Cpu, Compute::Bf16) => 4 * (lhs + rhs) + 6 * out,
            (DeviceId::Cpu, Compute::Fp16) => 2 * out,
        }
    }
}

/// Bytes of a weight matrix.
#[derive(Clone, Copy, Debug)]
pub struct WeightCost {
    pub elements: u64,
    /// As it is stored.
    pub bytes: u64,
    pub gradient: u64,
    /// Its copy in the compute type under autocast, as an operator keeps it until its backward,
    pub cast: u64,
    /// or as it serves all micro-batches.
    pub kept_cast: u64,
}

/// Bytes at a moment, by what holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Kept from forward to backward.
    pub kept: u64,
    pub gradients: u64,
    pub workspace: u64,
}

impl Moment {
    pub fn kept(bytes: u64) -> Self {
        Self { kept: bytes, ..Self::default() }
    }

    pub fn gradients(bytes: u64) -> Self {
        Self { gradients: bytes, ..Self::default() }
    }

    pub fn workspace(bytes: u64) -> Self {
        Self { workspace: bytes, ..Self::default() }
    }

    pub fn total(self) -> u64 {
        self.kept + self.gradients + self.workspace
    }

    /// Without bytes that were counted and are free.
    pub fn less(self, bytes: u64) -> Self {
        let kept = self.kept.saturating_sub(bytes.saturating_sub(self.workspace));
        Self { workspace: self.workspace.saturating_sub(bytes), kept, ..self }
    }

    /// The moment with the most bytes.
    pub fn highest(moments: impl IntoIterator<Item = Self>) -> Self {
        moments.into_iter().max_by_key(|moment| moment.total()).unwrap_or_default()
    }
}

impl Add for Moment {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            kept: self.kept + other.kept,
            gradients: self.gradients + other.gradients,
            workspace: self.workspace + other.workspace,
        }
    }
}

/// Floating-point operations, a multiply-add counted as two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    pub forward: f64,
    /// Recomputation not counted.
    pub backward: f64,
    /// What backward repeats of forward.
    pub recompute: f64,
}

impl Flops {
    /// Of products that are differentiated by both operands: backward has two products for each of forward.
    pub fn of_products(forward: f64) -> Self {
        Self { forward, backward: 2.0 * forward, recompute: 0.0 }
    }
}

impl Add for Flops {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            forward: self.forward + other.forward,
            backward: self.backward + other.backward,
            recompute: self.recompute + other.recompute,
        }
    }
}

impl Mul<f64> for Flops {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        let Self { forward, backward, recompute } = self;
        Self { forward: forward * times, backward: backward * times, recompute: recompute * times }
    }
}

/// See the module; all but the FLOPs and the number of parameters are bytes.
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
    pub backward: Moment,
    /// Numbers in parameters; their bytes as stored, of their gradients, and of casts that serve all micro-batches.
    pub parameters: u64,
    /// Of those in the largest one.
    pub largest: u64,
    pub weights: u64,
    pub gradients: u64,
    pub casts: u64,
    pub flops: Flops,
}

impl Cost {
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
            // The whole's input is free where nobody holds it.
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
            self.largest = self.largest.max(part.largest);
            self.weights += part.weights;
            self.gradients += part.gradients;
            self.casts += part.casts;
            self.flops = self.flops + part.flops;
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
        Self {
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
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x and y of 10 bytes, x and 100 bytes kept, 130 at once in forward, 150 in backward, gradients of 7.
    fn operator() -> Cost {
        let forward = Moment::workspace(130);
        Cost {
            input: 10,
            output: 10,
            holds_input: true,
            kept: 100,
            forward,
            passing: forward,
            backward: Moment::workspace(150),
            gradients: 7,
            ..Cost::default()
        }
    }

    fn moments(cost: Cost) -> [u64; 4] {
        [cost.kept, cost.forward.total(), cost.passing.total(), cost.backward.total()]
    }

    #[test]
    fn a_sequence_by_hand() {
        let two = Cost::sequence(&[operator(), operator()]);
        // Kept: 100 twice and the second one's input. Forward: the first one's 100, the second one's input and
        // 130. Nothing kept: that input and 130. Backward: 100 of the first, the second one's input and 150.
        assert_eq!(moments(two), [210, 240, 140, 260]);
        assert_eq!((two.gradients, two.input, two.output), (14, 10, 10));
        // The first one's backward is higher: 7 bytes of gradients, 10 of g in the place of the whole's, 450.
        let steep = Cost { backward: Moment::workspace(450), ..operator() };
        assert_eq!(Cost::sequence(&[steep, operator()]).backward.total(), 457);
    }

    #[test]
    fn an_input_that_nobody_holds_is_free_for_the_next_operator() {
        let loose = Cost { holds_input: false, ..operator() };
        // 240 less the 10 of the whole's input, which the caller counts.
        assert_eq!(moments(Cost::sequence(&[loose, operator()])), [210, 230, 130, 260]);
        assert_eq!(moments(Cost::sequence(&[operator(), loose])), [200, 240, 140, 250]);
    }

    #[test]
    fn a_residual_by_hand() {
        let of = |part: Cost| moments(Cost::residual(&[part]));
        // After f: 100 kept, f(x) and the sum.
        assert_eq!(of(Cost { forward: Moment::workspace(110), ..operator() })[1], 120);
        assert_eq!(of(operator()), [100, 130, 130, 150]);
        // f(x) in half the bytes: its gradient is a cast of 5 bytes.
        assert_eq!(of(Cost { output: 5, ..operator() })[3], 155);
        // g stays while the first of two operators has its turn: 7 + 10 + 450.
        let steep = Cost { backward: Moment::workspace(450), ..operator() };
        assert_eq!(Cost::residual(&[steep, operator()]).backward.total(), 467);
    }

    #[test]
    fn a_fan_by_hand() {
        let fan = Cost::fan(&[operator(), operator(), operator()]);
        // Forward: 200 kept, two results, 130. Nothing kept: two results and 130. Backward begins with the last:
        // 200 of the others and 150; the input is there already.
        assert_eq!(moments(fan), [300, 350, 150, 350]);
        assert_eq!((fan.input, fan.output, fan.gradients), (10, 30, 21));
    }

    #[test]
    fn what_is_computed_again_keeps_its_input_alone() {
        let two = Cost::sequence(&[operator(), operator()]).recomputed();
        assert!(two.holds_input);
        assert_eq!(moments(two), [0, 140, 140, 260]);
        let flops = Flops { forward: 3.0, backward: 6.0, recompute: 1.0 };
        assert_eq!(Cost { flops, ..operator() }.recomputed().flops.recompute, 4.0);
    }
}

//! [`Works`]: what each operator must do at the least, from which the floor of its time follows.

use std::ops::{Add, Index, IndexMut, Mul};

use strum::EnumCount;

use super::by_field::by_field;
use super::{Cost, KeptBy, Setting};
use crate::measure::Phase;
use crate::ops::name::OperatorName;

/// Operations, a multiply-add counted as two, bytes read and written, and kernels that a GPU is given for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    pub operations: f64,
    pub bytes: f64,
    pub launches: f64,
}

/// The work of an operator in the phases of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passes {
    /// When what backward needs is kept, and when nothing is.
    pub forward: Work,
    pub passing: Work,
    /// Includes what backward recomputes.
    pub backward: Work,
    pub optimizer: Work,
}

/// The work of every operator, by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Works([Passes; OperatorName::COUNT]);

impl Cost {
    /// The same cost, with its work and what it keeps under the operator `name`. Each tensor that the operator takes,
    /// gives, keeps or reads as a weight crosses memory once in each direction of the network. No order of its operations
    /// needs less, but a cache may, or a kernel that computes it together with its neighbours.
    #[must_use]
    pub fn named(mut self, name: OperatorName, setting: &Setting) -> Self {
        let table = if self.flops.forward > 0.0 { self.weights } else { self.weights.min(self.output) };
        // What is multiplied in another type is read in that: a cast that is kept for all micro-batches, or one that
        // forward makes.
        let narrowed = setting.stored != setting.element() && self.flops.forward > 0.0;
        let (read, read_again) = match (narrowed, setting.keeps_casts) {
            (false, _) => (table, if self.flops.forward > 0.0 { table } else { 0 }),
            (true, true) => (self.casts, self.casts),
            (true, false) => (table, 0),
        };
        let held = if self.holds_input { self.input } else { 0 };
        // A forward that makes a cast of its own has a kernel more.
        let cast = u32::from(narrowed && !setting.keeps_casts);
        let [forward_launches, backward_launches] = self.launches;
        let work = |operations: f64, bytes: u64, launches: u32| Work {
            operations,
            bytes: bytes as f64,
            launches: f64::from(launches),
        };
        let passing = self.input + read + self.output;
        let gradients = self.output + self.input + self.gradients;
        let flops = self.flops;
        self.works[name] = Passes {
            forward: work(flops.forward, passing + self.kept, forward_launches + cast),
            passing: work(flops.forward, passing, forward_launches + cast),
            backward: work(
                flops.backward + flops.recompute,
                gradients + held + self.kept + read_again,
                backward_launches,
            ),
            ..Passes::default()
        };
        Self {
            holder: Some(name),
            kept_by: KeptBy::of(Some(name), self.kept),
            forward: self.forward.named(name),
            passing: self.passing.named(name),
            backward: self.backward.named(name),
            ..self
        }
    }
}

impl Passes {
    pub fn of(&self, phase: Phase) -> Work {
        match phase {
            Phase::Forward => self.forward,
            Phase::Backward => self.backward,
            Phase::Optimizer => self.optimizer,
        }
    }
}

impl Works {
    pub fn new(name: OperatorName, passes: Passes) -> Self {
        let mut works = Self::default();
        works[name] = passes;
        works
    }

    /// The work where the operators keep nothing and backward computes them again.
    #[must_use]
    pub fn recomputed(self) -> Self {
        let again = |of: Passes| Passes { forward: of.passing, backward: of.forward + of.backward, ..of };
        Self(self.0.map(again))
    }

    /// The work where the operators have no backward.
    #[must_use]
    pub fn without_backward(self) -> Self {
        Self(self.0.map(|of| Passes { forward: of.passing, backward: Work::default(), ..of }))
    }
}

impl Index<OperatorName> for Works {
    type Output = Passes;

    fn index(&self, name: OperatorName) -> &Passes {
        &self.0[name as usize]
    }
}

impl IndexMut<OperatorName> for Works {
    fn index_mut(&mut self, name: OperatorName) -> &mut Passes {
        &mut self.0[name as usize]
    }
}

by_field!(Add for Work { operations, bytes, launches });
by_field!(Mul<f64> for Work { operations, bytes, launches });
by_field!(Add for Passes { forward, passing, backward, optimizer });
by_field!(Mul<f64> for Passes { forward, passing, backward, optimizer });

impl Add for Works {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
}

impl Mul<f64> for Works {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self(self.0.map(|passes| passes * times))
    }
}

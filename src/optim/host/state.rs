//! [`HostParameters`]: a buffer's master weights and the state of its rule, and the [`Work`] that is done with them.

use burn::tensor::DType;
use rayon::prelude::*;

use crate::device::HostMemory;
use crate::device::elements::{round, widen};
use crate::measure::alloc::{Room, Uncounted};
use crate::optim::{Kept, StepSize, Visit, seed_of_rank};

/// Elements that one thread works on at a time: 1 MiB of each fp32 array.
pub const CHUNK: usize = 1 << 18;

/// Makes what a rule keeps of so many parameters, or says that there is not so much room.
pub type HostRule = Box<dyn Fn(usize, &Room) -> Result<Box<dyn HostState>, String> + Send>;

/// What a rule keeps of a buffer's parameters, apart from their master weights.
pub trait HostState: Send {
    /// One step on the threads of the current rayon pool. `buffer` holds gradients of `dtype`, which are
    /// multiplied by the step's factor, and then the new weights.
    fn step(&mut self, dtype: DType, buffer: &mut [u8], master: &mut [f32], step: HostStep);

    /// As [`State::set_number`](crate::optim::State::set_number).
    fn set_number(&mut self, _number: u32) {}

    /// All that it keeps between steps.
    fn visit(&mut self, visit: &mut Visit);
}

/// What is done with a buffer and the state of its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// It begins with so many weights of this type: they become the master weights.
    Adopt { elements: usize, dtype: DType },
    /// It holds gradients: one step, and it holds the new weights.
    Step(HostStep),
    /// Whatever it holds: it gets the weights.
    Restore,
}

/// The factors of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostStep {
    /// The learning rate.
    pub rate: f64,
    /// What every gradient is multiplied by.
    pub clip: f32,
    /// Seeds the random rounding.
    pub seed: u64,
}

impl HostStep {
    /// As [`StepSize::FULL`].
    pub const FULL: Self = Self { rate: 1.0, clip: 1.0, seed: 0 };
}

impl Work {
    /// A step of this size; `None` if it is not to be applied. Waits for the norm of the gradients if that decides.
    pub fn step(size: &StepSize) -> Option<Self> {
        let step = || HostStep { rate: size.rate, clip: size.clip_on_host(), seed: size.seed };
        size.applied_on_host().then(|| Self::Step(step()))
    }

    /// As [`StepSize::on_rank`].
    #[must_use]
    pub fn on_rank(self, rank: usize) -> Self {
        match self {
            Self::Step(step) => Self::Step(HostStep { seed: seed_of_rank(step.seed, rank), ..step }),
            other => other,
        }
    }
}

/// fp32 master weights, in memory, or files, that the device's figures leave out, and the rule's own state.
pub struct HostParameters {
    dtype: DType,
    master: Uncounted,
    rule: Box<dyn HostState>,
}

impl HostParameters {
    /// The parameters of a buffer that begins with `elements` elements of `dtype`.
    ///
    /// # Errors
    /// When there is not so much room.
    pub fn new(rule: &HostRule, elements: usize, dtype: DType, room: &Room) -> Result<Self, String> {
        Ok(Self { dtype, master: room.take(4 * elements)?, rule: rule(elements, room)? })
    }

    /// As [`State::set_number`](crate::optim::State::set_number).
    pub fn set_number(&mut self, number: u32) {
        self.rule.set_number(number);
    }

    /// All that is kept between steps.
    pub fn visit(&mut self, visit: &mut Visit) {
        visit("master", Kept::Bytes(&mut self.master));
        self.rule.visit(visit);
    }

    /// Does the work on the threads of the current rayon pool.
    ///
    /// # Panics
    /// When the buffer is smaller than its state's parameters.
    pub fn apply(&mut self, work: Work, buffer: &mut dyn HostMemory) {
        let dtype = self.dtype;
        let master = bytemuck::cast_slice_mut::<u8, f32>(&mut self.master);
        let buffer = &mut buffer.bytes_mut()[..master.len() * dtype.size()];
        let parts = buffer.par_chunks_mut(CHUNK * dtype.size()).zip(master.par_chunks_mut(CHUNK));
        match work {
            Work::Adopt { .. } => parts.for_each(|(buffer, master)| widen(dtype, buffer, master)),
            Work::Restore => parts.for_each(|(buffer, master)| round(dtype, master, buffer)),
            Work::Step(step) => self.rule.step(dtype, buffer, master, step),
        }
    }
}

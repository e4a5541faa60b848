//! [`Watch`]: who follows a cell while it runs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::protocol::{Advance, StepRecord};

/// What is asked of a cell besides its measurement.
pub struct Watch<'a> {
    /// File for the trace of one more step, which the first rank writes.
    pub trace: Option<&'a Path>,
    /// Whether each rank reports its part of the loss, and the norm of gradients that an update needs.
    pub logged: bool,
    /// Called with 0 when the device begins to prepare, and then with the number of matrix products tuned so far.
    pub on_tuned: fn(usize),
    /// Called before the first step and after each.
    pub on_step: &'a mut dyn FnMut(Advance),
    /// Set where the cell is to save its state and end. A cell without states goes on.
    pub stop: &'a AtomicBool,
}

impl Watch<'_> {
    /// The same, for what lives shorter.
    pub(super) fn borrowed(&mut self) -> Watch<'_> {
        let Self { trace, logged, on_tuned, on_step, stop } = self;
        Watch { trace: *trace, logged: *logged, on_tuned: *on_tuned, on_step: &mut **on_step, stop }
    }

    pub(super) fn step(&mut self, done: usize, of: usize, record: Option<StepRecord>) {
        (self.on_step)(Advance::Step { done, of, record });
    }

    pub(super) fn is_asked_to_stop(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

//! [`Recorder`]: when a rank did what in its last step.

use super::schedule::Action;
use crate::device::{Moment, Timer};
use crate::measure::{Span, StageTime};
use crate::words::DeviceId;

/// Follows the actions of a step, as the device carries them out. Times are on a clock that all ranks of a host share.
pub struct Recorder {
    /// Of this rank's stages by themselves.
    pub times: Vec<StageTime>,
    pub(super) timer: Timer,
    since: Option<Moment>,
    actions: Vec<(Action, [Moment; 2])>,
}

impl Recorder {
    pub fn new(device: DeviceId) -> Self {
        Self { times: Vec::new(), timer: Timer::new(device), since: None, actions: Vec::new() }
    }

    /// Forgets the step before.
    pub fn begin_step(&mut self) {
        self.actions.clear();
    }

    /// An action begins.
    pub fn begin(&mut self) {
        self.since = Some(self.timer.now());
    }

    /// It has ended.
    ///
    /// # Panics
    /// Where none has begun.
    pub fn end(&mut self, action: Action) {
        let since = self.since.take().expect("an action has begun");
        self.actions.push((action, [since, self.timer.now()]));
    }

    /// The last step, on the host's clock.
    pub fn spans(&self) -> Vec<Span> {
        let seconds = self.timer.seconds(self.actions.iter().flat_map(|(_, moments)| moments));
        let span = |((action, _), times): (&(Action, [Moment; 2]), &[f64])| Span {
            action: action.to_string(),
            start: times[0],
            end: times[1],
        };
        self.actions.iter().zip(seconds.chunks(2)).map(span).collect()
    }
}

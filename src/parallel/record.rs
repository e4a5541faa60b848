//! [`Recorder`]: the times of a rank's actions in its last step.

use super::schedule::Action;
use crate::common::DeviceId;
use crate::device::{Moment, Timer};
use crate::measure::{Span, StageTime};

/// Notes when the device carries out the actions of a step. All ranks of a host share the clock.
pub struct Recorder {
    /// Times of this rank's stages, measured alone.
    pub times: Vec<StageTime>,
    pub(super) timer: Timer,
    since: Option<Moment>,
    actions: Vec<(Action, [Moment; 2])>,
}

impl Recorder {
    pub fn new(device: DeviceId) -> Self {
        Self { times: Vec::new(), timer: Timer::new(device), since: None, actions: Vec::new() }
    }

    /// Forgets the previous step.
    pub fn begin_step(&mut self) {
        self.actions.clear();
    }

    /// An action begins.
    pub fn begin(&mut self) {
        self.since = Some(self.timer.now());
    }

    /// An action has ended.
    ///
    /// # Panics
    /// When none has begun.
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

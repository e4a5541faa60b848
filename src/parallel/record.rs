//! [`Recorder`]: when a rank did what in its last step.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::schedule::Action;
use crate::measure::{Span, StageTime};

/// Follows the actions of a step. Times are on a clock that all ranks of a host share.
pub struct Recorder {
    /// Of this rank's stages by themselves.
    pub times: Vec<StageTime>,
    began: Instant,
    /// Seconds on the host's clock when `began` was 0.
    offset: f64,
    since: f64,
    actions: Vec<(Action, f64, f64)>,
}

impl Recorder {
    pub fn new() -> Self {
        let offset = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Self { times: Vec::new(), began: Instant::now(), offset, since: 0.0, actions: Vec::new() }
    }

    fn now(&self) -> f64 {
        self.offset + self.began.elapsed().as_secs_f64()
    }

    /// Forgets the step before.
    pub fn begin_step(&mut self) {
        self.actions.clear();
    }

    /// An action begins.
    pub fn begin(&mut self) {
        self.since = self.now();
    }

    /// It has ended.
    pub fn end(&mut self, action: Action) {
        let end = self.now();
        self.actions.push((action, self.since, end));
    }

    /// The last step, on the host's clock.
    pub fn spans(&self) -> Vec<Span> {
        let span = |(action, start, end): &(Action, f64, f64)| Span {
            action: action.to_string(),
            start: *start,
            end: *end,
        };
        self.actions.iter().map(span).collect()
    }
}

//! What the host does for a step besides driving the device, such as updates of its own: noted while a recording runs.

use std::sync::Mutex;
use std::time::Instant;

use crate::common::locked;

/// Start and end of each; `None` while nothing is recorded.
static NOTED: Mutex<Option<Vec<(Instant, Instant)>>> = Mutex::new(None);

/// Notes that the host worked from `start` until now.
pub fn note_host_work(start: Instant) {
    if let Some(noted) = &mut *locked(&NOTED) {
        noted.push((start, Instant::now()));
    }
}

/// Begins to note work.
pub fn follow_host_work() {
    *locked(&NOTED) = Some(Vec::new());
}

/// What was noted since then; ends the noting.
pub fn take_host_work() -> Vec<(Instant, Instant)> {
    locked(&NOTED).take().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_noted_during_a_recording_alone() {
        note_host_work(Instant::now());
        follow_host_work();
        let start = Instant::now();
        note_host_work(start);
        let noted = take_host_work();
        assert!(noted.iter().any(|(from, to)| *from == start && to >= from));
        note_host_work(Instant::now());
        assert!(take_host_work().is_empty());
    }
}

//! [`HostRecording`]: a recording of what the CPU computes. Operators run when they are called, so the host's clock at
//! the ends of their scopes gives their time.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::scope::{Follower, follow};
use super::{Activity, ActivityKind, Mark};
use crate::common::locked;

/// Recordings of a process wait for each other.
static TURN: Mutex<()> = Mutex::new(());
static RECORDING: Mutex<Option<Arc<HostRecording>>> = Mutex::new(None);

/// Records the time of each operator without that of the operators inside of it.
pub struct HostRecording {
    origin: Instant,
    spans: Mutex<Spans>,
}

#[derive(Default)]
struct Spans {
    /// The scopes that are open, the innermost last.
    open: Vec<&'static str>,
    /// When the innermost one began or went on.
    since: u64,
    done: Vec<Activity>,
}

impl HostRecording {
    /// The operators that run during `work`, in the order of their ends.
    pub fn of(work: impl FnOnce()) -> Vec<Activity> {
        let _turn = locked(&TURN);
        let own = Arc::new(Self { origin: Instant::now(), spans: Mutex::default() });
        *locked(&RECORDING) = Some(own.clone());
        follow(Some(own.clone()));
        work();
        follow(None);
        *locked(&RECORDING) = None;
        let mut spans = locked(&own.spans);
        std::mem::take(&mut spans.done)
    }

    /// Notes a mark; without a recording it does nothing.
    pub fn mark(mark: Mark) {
        if let Some(own) = &*locked(&RECORDING) {
            let now = own.now();
            locked(&own.spans).done.push(Activity::new(ActivityKind::Mark, mark.name(), [now; 2]));
        }
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Spans {
    /// Ends the innermost scope's time so far.
    fn close(&mut self, now: u64) {
        let since = std::mem::replace(&mut self.since, now);
        if let Some(operator) = self.open.last().filter(|_| now > since) {
            let kernel = Activity::new(ActivityKind::Kernel, *operator, [since, now]);
            self.done.push(Activity { operator: Some((*operator).into()), ..kernel });
        }
    }
}

impl Follower for HostRecording {
    fn enter(&self, operator: &'static str) {
        let mut spans = locked(&self.spans);
        spans.close(self.now());
        spans.open.push(operator);
    }

    fn leave(&self) {
        let mut spans = locked(&self.spans);
        spans.close(self.now());
        spans.open.pop();
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;
    use crate::measure::Phase;
    use crate::measure::trace::Scope;

    /// A test's own, since other tests run at the same time: 0..10 outer, 10..30 inner, 30..35 outer.
    #[test]
    fn inner_time_is_not_outer_time() {
        let mut spans = Spans::default();
        spans.open.push("outer");
        spans.close(10);
        spans.open.push("inner");
        spans.close(30);
        spans.open.pop();
        spans.close(35);
        spans.open.pop();
        spans.close(50);
        let found: Vec<(&str, u64, u64)> =
            spans.done.iter().map(|a| (a.name.as_str(), a.start, a.end)).collect();
        assert_eq!(found, [("outer", 0, 10), ("inner", 10, 30), ("outer", 30, 35)]);
    }

    /// Other tests of this process are recorded too.
    #[test]
    fn scopes_and_marks_are_recorded_while_a_recording_runs() {
        let found = HostRecording::of(|| {
            let scope = Scope::enter("a test of the recording");
            sleep(Duration::from_millis(5));
            drop(scope);
            HostRecording::mark(Mark::End(Phase::Forward));
        });
        let own = found.iter().find(|a| a.name == "a test of the recording").expect("the scope");
        assert!(own.end - own.start >= 5_000_000, "{own:?}");
        let mark = found.iter().find(|a| a.kind == ActivityKind::Mark).expect("the mark");
        assert_eq!(Mark::of(mark), Some(Mark::End(Phase::Forward)));
        assert!(mark.start >= own.end);
        HostRecording::mark(Mark::End(Phase::Backward));
        assert!(HostRecording::of(|| {}).iter().all(|a| Mark::of(a).is_none()));
    }
}

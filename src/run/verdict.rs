//! From the way a cell's process ended to the status and reason of its row.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use nix::sys::signal::Signal;

use super::executor::Outcome;
use super::protocol::Event;
use crate::recipe::Bytes;
use crate::row::Status;

/// What is known when a process has ended by itself without a measurement.
pub struct Ending<'a> {
    pub exit: ExitStatus,
    /// Its last lines that were no events.
    pub tail: &'a str,
    /// Size of the allocation it was refused.
    pub refused_allocation: Option<u64>,
    /// The limit it ran under, and the name of what set it.
    pub limit: u64,
    pub limit_source: &'a str,
    /// Whether the system has killed a process for want of memory meanwhile.
    pub oom_killer: bool,
}

/// The outcome a final event stands for; `None` for one that is not final.
pub fn of_event(event: Event) -> Option<Outcome> {
    match event {
        Event::Preparing { .. } | Event::Step { .. } => None,
        Event::Done { measurement } => Some(Outcome::Finished(measurement)),
        Event::Diverged { reason } => Some(Outcome::Ended { status: Status::Diverged, reason }),
        Event::OutOfMemory { reason } => Some(Outcome::Ended { status: Status::Oom, reason }),
        Event::Failed { reason } => Some(Outcome::failed(reason)),
    }
}

/// The outcome of an end without a final event.
pub fn of_ending(ending: &Ending) -> Outcome {
    let Ending { exit, tail, refused_allocation, limit, limit_source, oom_killer } = *ending;
    let quoted = if tail.is_empty() { String::new() } else { format!("; its last output:\n{tail}") };
    let oom = |reason| Outcome::Ended { status: Status::Oom, reason };
    match (exit.signal(), refused_allocation) {
        (Some(_), Some(bytes)) => oom(format!(
            "out of memory: an allocation of {bytes} bytes ({}) would have passed the limit of {limit} bytes \
             ({}, {limit_source})",
            Bytes(bytes),
            Bytes(limit),
        )),
        (Some(9), None) if oom_killer => {
            oom("out of memory: the system killed the cell (its OOM killer's count rose)".into())
        }
        (Some(9), None) => {
            Outcome::failed(format!("killed by signal 9 (SIGKILL), not by the runner{quoted}"))
        }
        (Some(signal), None) => {
            let name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
            Outcome::failed(format!("killed by signal {signal} ({name}){quoted}"))
        }
        (None, _) => Outcome::failed(format!(
            "ended with exit code {} and without a result{quoted}",
            exit.code().unwrap_or_default()
        )),
    }
}

/// How often the system has killed a process for want of memory: on the machine (/proc/vmstat)
/// and in this process's control group (v2), whichever of the two there are.
pub fn oom_kills() -> u64 {
    let machine = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let events = Path::new("/sys/fs/cgroup").join(group).join("memory.events");
    let events = fs::read_to_string(events).unwrap_or_default();
    counter(&machine, "oom_kill") + counter(&events, "oom_kill")
}

/// The value of `name` in lines of names and values.
fn counter(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(have, _)| *have == name)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn killed(signal: i32, oom_killer: bool) -> Outcome {
        of_ending(&Ending {
            exit: ExitStatus::from_raw(signal),
            tail: "",
            refused_allocation: None,
            limit: 1,
            limit_source: "",
            oom_killer,
        })
    }

    #[test]
    fn sigkill_is_out_of_memory_only_when_the_systems_count_rose() {
        assert!(matches!(killed(9, true), Outcome::Ended { status: Status::Oom, .. }));
        assert!(matches!(killed(9, false), Outcome::Ended { status: Status::Failed, .. }));
        assert!(matches!(killed(11, true), Outcome::Ended { status: Status::Failed, .. }));
    }

    #[test]
    fn counters_of_the_kernels_files() {
        let events = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(counter(events, "oom_kill"), 2);
        assert_eq!(counter("nr_free_pages 5\n", "oom_kill"), 0);
    }
}

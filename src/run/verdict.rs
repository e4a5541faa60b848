//! The status and reason of a cell's row, from the way its process ended.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use nix::sys::signal::Signal;

use super::executor::Outcome;
use super::ranks::Places;
use crate::common::Bytes;
use crate::device::LESS_MEMORY;
use crate::recipe::Measure;
use crate::row::Status;
use crate::train::protocol::Event;

/// What is known of a process that has ended without a result.
pub struct Ending<'a> {
    pub exit: ExitStatus,
    /// Its last output.
    pub tail: &'a str,
    /// Size of the allocation that was refused, if it has reported one.
    pub refused_allocation: Option<u64>,
    /// Its limit of device memory, and whether `measure.memory_limit` set it.
    pub limit: u64,
    pub of_recipe: bool,
    /// Whether the system has killed a process for want of memory since it began.
    pub oom_killer: bool,
}

/// The outcome of a final event; `None` for others.
pub fn of_event(event: Event) -> Option<Outcome> {
    match event {
        Event::Advance(_) | Event::Lost { .. } => None,
        Event::Done { measurement } => Some(Outcome::Finished(measurement)),
        Event::Diverged { reason } => Some(Outcome::Ended { status: Status::Diverged, reason }),
        Event::OutOfMemory { reason } => Some(Outcome::Ended { status: Status::Oom, reason }),
        Event::Failed { reason } => Some(Outcome::failed(reason)),
        Event::Stopped { step } => Some(Outcome::Stopped { step }),
    }
}

/// How reasons name the ranks of a cell.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    pub ranks: usize,
    /// Where the ranks are, if on several hosts.
    pub places: Option<&'a Places>,
}

impl Names<'_> {
    fn of(&self, rank: usize) -> String {
        let on = self.places.map_or(String::new(), |places| format!(" on {}", places[rank].0));
        format!("rank {rank} of {}{on}", self.ranks)
    }
}

/// The outcome, with the name of the rank that caused it.
pub fn of_rank(rank: usize, names: Names, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Ended { status, reason } if names.ranks > 1 => {
            Outcome::Ended { status, reason: format!("{}: {reason}", names.of(rank)) }
        }
        outcome => outcome,
    }
}

/// The outcome if ranks have lost others and nothing else is known. `lost`: which rank lost which other, and its reason. The
/// cause is a rank that was lost and has lost none itself.
pub fn of_lost(names: Names, lost: &[(usize, usize, String)]) -> Outcome {
    let says_nothing = |peer: usize| lost.iter().all(|(rank, _, _)| *rank != peer);
    let cause = lost.iter().find(|(_, peer, _)| says_nothing(*peer)).or(lost.first());
    let (rank, peer, reason) = cause.expect("a rank is lost");
    Outcome::failed(format!("{} does not answer: rank {rank} says: {reason}", names.of(*peer)))
}

/// Signals that come from outside: from a user, a batch system or a limit.
const OUTSIDE: [Signal; 6] =
    [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGXCPU];
const FIND_OUT: &str = "find out who did, a user or a limit of the job or machine, and run again with \
                        --retry-failed";
const AGAIN: &str = "run again with --retry-failed, and if it ends the same way, report it with the recipe and its \
                     last output";

/// The outcome of an end without a final event.
pub fn of_ending(ending: &Ending) -> Outcome {
    let Ending { exit, tail, refused_allocation, limit, of_recipe, oom_killer } = *ending;
    let quoted = if tail.is_empty() { String::new() } else { format!("; its last output:\n{tail}") };
    let oom = |reason| Outcome::Ended { status: Status::Oom, reason };
    match (exit.signal(), refused_allocation) {
        (Some(_), Some(bytes)) => {
            let (source, advice) = match of_recipe {
                true => ("measure.memory_limit", "raise it"),
                false => (
                    "what the device had free",
                    "free some, or raise what `ulimit -v` or the job allows, if that is less",
                ),
            };
            oom(format!(
                "out of memory: an allocation of {bytes} bytes ({}) would have passed the limit of {limit} bytes \
                 ({}, {source}): {advice}, or {LESS_MEMORY}",
                Bytes(bytes),
                Bytes(limit),
            ))
        }
        (Some(9), None) if oom_killer => oom(killed_for_memory()),
        (Some(number), None) => {
            let signal = Signal::try_from(number).ok();
            let name = signal.map_or("unknown", Signal::as_str);
            let (by, advice) = match signal.is_some_and(|signal| OUTSIDE.contains(&signal)) {
                true => (", not by the runner", FIND_OUT),
                false => ("", AGAIN),
            };
            Outcome::failed(format!("killed by signal {number} ({name}){by}: {advice}{quoted}"))
        }
        (None, _) => Outcome::failed(format!(
            "ended with exit code {} and without a result: {AGAIN}{quoted}",
            exit.code().unwrap_or_default()
        )),
    }
}

/// The reason of a cell that the system's OOM killer has killed.
pub fn killed_for_memory() -> String {
    format!(
        "out of memory: the system killed the cell (its OOM killer's count rose): give the machine or the job more \
         memory, or {LESS_MEMORY}"
    )
}

/// The outcome of a cell that was killed at its time limit of so many seconds.
pub fn of_timeout(seconds: f64, measure: &Measure) -> Outcome {
    let length = if measure.epochs.is_some() { "measure.epochs" } else { "measure.steps" };
    Outcome::failed(format!(
        "exceeded its time limit of {seconds} s: raise measure.timeout, or lower {length} or the cell's sizes"
    ))
}

/// The outcome of a cell whose program cannot be started.
pub fn of_no_start(program: &Path, error: &io::Error) -> Outcome {
    Outcome::failed(format!(
        "cannot start {}: {error}: check that the file is there and may be executed, or build it again, and run \
         again with --retry-failed",
        program.display()
    ))
}

/// The outcome of a cell whose ranks would have no key to know each other by.
pub fn of_no_random(error: &io::Error) -> Outcome {
    Outcome::failed(format!("the system has no random numbers: {error}: make /dev/urandom readable"))
}

/// How often the system has killed a process for want of memory: on the machine (/proc/vmstat) and in this process's
/// control group (v2), if these files exist.
pub fn oom_kills() -> u64 {
    let machine = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let events = Path::new("/sys/fs/cgroup").join(group).join("memory.events");
    let events = fs::read_to_string(events).unwrap_or_default();
    counter(&machine, "oom_kill") + counter(&events, "oom_kill")
}

/// The value of `name` in lines of a name and a value.
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
    use crate::run::testing;

    fn killed(signal: i32, oom_killer: bool) -> Outcome {
        of_ending(&Ending {
            exit: ExitStatus::from_raw(signal),
            tail: "",
            refused_allocation: None,
            limit: 1,
            of_recipe: false,
            oom_killer,
        })
    }

    #[test]
    fn every_ending_says_what_to_change() {
        let exit = ExitStatus::from_raw;
        let ending = |exit, refused_allocation, of_recipe, oom_killer| {
            of_ending(&Ending { exit, tail: "words", refused_allocation, limit: 1, of_recipe, oom_killer })
        };
        let none = io::Error::from(io::ErrorKind::NotFound);
        let steps = testing::recipe().cells.remove(0).measure;
        let epochs = Measure { steps: None, epochs: Some(1), ..steps.clone() };
        for (outcome, advice) in [
            (ending(exit(6), Some(5), true, false), "raise it, or lower train.batch_size"),
            (ending(exit(6), Some(5), false, false), "free some, or raise what `ulimit -v`"),
            (ending(exit(9), None, false, true), "give the machine or the job more memory"),
            (ending(exit(9), None, false, false), "not by the runner: find out who did"),
            (ending(exit(15), None, false, false), "not by the runner: find out who did"),
            (
                ending(exit(11), None, false, false),
                "run again with --retry-failed, and if it ends the same way",
            ),
            (
                ending(exit(0), None, false, false),
                "run again with --retry-failed, and if it ends the same way",
            ),
            (of_timeout(2.5, &steps), "2.5 s: raise measure.timeout, or lower measure.steps"),
            (of_timeout(2.5, &epochs), "or lower measure.epochs"),
            (of_no_start(Path::new("/x"), &none), "or build it again"),
        ] {
            let Outcome::Ended { reason, .. } = outcome else { panic!("an end") };
            assert!(reason.contains(advice), "missing `{advice}` in {reason}");
        }
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

//! [`Ranks`]: the processes of one cell, until it has ended: with all of them, or with the first that fails.

use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use super::child_output::{ChildOutput, Lines, Received};
use super::executor::{Advance, Job, Outcome};
use super::process::{GRACE, POLL};
use super::verdict::{self, Ending, Names};
use crate::train::protocol::{Event, Request};
use crate::world::{Hosts, Seat};

/// The process of a rank, wherever it runs; dropping it kills it.
pub trait Process {
    /// How it ended, once it has.
    fn exited(&mut self) -> Option<ExitStatus>;
    /// Kills what is left of it; where nothing is, there is nothing to do.
    fn kill(&self);
}

/// Starts the process of a rank, whose output goes to the lines; its error is how the cell ends.
pub type Begin<'a> = &'a dyn Fn(usize, &Request, &Lines) -> Result<Box<dyn Process>, Outcome>;

/// Runs a cell in a process for each of its ranks, which are here or on these hosts.
pub fn run(
    job: &Job,
    hosts: Option<&Hosts>,
    begin: Begin,
    on_advance: &mut dyn FnMut(Advance),
    cancel: &AtomicBool,
) -> Outcome {
    let oom_kills = verdict::oom_kills();
    let seats = match job.ranks {
        1 => Ok(vec![None]),
        n => {
            Seat::all(n, job.cell.parallel.timeout, hosts).map(|seats| seats.into_iter().map(Some).collect())
        }
    };
    let seats: Vec<Option<Seat>> = match seats {
        Ok(seats) => seats,
        Err(e) => return Outcome::failed(format!("the system has no random numbers: {e}")),
    };
    let (output, lines) = ChildOutput::of(job.ranks);
    let mut running = Vec::with_capacity(job.ranks);
    for (rank, seat) in seats.into_iter().enumerate() {
        let trace = job.trace.map(Path::to_path_buf);
        let request = Request { cell: job.cell.to_json(), memory_limit: job.memory_limit, trace, seat };
        match begin(rank, &request, &lines) {
            Ok(process) => running.push(process),
            Err(outcome) => return outcome,
        }
    }
    drop(lines);
    let names = Names { ranks: job.ranks, hosts };
    Ranks::new(running, names, output, oom_kills).outcome(job, on_advance, cancel)
}

/// The processes of one cell, by rank.
struct Ranks<'a> {
    running: Vec<Box<dyn Process>>,
    names: Names<'a>,
    output: ChildOutput,
    /// What each rank's last event stands for; the first one counts.
    outcomes: Vec<Option<Outcome>>,
    /// Since when each process is known to have ended.
    exited: Vec<Option<Instant>>,
    /// The first rank that ended badly, by its own words.
    failed: Option<usize>,
    /// Who lost whom, with what it says.
    lost: Vec<(usize, usize, String)>,
    /// Processes that the system had killed for want of memory before these began.
    oom_kills: u64,
}

impl<'a> Ranks<'a> {
    fn new(running: Vec<Box<dyn Process>>, names: Names<'a>, output: ChildOutput, oom_kills: u64) -> Self {
        let (outcomes, exited) = (running.iter().map(|_| None).collect(), vec![None; running.len()]);
        Self { running, names, output, outcomes, exited, failed: None, lost: Vec::new(), oom_kills }
    }

    /// What becomes of the cell.
    fn outcome(mut self, job: &Job, on_advance: &mut dyn FnMut(Advance), cancel: &AtomicBool) -> Outcome {
        // A limit too far away to count is none.
        let mut deadline = Instant::now().checked_add(job.timeout);
        let exit = loop {
            if self.receive(on_advance) {
                deadline = Some(Instant::now() + GRACE);
            }
            if let Some(exit) = self.ended() {
                break exit;
            }
            if cancel.load(Relaxed) {
                return Outcome::Cancelled;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break None;
            }
        };
        self.running.iter().for_each(|process| process.kill());
        let last = Instant::now() + GRACE;
        while Instant::now() < last {
            match self.output.next(POLL) {
                Received::End => break,
                Received::Event(rank, event) => drop(self.note(rank, event, on_advance)),
                Received::Nothing => {}
            }
        }
        self.verdict(job, exit)
    }

    /// Waits for the next line; whether it says that the cell ends.
    fn receive(&mut self, on_advance: &mut dyn FnMut(Advance)) -> bool {
        match self.output.next(POLL) {
            Received::Event(rank, event) => self.note(rank, event, on_advance),
            Received::Nothing => false,
            Received::End => {
                std::thread::sleep(POLL / 5);
                false
            }
        }
    }

    fn note(&mut self, rank: usize, event: Event, on_advance: &mut dyn FnMut(Advance)) -> bool {
        match event {
            Event::Preparing { tuned } => on_advance(Advance::Preparing { tuned }),
            Event::Step { done, of } => on_advance(Advance::Step { done, of }),
            Event::Lost { peer, reason } => {
                self.lost.push((rank, peer, reason));
                return self.lost.len() == 1;
            }
            event => {
                let outcome = verdict::of_event(event);
                let well = matches!(outcome, Some(Outcome::Finished(_)));
                if self.outcomes[rank].is_none() {
                    self.outcomes[rank] = outcome;
                }
                if !well {
                    self.failed = self.failed.or(Some(rank));
                }
                return !well || self.outcomes.iter().all(Option::is_some);
            }
        }
        false
    }

    /// Once no more is to be waited for: the rank whose end says why, with its exit; `Some(None)` where words do.
    fn ended(&mut self) -> Option<Option<(usize, ExitStatus)>> {
        let exits: Vec<_> = self.running.iter_mut().map(|process| process.exited()).collect();
        if self.failed.is_some_and(|rank| exits[rank].is_some()) {
            return Some(None);
        }
        for (since, _) in self.exited.iter_mut().zip(&exits).filter(|(_, exit)| exit.is_some()) {
            since.get_or_insert_with(Instant::now);
        }
        // A rank that has lost another says so before it ends; one without a word is the cause. Its words may be on
        // their way as long as its pipe is open, which another process may keep.
        let silent = |rank: &usize| {
            let told = self.output.ranks[*rank].ended;
            self.exited[*rank].is_some_and(|since| told || since.elapsed() > GRACE)
                && self.outcomes[*rank].is_none()
                && self.lost.iter().all(|(other, _, _)| other != rank)
        };
        match (0..exits.len()).find(silent) {
            Some(rank) => Some(exits[rank].map(|exit| (rank, exit))),
            None => {
                let told = |rank: usize| {
                    self.outcomes[rank].is_some() || self.lost.iter().any(|(r, _, _)| *r == rank)
                };
                (0..exits.len()).all(|rank| exits[rank].is_some() && told(rank)).then_some(None)
            }
        }
    }

    fn verdict(mut self, job: &Job, exit: Option<(usize, ExitStatus)>) -> Outcome {
        let names = self.names;
        if let Some(rank) = self.failed {
            return verdict::of_rank(rank, names, self.outcomes[rank].take().expect("it failed"));
        }
        // A result that came with the last lines counts.
        if let Some((rank, exit)) = exit.filter(|(rank, _)| self.outcomes[*rank].is_none()) {
            let words = &self.output.ranks[rank];
            let ending = Ending {
                exit,
                tail: &words.tail(),
                refused_allocation: words.refused_allocation,
                limit: job.memory_limit,
                of_recipe: job.cell.measure.memory_limit.is_some_and(|bytes| bytes.0 == job.memory_limit),
                oom_killer: verdict::oom_kills() > self.oom_kills,
            };
            return verdict::of_rank(rank, names, verdict::of_ending(&ending));
        }
        if !self.lost.is_empty() {
            return verdict::of_lost(names, &self.lost);
        }
        // The first rank's measurement has those of the others.
        match self.outcomes.swap_remove(0) {
            Some(outcome) => outcome,
            None => verdict::of_timeout(job.timeout.as_secs_f64(), &job.cell.measure),
        }
    }
}

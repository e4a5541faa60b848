//! [`Ranks`]: follows the processes of a cell until all have ended, or the first has failed.

use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::sleep;
use std::time::Instant;

use super::child_output::{ChildOutput, Lines};
use super::executor::{Job, Outcome};
use super::losses::Losses;
use super::process::{GRACE, POLL};
use super::verdict::{self, Ending, Names};
use crate::recipe::Folders;
use crate::train::protocol::{Advance, Event, Request};
use crate::world::{Meeting, Seat};

/// The process of a rank, here or on another host. Dropping it kills it.
pub trait Process {
    /// Its exit status, once it has ended.
    fn exited(&mut self) -> Option<ExitStatus>;
    /// Kills it, unless it has ended.
    fn kill(&self);
    /// Asks it to save its state and end. Only a cell of one rank has states, and that rank is here.
    fn stop(&mut self) {}
}

/// Starts the process of a rank, whose output goes to the lines. The error is the outcome of the cell.
pub type Begin<'a> = &'a dyn Fn(usize, &Request, &Lines) -> Result<Box<dyn Process>, Outcome>;

/// Where ranks are that were started on several hosts, by rank: the name of the host and the rank's number there.
pub type Places = [(String, usize)];

/// Runs each rank of a cell in its own process, here or at `places`.
pub fn run(
    job: &Job,
    meeting: Meeting,
    places: Option<&Places>,
    begin: Begin,
    on_advance: &mut dyn FnMut(Advance),
    cancel: &AtomicBool,
) -> Outcome {
    let oom_kills = verdict::oom_kills();
    let ranks = job.cell.parallel.ranks();
    let (output, lines) = ChildOutput::of(ranks);
    let mut running = Vec::with_capacity(ranks);
    for rank in 0..ranks {
        let local = places.map_or(rank, |places| places[rank].1);
        let (meeting, limit) = (meeting.clone(), job.cell.parallel.timeout);
        let seat = Seat { rank, size: ranks, local, meeting, limit };
        let trace = job.trace.map(Path::to_path_buf);
        let (cell, memory_limit, logged) = (job.cell.to_json(), job.memory_limit, job.cell.log.is_some());
        let request = Request { cell, memory_limit, trace, logged, seat };
        match begin(rank, &request, &lines) {
            Ok(process) => running.push(process),
            Err(outcome) => return outcome,
        }
    }
    drop(lines);
    let names = Names { ranks, places };
    let (outcomes, exited) = ((0..ranks).map(|_| None).collect(), vec![None; ranks]);
    let ranks = Ranks {
        running,
        names,
        output,
        outcomes,
        exited,
        failed: None,
        lost: Vec::new(),
        losses: Losses::of(ranks),
        has_states: Folders::of(job.cell).is_ok_and(|folders| folders.state.is_some()),
        done: 0,
        is_asked_to_stop: false,
        oom_kills,
    };
    ranks.outcome(job, on_advance, cancel)
}

/// The processes of a cell, by rank.
struct Ranks<'a> {
    running: Vec<Box<dyn Process>>,
    names: Names<'a>,
    output: ChildOutput,
    /// By rank: the outcome of its final event; the first one counts.
    outcomes: Vec<Option<Outcome>>,
    /// By rank: when its end was noticed.
    exited: Vec<Option<Instant>>,
    /// The first rank that reported a failure.
    failed: Option<usize>,
    /// Which rank lost which other, and its reason.
    lost: Vec<(usize, usize, String)>,
    losses: Losses,
    /// Whether the cell can save its state.
    has_states: bool,
    /// Steps that the first rank has done.
    done: usize,
    is_asked_to_stop: bool,
    /// How often the system had killed a process for want of memory before these began.
    oom_kills: u64,
}

impl Ranks<'_> {
    /// Waits for the outcome of the cell.
    fn outcome(mut self, job: &Job, on_advance: &mut dyn FnMut(Advance), cancel: &AtomicBool) -> Outcome {
        // A limit too long to count is none.
        let mut deadline = Instant::now().checked_add(job.timeout);
        let (mut ends, mut timed_out) = (false, false);
        let exit = loop {
            match self.receive(on_advance) {
                Ok(true) => {
                    ends = true;
                    deadline = Some(Instant::now() + GRACE);
                }
                Ok(false) => {}
                Err(_) => sleep(POLL / 5),
            }
            if let Some(exit) = self.ended() {
                break exit;
            }
            if cancel.load(Relaxed) {
                for (rank, event) in self.output.ready() {
                    self.note(rank, event, on_advance);
                }
                // A result that is there is kept, also where its process has not ended yet.
                match self.outcomes.iter().all(Option::is_some) {
                    true => break None,
                    false if self.has_states && self.done > 0 => self.ask_to_stop(),
                    false => return Outcome::Cancelled,
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                timed_out = !ends;
                break None;
            }
        };
        self.running.iter().for_each(|process| process.kill());
        let last = Instant::now() + GRACE;
        while Instant::now() < last && self.receive(on_advance).is_ok() {}
        if timed_out {
            // What ranks say of those that were killed before them is no cause.
            return match self.outcomes.swap_remove(0) {
                Some(outcome @ Outcome::Finished(_)) => outcome,
                _ => verdict::of_timeout(job.timeout.as_secs_f64(), &job.cell.measure),
            };
        }
        self.verdict(job, exit)
    }

    /// Asks the cell once to save its state and end; it is then waited for as any other.
    fn ask_to_stop(&mut self) {
        if !std::mem::replace(&mut self.is_asked_to_stop, true) {
            self.running.iter_mut().for_each(|process| process.stop());
        }
    }

    /// Waits for the next line; true if the cell ends with it.
    ///
    /// # Errors
    /// When the output has ended.
    fn receive(&mut self, on_advance: &mut dyn FnMut(Advance)) -> Result<bool, RecvTimeoutError> {
        let event = self.output.event(POLL)?;
        Ok(event.is_some_and(|(rank, event)| self.note(rank, event, on_advance)))
    }

    fn note(&mut self, rank: usize, event: Event, on_advance: &mut dyn FnMut(Advance)) -> bool {
        match event {
            Event::Advance(Advance::Step { done, of, record }) => {
                let record = record.and_then(|record| self.losses.add(rank, record));
                if rank == 0 {
                    self.done = done;
                }
                if rank == 0 || record.is_some() {
                    on_advance(Advance::Step { done: self.done, of, record });
                }
            }
            Event::Advance(advance) => on_advance(advance),
            Event::Lost { peer, reason } => {
                self.lost.push((rank, peer, reason));
                return self.lost.len() == 1;
            }
            event => {
                // What happens to a rank after its result changes nothing.
                if self.outcomes[rank].is_some() {
                    return false;
                }
                let outcome = verdict::of_event(event);
                let well = matches!(outcome, Some(Outcome::Finished(_)));
                self.outcomes[rank] = outcome;
                // The first rank's measurement has what the others recorded: what happens to one of them then is no loss.
                let fails = !well && !matches!(self.outcomes[0], Some(Outcome::Finished(_)));
                if fails {
                    self.failed = self.failed.or(Some(rank));
                }
                return fails || self.outcomes.iter().all(Option::is_some);
            }
        }
        false
    }

    /// `Some` once there is nothing to wait for: with the rank whose exit is the cause, or with `None` if the ranks' events
    /// have the outcome.
    fn ended(&mut self) -> Option<Option<(usize, ExitStatus)>> {
        let exits: Vec<_> = self.running.iter_mut().map(|process| process.exited()).collect();
        if self.failed.is_some_and(|rank| exits[rank].is_some()) {
            return Some(None);
        }
        for (since, _) in self.exited.iter_mut().zip(&exits).filter(|(_, exit)| exit.is_some()) {
            since.get_or_insert_with(Instant::now);
        }
        // A rank that has lost another says so before it ends, so one that ends without a word is the cause. Its last words
        // may be on their way as long as its pipe is open, which another process may keep open.
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
        // The first rank's measurement includes the records of the others.
        if matches!(self.outcomes[0], Some(Outcome::Finished(_))) {
            return self.outcomes.swap_remove(0).expect("it has finished");
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
        match self.outcomes.swap_remove(0) {
            Some(outcome) => outcome,
            None => verdict::of_timeout(job.timeout.as_secs_f64(), &job.cell.measure),
        }
    }
}

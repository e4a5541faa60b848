//! [`Leader`]: the first rank that a launcher has started. It runs each rank of a cell as a child of its own or of a follower.

use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use miette::{Result, miette};

use super::launched::Launched;
use super::reading::{Reading, fingerprint};
use super::wire::{Build, Here, Order, Report, Sender, Start, messages, prepare};
use crate::common::locked;
use crate::common::text::hex;
use crate::recipe::Cell;
use crate::run::TryAgain;
use crate::run::child_output::{Line, Lines};
use crate::run::executor::{Executor, Job, Outcome};
use crate::run::process::{GRACE, POLL, ProcessExecutor};
use crate::run::ranks::{self, Places, Process};
use crate::run::verdict;
use crate::train::protocol::{Advance, Event, Request};
use crate::world::{Failure, Stream, random};

const GONE: &str = "its `runner join` has ended or does not answer, and the first rank did not end it: see what the launcher says about it";

/// Runs the cells of a recipe with its followers. Dropping it ends them.
#[derive(Debug)]
pub struct Leader {
    here: ProcessExecutor,
    launched: Launched,
    /// By rank.
    places: Vec<(String, usize)>,
    /// Ranks 1, 2, …
    followers: Vec<Arc<Follower>>,
}

/// The connection to another rank's `runner join`.
#[derive(Debug)]
struct Follower {
    rank: usize,
    sender: Sender,
    /// Valid between any two statements.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Takes the lines of its process; `None` while it has none.
    lines: Option<Lines>,
    exit: Option<ExitStatus>,
    /// Whether the follower is gone.
    gone: bool,
}

impl Leader {
    /// Waits for all followers, for each at most `limit` seconds.
    ///
    /// # Errors
    /// Names the rank that did not come, has another build or has read other cells.
    pub fn meet(here: ProcessExecutor, cells: &[Cell], launched: Launched, limit: f64) -> Result<Self> {
        let seat = launched.seat(limit);
        let streams = match launched.size {
            1 => Vec::new(),
            _ => seat.meet().map_err(|failure| not_met(failure, &launched))?,
        };
        let (mut followers, mut met) = (Vec::new(), vec![]);
        for (rank, stream) in streams.into_iter().enumerate().filter_map(|(r, stream)| Some((r, stream?))) {
            let greet = |stream: Stream| {
                prepare(&stream, seat.limit())?;
                let sender = Sender::new(stream.try_clone()?, Order::Alive);
                let mut reports = messages(stream);
                match reports.next() {
                    Some(Report::Here(here)) => Ok((here, Follower::new(rank, sender, reports))),
                    _ => Err(std::io::Error::other("its first message does not come from `runner join`")),
                }
            };
            let (other, follower) = greet(stream).map_err(|e: std::io::Error| {
                miette!(help = "start all ranks again", "rank {rank} cannot take part: {e}")
            })?;
            followers.push(follower);
            met.push(other);
        }
        let own = Reading::new(cells, &launched).fingerprint;
        if let Some((why, help)) = disagreement(&met, &own) {
            for follower in &followers {
                // A rank that is gone need not be told.
                let _ = follower.sender.send(&Order::Refused { why: why.clone(), help: help.into() });
            }
            return Err(miette!(help = help, "{why}"));
        }
        let places = [launched.place()].into_iter().chain(met.into_iter().map(|other| other.place)).collect();
        Ok(Self { here, launched, places, followers })
    }

    /// Where the ranks are, if on several hosts.
    fn places(&self) -> Option<&Places> {
        self.launched.address.as_ref().map(|_| &*self.places)
    }
}

/// Why these followers, ranks 1, 2, …, cannot work with the first rank, which has read the cells with the fingerprint
/// `own`; and what to do.
fn disagreement(met: &[Here], own: &str) -> Option<(String, &'static str)> {
    let ranks = || (1..).zip(met);
    if let Some((rank, other)) = ranks().find(|(_, other)| other.build != Build::own()) {
        let (other, own) = (other.build.named(), Build::own().named());
        let why = format!(
            "rank {rank} is {other} of the runner, and rank 0 is {own}: their numbers need not agree"
        );
        return Some((why, "start the same program on every rank"));
    }
    let (rank, other) = ranks().find(|(_, other)| other.recipe != own)?;
    let why = format!("rank {rank} on {} has read other cells from its recipe than rank 0", other.place.0);
    Some((why, "give all ranks the same recipe, with the same --set"))
}

/// The error for a meeting to which not all ranks came.
pub(super) fn not_met(failure: Failure, launched: &Launched) -> TryAgain {
    let (Failure::Lost { reason, .. } | Failure::Disagreement { reason } | Failure::Gpus { reason }) =
        failure;
    let reached = match &launched.address {
        None => "all ranks must be on one host, and not in separate containers".into(),
        Some(address) => format!("{address} and other ports must be open between the hosts"),
    };
    TryAgain {
        message: reason,
        help: format!(
            "see what the launcher says about that rank; {reached}; raise parallel.timeout if ranks start at different \
             times"
        ),
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        for follower in &self.followers {
            // A rank that is gone need not be told.
            let _ = follower.sender.send(&Order::Over);
        }
    }
}

impl Executor for Leader {
    fn ready(&self, ranks: usize) -> Result<(), TryAgain> {
        match self.followers.iter().take(ranks - 1).find(|follower| locked(&follower.state).gone) {
            None => Ok(()),
            Some(follower) => Err(TryAgain {
                message: format!("rank {} of {} is gone: {GONE}", follower.rank, self.launched.size),
                help: "start all ranks again: only missing cells are measured".into(),
            }),
        }
    }

    fn placed<'c>(&self, cell: &'c Cell) -> Cow<'c, Cell> {
        self.launched.placed(cell)
    }

    fn run(&self, job: Job, on_advance: &mut dyn FnMut(Advance), cancel: &AtomicBool) -> Outcome {
        let number: [u8; 16] = match random() {
            Ok(number) => number,
            Err(e) => return verdict::of_no_random(&e),
        };
        let purpose = format!("cell {}", hex(&number));
        let begin = |rank: usize, request: &Request, lines: &Lines| -> Result<Box<dyn Process>, Outcome> {
            Ok(match rank.checked_sub(1).map(|index| &self.followers[index]) {
                None => {
                    Box::new(self.here.begin(0, request, self.launched.sharing(request.seat.size), lines)?)
                }
                Some(follower) => {
                    let start = Start {
                        cell: fingerprint(&request.cell),
                        memory_limit: request.memory_limit,
                        trace: request.trace.is_some(),
                        logged: request.logged,
                        meeting: purpose.clone(),
                    };
                    Box::new(Follower::begin(follower, start, lines)?)
                }
            })
        };
        let meeting = self.launched.meeting(&purpose);
        ranks::run(&job, meeting, self.places(), &begin, on_advance, cancel)
    }
}

impl Follower {
    /// `reports`: what it says after its first message.
    fn new(rank: usize, sender: Sender, reports: impl Iterator<Item = Report> + Send + 'static) -> Arc<Self> {
        let follower = Arc::new(Self { rank, sender, state: Mutex::default() });
        let heard = follower.clone();
        thread::spawn(move || {
            reports.for_each(|report| heard.hear(report));
            heard.leave();
        });
        follower
    }

    fn hear(&self, report: Report) {
        let mut state = locked(&self.state);
        match report {
            Report::Here(_) | Report::Alive => {}
            Report::Line(line) => {
                if let Some(lines) = &state.lines {
                    // Nobody listens once the cell has ended.
                    lines.send(self.rank, line);
                }
            }
            Report::Ended(status) => {
                state.exit = Some(ExitStatus::from_raw(status));
                state.lines = None;
            }
        }
    }

    /// The follower is gone: its cell ends, and no other begins.
    fn leave(&self) {
        let mut state = locked(&self.state);
        state.gone = true;
        if let Some(lines) = state.lines.take() {
            lines.send(self.rank, Line::Event(Event::Failed { reason: GONE.into() }));
            lines.send(self.rank, Line::End);
            state.exit = Some(ExitStatus::from_raw(0));
        }
    }

    /// Orders it to start the process of its rank.
    fn begin(this: &Arc<Self>, start: Start, lines: &Lines) -> Result<There, Outcome> {
        {
            let mut state = locked(&this.state);
            if state.gone {
                return Err(Outcome::failed(format!("rank {}: {GONE}", this.rank)));
            }
            (state.lines, state.exit) = (Some(lines.clone()), None);
        }
        let there = There { follower: this.clone() };
        this.sender
            .send(&Order::Start(start))
            .map_err(|_| Outcome::failed(format!("rank {}: {GONE}", this.rank)))?;
        Ok(there)
    }
}

/// The process of a follower's rank.
struct There {
    follower: Arc<Follower>,
}

impl Process for There {
    fn exited(&mut self) -> Option<ExitStatus> {
        locked(&self.follower.state).exit
    }

    fn kill(&self) {
        if locked(&self.follower.state).exit.is_none() {
            // A follower that is gone has ended its process.
            let _ = self.follower.sender.send(&Order::Kill);
        }
    }
}

impl Drop for There {
    fn drop(&mut self) {
        self.kill();
        let start = Instant::now();
        while self.exited().is_none() && start.elapsed() < 2 * GRACE {
            thread::sleep(POLL / 5);
        }
        if self.exited().is_none() {
            self.follower.leave();
        }
    }
}

#[cfg(test)]
#[path = "leader_tests.rs"]
pub(super) mod tests;

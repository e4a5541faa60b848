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
use super::wire::{Build, Order, Report, Sender, messages, prepare};
use crate::parallel::Engine;
use crate::recipe::Cell;
use crate::run::TryAgain;
use crate::run::child_output::{Line, Lines};
use crate::run::executor::{Executor, Job, Outcome};
use crate::run::process::{GRACE, POLL, ProcessExecutor};
use crate::run::ranks::{self, Process};
use crate::train::protocol::{Advance, Event, Request};
use crate::words::{DeviceId, locked};
use crate::world::{Failure, Hosts, Stream};

const GONE: &str = "its `runner join` has ended or does not answer, and the first rank did not end it: see what the launcher says about it";

/// Runs the cells of a recipe with its followers. Dropping it ends them.
#[derive(Debug)]
pub struct Leader {
    here: ProcessExecutor,
    launched: Launched,
    /// Where the ranks are, if on several hosts.
    hosts: Option<Hosts>,
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
    /// Names the rank that did not come or has another build.
    pub fn meet(here: ProcessExecutor, launched: Launched, limit: f64) -> Result<Self> {
        let seat = launched.seat(limit);
        let streams = match launched.size {
            1 => Vec::new(),
            _ => seat.meet().map_err(|failure| not_met(failure, &launched))?,
        };
        let mut met = Vec::new();
        let mut places = vec![launched.place()];
        for (rank, stream) in streams.into_iter().enumerate().filter_map(|(r, stream)| Some((r, stream?))) {
            let greet = |stream: Stream| {
                prepare(&stream, seat.limit())?;
                let sender = Sender::new(stream.try_clone()?, Order::Alive);
                Ok((first_report(&stream)?, sender, stream))
            };
            let ((build, place), sender, reading) = greet(stream).map_err(|e: std::io::Error| {
                miette!(help = "start all ranks again", "rank {rank} cannot take part: {e}")
            })?;
            places.push(place);
            met.push((rank, build, sender, reading));
        }
        if let Some((rank, other, ..)) = met.iter().find(|(_, other, ..)| *other != Build::own()) {
            let why = format!(
                "rank {rank} is {} of the runner, and rank 0 is {}: their numbers need not agree",
                other.named(),
                Build::own().named()
            );
            for (_, _, sender, _) in &met {
                // A rank that is gone need not be told.
                let _ = sender.send(&Order::Refused(why.clone()));
            }
            return Err(miette!(help = "start the same program on every rank", "{why}"));
        }
        let follower = |(rank, _, sender, reading)| Follower::new(rank, sender, reading);
        let followers = met.into_iter().map(follower).collect();
        let hosts = launched.address.clone().map(|address| Hosts { address, places });
        Ok(Self { here, launched, hosts, followers })
    }
}

/// Reads a follower's first message: its build, its host and its number there.
fn first_report(stream: &Stream) -> std::io::Result<(Build, (String, usize))> {
    match messages(stream.try_clone()?).next() {
        Some(Report::Here { build, host, local }) => Ok((build, (host, local))),
        _ => Err(std::io::Error::other("its first message is not that of `runner join`")),
    }
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
        let mut placed = Cow::Borrowed(cell);
        // Each host has some of the GPUs, and only NCCL sums between hosts.
        if self.hosts.is_some() && cell.device_id() != DeviceId::Cpu && !cell.parallel.is_alone() {
            placed.to_mut().parallel.engine = Engine::Nccl;
        }
        placed
    }

    fn run(&self, job: Job, on_advance: &mut dyn FnMut(Advance), cancel: &AtomicBool) -> Outcome {
        let begin = |rank: usize, request: &Request, lines: &Lines| -> Result<Box<dyn Process>, Outcome> {
            Ok(match rank.checked_sub(1).map(|index| &self.followers[index]) {
                None => {
                    Box::new(self.here.begin(0, request, self.launched.sharing(request.seat.size), lines)?)
                }
                Some(follower) => Box::new(Follower::begin(follower, request, lines)?),
            })
        };
        ranks::run(&job, self.hosts.as_ref(), &begin, on_advance, cancel)
    }
}

impl Follower {
    fn new(rank: usize, sender: Sender, reading: Stream) -> Arc<Self> {
        let follower = Arc::new(Self { rank, sender, state: Mutex::default() });
        let heard = follower.clone();
        thread::spawn(move || {
            messages(reading).for_each(|report| heard.hear(report));
            heard.leave();
        });
        follower
    }

    fn hear(&self, report: Report) {
        let mut state = locked(&self.state);
        match report {
            Report::Here { .. } | Report::Alive => {}
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
    fn begin(this: &Arc<Self>, request: &Request, lines: &Lines) -> Result<There, Outcome> {
        {
            let mut state = locked(&this.state);
            if state.gone {
                return Err(Outcome::failed(format!("rank {}: {GONE}", this.rank)));
            }
            (state.lines, state.exit) = (Some(lines.clone()), None);
        }
        let there = There { follower: this.clone() };
        let order = Order::Start(Box::new(request.clone()));
        this.sender.send(&order).map_err(|_| Outcome::failed(format!("rank {}: {GONE}", this.rank)))?;
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
mod tests;

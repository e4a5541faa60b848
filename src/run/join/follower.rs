//! [`follow`]: any rank but the first that a launcher has started. It starts a process for its rank of each cell, as the
//! leader orders.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use miette::{Result, miette};

use super::launched::Launched;
use super::leader::not_met;
use super::reading::Reading;
use super::wire::{Build, Here, Order, Report, Sender, Start, messages, prepare};
use crate::recipe::Cell;
use crate::run::child_output::{ChildOutput, Line};
use crate::run::executor::Outcome;
use crate::run::interrupt::EXIT_INTERRUPTED;
use crate::run::process::{GRACE, POLL, ProcessExecutor};
use crate::run::ranks::Process;
use crate::run::verdict;
use crate::train::protocol::{Event, Request};
use crate::world::Seat;

/// Serves the leader until it has no more of these cells; returns the exit code. Only the leader's exit code says how cells
/// ended.
///
/// # Errors
/// When the leader does not come within `limit` seconds, refuses this rank, or is gone.
pub fn follow(
    executor: &ProcessExecutor,
    cells: &[Cell],
    launched: &Launched,
    limit: f64,
    cancel: &AtomicBool,
) -> Result<u8> {
    let reading = Reading::new(cells, launched);
    let seat = launched.seat(limit);
    let stream = seat
        .meet()
        .map_err(|failure| not_met(failure, launched))?
        .swap_remove(0)
        .expect("this is not the first rank");
    let greet = || {
        prepare(&stream, seat.limit())?;
        let also = stream.try_clone()?;
        let sender = Sender::new(stream, Report::Alive);
        let (build, recipe) = (Build::own(), reading.fingerprint.clone());
        sender.send(&Report::Here(Here { build, recipe, place: launched.place() }))?;
        Ok((sender, messages(also)))
    };
    let (sender, mut heard) = greet().map_err(|e: std::io::Error| {
        miette!(help = "start all ranks again", "rank 0 cannot be followed: {e}")
    })?;
    let (to, orders) = channel();
    thread::spawn(move || heard.all(|order| to.send(order).is_ok()));
    let mut following = Following { executor, reading, launched, sender, orders, cancel, interrupted: None };
    loop {
        match following.order(POLL)? {
            // The process to be killed has already ended.
            None | Some(Order::Kill | Order::Alive) => {}
            Some(Order::Start(start)) => match following.serve(&start)? {
                Served::Ended => {}
                Served::Over => break,
            },
            Some(Order::Refused { why, help }) => return Err(miette!(help = help, "{why}")),
            Some(Order::Over) => break,
        }
    }
    Ok(if cancel.load(Relaxed) { EXIT_INTERRUPTED } else { 0 })
}

struct Following<'a> {
    executor: &'a ProcessExecutor,
    reading: Reading<'a>,
    launched: &'a Launched,
    sender: Sender,
    orders: Receiver<Order>,
    cancel: &'a AtomicBool,
    /// When the user's signal was noticed.
    interrupted: Option<Instant>,
}

/// How a cell ended.
enum Served {
    Ended,
    /// The leader has ended its run.
    Over,
}

impl Following<'_> {
    /// Waits up to `limit` for the next order.
    ///
    /// # Errors
    /// When the leader is gone, or does not end this rank soon after the user's signal. The rank does not end at once by
    /// itself, since that would look like a failure of its cell.
    fn order(&mut self, limit: Duration) -> Result<Option<Order>> {
        match self.orders.recv_timeout(limit) {
            Ok(order) => return Ok(Some(order)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(miette!(
                    help = "see what rank 0 says",
                    "rank 0 is gone or does not answer, and this rank ends with it"
                ));
            }
        }
        if self.cancel.load(Relaxed) && self.interrupted.get_or_insert_with(Instant::now).elapsed() > GRACE {
            return Err(miette!(
                help = "interrupt rank 0 too",
                "this rank was interrupted, but rank 0 was not"
            ));
        }
        Ok(None)
    }

    /// The request of this rank for a cell that it has read itself: no setting and no path is the leader's.
    ///
    /// # Errors
    /// The outcome of any other cell.
    fn request(&self, start: &Start) -> Result<Request, Outcome> {
        let (rank, (_, local)) = (self.launched.rank, self.launched.place());
        let Some(cell) = self.reading.cell(&start.cell).filter(|cell| rank < cell.parallel.ranks()) else {
            return Err(Outcome::failed(
                "the first rank asks for a cell that this rank's recipe does not have: give all ranks the same recipe",
            ));
        };
        let memory_limit =
            cell.measure.memory_limit.map_or(u64::MAX, |bytes| bytes.0).min(start.memory_limit);
        // Only the first rank writes the trace.
        let trace = start.trace.then(PathBuf::new);
        let (size, limit) = (cell.parallel.ranks(), cell.parallel.timeout);
        let seat = Seat { rank, size, local, meeting: self.launched.meeting(&start.meeting), limit };
        Ok(Request { cell: cell.to_json(), memory_limit, trace, logged: start.logged, seat })
    }

    /// Runs the process of this rank for one cell.
    fn serve(&mut self, start: &Start) -> Result<Served> {
        let oom_kills = verdict::oom_kills();
        let (output, lines) = ChildOutput::of(1);
        let begun = self.request(start).and_then(|request| {
            self.executor.begin(0, &request, self.launched.sharing(request.seat.size), &lines)
        });
        drop(lines);
        let mut process = match begun {
            Ok(process) => process,
            Err(Outcome::Ended { reason, .. }) => {
                self.report(&Report::Line(Line::Event(Event::Failed { reason })));
                self.report(&Report::Line(Line::End));
                self.report(&Report::Ended(0));
                return Ok(Served::Ended);
            }
            Err(Outcome::Finished(_) | Outcome::Stopped { .. } | Outcome::Cancelled) => {
                unreachable!("it has not started")
            }
        };
        // When its end was noticed. Another process may keep its pipes open: they are not waited for any longer.
        let mut exited: Option<Instant> = None;
        let mut killed = false;
        loop {
            match output.line(POLL) {
                Ok((_, line)) => self.report(&Report::Line(line)),
                Err(RecvTimeoutError::Disconnected) if exited.is_some() => break,
                Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL / 5),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if exited.is_none() && process.exited().is_some() {
                exited = Some(Instant::now());
            }
            if exited.is_some_and(|since| since.elapsed() > GRACE) {
                break;
            }
            match self.order(Duration::ZERO)? {
                Some(Order::Kill) => {
                    process.kill();
                    killed = true;
                }
                Some(Order::Over) => return Ok(Served::Over),
                _ => {}
            }
        }
        let status = process.exited().expect("it has ended");
        // The leader may be on another host, whose system does not count this.
        if status.signal() == Some(9) && !killed && verdict::oom_kills() > oom_kills {
            let reason = verdict::killed_for_memory();
            self.report(&Report::Line(Line::Event(Event::OutOfMemory { reason })));
        }
        self.report(&Report::Ended(status.into_raw()));
        Ok(Served::Ended)
    }

    /// Reading orders shows whether the leader is gone.
    fn report(&self, report: &Report) {
        let _ = self.sender.send(report);
    }
}

#[cfg(test)]
#[path = "follower_tests.rs"]
mod tests;

//! [`follow`]: a rank that a launcher started and that is not the first: it runs a process of its own for each cell, as
//! the leader orders.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use miette::{Result, miette};

use super::launched::Launched;
use super::leader::not_met;
use super::wire::{Order, Report, messages, prepare, send};
use crate::run::child_output::{ChildOutput, Line};
use crate::run::executor::Outcome;
use crate::run::interrupt::EXIT_INTERRUPTED;
use crate::run::process::{GRACE, POLL, ProcessExecutor};
use crate::run::ranks::Process;
use crate::train::protocol::{Event, Request};
use crate::world::Stream;

/// Serves the leader until it has no more cells; the exit code. The leader's own says how the cells ended.
///
/// # Errors
/// When the leader does not come within `limit` seconds, refuses this rank, or is gone.
pub fn follow(
    executor: &ProcessExecutor,
    launched: &Launched,
    limit: f64,
    cancel: &AtomicBool,
) -> Result<u8> {
    let seat = launched.seat(limit);
    let stream = seat
        .meet()
        .map_err(|failure| not_met(failure, launched))?
        .swap_remove(0)
        .expect("this is not the first rank");
    let greeted = prepare(&stream, seat.limit())
        .and_then(|()| send(&stream, &launched.here()))
        .and_then(|()| stream.try_clone());
    let reading =
        greeted.map_err(|e| miette!(help = "start all ranks again", "rank 0 cannot be followed: {e}"))?;
    let (to, orders) = channel();
    thread::spawn(move || messages(reading).all(|order: Order| to.send(order).is_ok()));
    let mut following = Following { executor, launched, stream, orders, cancel, interrupted: None };
    loop {
        match following.order(POLL)? {
            // A process that is to be killed has ended by itself.
            None | Some(Order::Kill) => {}
            Some(Order::Start(request)) => match following.serve(&request)? {
                Served::Ended => {}
                Served::Over => break,
            },
            Some(Order::Refused(why)) => {
                return Err(miette!(help = "start the same program on every rank", "{why}"));
            }
            Some(Order::Over) => break,
        }
    }
    Ok(if cancel.load(Relaxed) { EXIT_INTERRUPTED } else { 0 })
}

struct Following<'a> {
    executor: &'a ProcessExecutor,
    launched: &'a Launched,
    stream: Stream,
    orders: Receiver<Order>,
    cancel: &'a AtomicBool,
    /// Since when it is known that the user wants an end.
    interrupted: Option<Instant>,
}

/// How a cell's turn ended.
enum Served {
    Ended,
    /// With the leader's run.
    Over,
}

impl Following<'_> {
    /// Waits up to `limit` for the next order.
    ///
    /// # Errors
    /// When the leader is gone, or does not end this rank soon after the user's signal: one that ended by itself at once
    /// would look like a failure of its cell.
    fn order(&mut self, limit: Duration) -> Result<Option<Order>> {
        match self.orders.recv_timeout(limit) {
            Ok(order) => return Ok(Some(order)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(miette!(help = "see what rank 0 says", "rank 0 is gone, and this rank with it"));
            }
        }
        if self.cancel.load(Relaxed) && self.interrupted.get_or_insert_with(Instant::now).elapsed() > GRACE {
            return Err(miette!(help = "interrupt rank 0 too", "interrupted, and rank 0 is not"));
        }
        Ok(None)
    }

    /// Runs the process of this rank of one cell.
    fn serve(&mut self, request: &Request) -> Result<Served> {
        let ranks = request.seat.as_ref().map_or(1, |seat| seat.size);
        let (output, lines) = ChildOutput::of(1);
        let begun = self.executor.begin(0, request, self.launched.sharing(ranks), &lines);
        drop(lines);
        let mut process = match begun {
            Ok(process) => process,
            Err(Outcome::Ended { reason, .. }) => {
                self.report(&Report::Line(Line::Event(Event::Failed { reason })));
                self.report(&Report::Line(Line::End));
                self.report(&Report::Ended(0));
                return Ok(Served::Ended);
            }
            Err(Outcome::Finished(_) | Outcome::Cancelled) => unreachable!("it has not started"),
        };
        // A process whose pipes another one keeps open is waited for no longer.
        let mut exited: Option<Instant> = None;
        loop {
            match output.line(POLL) {
                Ok((_, line)) => self.report(&Report::Line(line)),
                Err(RecvTimeoutError::Disconnected) if exited.is_some() => break,
                Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL / 5),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if exited.is_none() && process.exited().is_some() {
                process.kill();
                exited = Some(Instant::now());
            }
            if exited.is_some_and(|since| since.elapsed() > GRACE) {
                break;
            }
            match self.order(Duration::ZERO)? {
                Some(Order::Kill) if exited.is_none() => process.kill(),
                Some(Order::Over) => return Ok(Served::Over),
                _ => {}
            }
        }
        let status = process.exited().expect("it has ended");
        self.report(&Report::Ended(status.into_raw()));
        Ok(Served::Ended)
    }

    /// A leader that is gone is noticed where orders are read.
    fn report(&self, report: &Report) {
        let _ = send(&self.stream, report);
    }
}

//! The process of a cell: reads a [`Request`], trains, and reports [`Event`]s.

use std::any::Any;
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::protocol::{Advance, Event, Request, STOP};
use super::{Watch, train};
use crate::common::refusal::{Refusal, message};
use crate::common::streams::tell;
use crate::common::{DeviceId, files};
use crate::device::{self, Target};
use crate::measure::{Stop, process};
use crate::recipe::Cell;
use crate::world::{Failure, World};

/// Whether the runner has asked the cell to save its state and end.
static ASKED_TO_STOP: AtomicBool = AtomicBool::new(false);

/// As the main thread of a Linux program has.
const STACK_BYTES: usize = 8 << 20;

/// `runner cell`: serves the one request on standard input.
pub fn serve() -> ExitCode {
    let mut line = String::new();
    let request: Request = match io::stdin().lock().read_line(&mut line).map(|_| serde_json::from_str(&line))
    {
        Ok(Ok(request)) => request,
        _ => {
            tell("`runner cell` is started by `runner run`; it expects a request on standard input");
            return ExitCode::from(2);
        }
    };
    obey_the_runner();
    // The pool's threads also run the cell, so they get a main thread's stack.
    let pool =
        rayon::ThreadPoolBuilder::new().stack_size(STACK_BYTES).build().expect("the system has threads");
    // The cell runs on a thread of the pool over which operators on a CPU divide their work, and takes its part of it. A
    // thread outside of the pool would have to be woken after every operator, which takes some 20 µs.
    let event = pool.install(|| answer(&request));
    let ended_well = matches!(event, Event::Done { .. } | Event::Diverged { .. } | Event::Stopped { .. });
    send(&event);
    if ended_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The last event of a request.
fn answer(request: &Request) -> Event {
    catch_unwind(AssertUnwindSafe(|| work(request))).unwrap_or_else(ended_by)
}

fn work(request: &Request) -> Event {
    let mut cell = match Cell::from_json(&request.cell) {
        Ok(cell) => cell,
        Err(error) => return Event::Failed { reason: format!("the request's cell is not valid: {error}") },
    };
    let by_nccl = cell.parallel.is_by_nccl(cell.device_id());
    cell.device = cell.parallel.device(cell.device_id(), request.seat.local).to_string();
    cell.capability = Target::Here.capability(cell.device_id());
    let limit = cell.measure.host_memory_limit.map(|bytes| bytes.0);
    // What is sure to be too much is refused before anything is allocated.
    let account = cell.within(request.memory_limit).account();
    let bytes = limit.map_or(account.host.total(), |_| account.estimate().on_host(cell.device_id()));
    if let Err(reason) = device::require_host_memory(account.host.page_locked(), bytes, limit) {
        return Event::OutOfMemory { reason };
    }
    process::follow(limit, move |own| {
        send(&Event::OutOfMemory { reason: device::beyond_host_limit(own, limit.unwrap_or_default()) });
        std::process::exit(1);
    });
    // What the backend keeps for itself is neither measured nor limited.
    cell.device_id().warm_up(cell.precision.compute);
    let first = request.seat.rank == 0;
    let on_tuned: fn(usize) =
        if first { |tuned| send(&Event::Advance(Advance::Preparing { tuned })) } else { |_| () };
    let mut on_step = |advance| {
        if first || matches!(advance, Advance::Step { record: Some(_), .. }) {
            send(&Event::Advance(advance));
        }
    };
    let mut world = World::join(&request.seat).unwrap_or_else(|failure| failure.end());
    if let (DeviceId::Cuda(ordinal), true) = (cell.device_id(), by_nccl) {
        let messages = cell.parallel.pipeline.is_some();
        world.connect(ordinal, messages, lost).unwrap_or_else(|failure| failure.end());
    }
    let watch = Watch {
        trace: request.trace.as_deref(),
        logged: request.logged,
        on_tuned,
        on_step: &mut on_step,
        stop: &ASKED_TO_STOP,
    };
    match train(&cell, &world, request.memory_limit, watch) {
        Ok(measurement) => Event::Done { measurement: Box::new(measurement) },
        Err(Stop::Diverged { reason }) => Event::Diverged { reason },
        Err(Stop::OutOfMemory { reason }) => Event::OutOfMemory { reason },
        Err(Stop::Asked { step }) => Event::Stopped { step },
    }
}

/// The last event of a cell that ended with a panic.
fn ended_by(panic: Box<dyn Any + Send>) -> Event {
    let panic = match panic.downcast::<Refusal>() {
        Ok(refusal) => return Event::Failed { reason: refusal.0 },
        Err(panic) => panic,
    };
    let panic = match panic.downcast::<Failure>() {
        Ok(failure) => return of_failure(*failure),
        Err(panic) => panic,
    };
    let reason = format!("an error inside of the program: {}", message(&*panic));
    match device::out_of_memory(&reason) {
        Some(reason) => Event::OutOfMemory { reason },
        None => Event::Failed { reason },
    }
}

fn of_failure(failure: Failure) -> Event {
    match failure {
        Failure::Lost { peer, reason } => Event::Lost { peer, reason },
        Failure::Disagreement { reason } | Failure::Gpus { reason } => Event::Failed { reason },
    }
}

/// Ends this process, whose main thread waits for a device that waits for another rank.
fn lost(failure: Failure) {
    send(&of_failure(failure));
    std::process::exit(1);
}

fn send(event: &Event) {
    let line = serde_json::to_string(event).expect("an event is plain data");
    let mut out = io::stdout().lock();
    // A closed pipe means that the runner is gone.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Follows standard input. When it closes, the runner is gone, and this process ends: by a signal, since the handlers of a
/// usual exit could wait for a device that never ends.
fn obey_the_runner() {
    std::thread::spawn(|| {
        let mut line = String::new();
        while matches!(io::stdin().lock().read_line(&mut line), Ok(n) if n > 0) {
            ASKED_TO_STOP.fetch_or(line.trim() == STOP, Relaxed);
            line.clear();
        }
        // Whoever would have removed it is gone.
        files::remove_scratch();
        let _ = kill(Pid::this(), Signal::SIGKILL);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::refusal::refuse;

    fn reason(work: fn()) -> String {
        match ended_by(catch_unwind(work).expect_err("it panics")) {
            Event::Failed { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_refused_is_told_as_it_is_and_a_fault_as_the_programs() {
        assert_eq!(reason(|| refuse("there is no text; name a file")), "there is no text; name a file");
        assert_eq!(
            reason(|| panic!("index out of bounds")),
            "an error inside of the program: index out of bounds"
        );
    }
}

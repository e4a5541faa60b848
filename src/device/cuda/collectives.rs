//! [`Collectives`]: sums and copies over the GPUs of several processes, by NCCL, while this one computes on.
//!
//! One thread with a stream of its own carries the operations out, one after the other. CubeCL's thread reports where a
//! tensor lies and records an event, `ready`. The thread here makes its stream wait for that event, calls NCCL, and records
//! `ended`. Its stream goes before others, since a late sum is waited for. Whoever wants the result makes CubeCL's stream
//! wait for `ended`, so the host waits for no device, but for the sender's of a [message](bells).
//!
//! ```text
//! CubeCL's stream   … kernels that write x │ready … other kernels … │reached ─ waits ─ kernels that read x
//! the stream here             waits ───────┘ │began  NCCL  │ended ──────────────┘
//! ```

mod begin;
mod bells;
mod pending;
mod serve;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, panicking, sleep};
use std::time::{Duration, Instant};

pub use self::pending::Pending;
use self::serve::{Job, State, serve};
use super::Gpu;
use crate::common::locked;

/// How long an end waits for the thread: for NCCL to give its memory back.
const GRACE: Duration = Duration::from_secs(2);

/// How often whoever waits for events looks at them.
const LOOK: Duration = Duration::from_millis(1);

/// As large as the stack of a Linux program's main thread, from which NCCL is mostly called.
const STACK_BYTES: usize = 8 << 20;

/// This rank among those whose GPUs do something together. Used by the thread that computes.
pub struct Collectives {
    gpu: &'static Gpu,
    rank: usize,
    ranks: usize,
    /// How long a rank waits for another.
    limit: Duration,
    jobs: Sender<Option<Job>>,
    shared: Arc<Shared>,
    /// Ends with the thread.
    thread: Mutex<Receiver<()>>,
}

/// What the thread and others know of its operations.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Whether what is under way may end without a result.
    abandoned: AtomicBool,
}

/// Totals of the operations that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Crossed {
    /// Bytes that this rank has given the others, by the operations' sizes.
    pub sent: u64,
    /// Seconds in which an operation was under way, waiting for others included.
    pub busy: f64,
    /// Seconds of these in which the device waited for a result.
    pub exposed: f64,
}

/// An operation among those that the same ranks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The other one of two; `None` where all take part.
    pub peer: Option<usize>,
    /// From 1; the same on every rank that takes part.
    pub number: u64,
}

/// An operation that has begun, on this rank's device or in a call to NCCL, and has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct UnderWay {
    pub turn: Turn,
    pub operation: String,
    pub since: Instant,
}

impl Collectives {
    /// Returns once every rank has come with the same id, [`unique_id`](super::nccl::unique_id).
    ///
    /// # Errors
    /// Why the GPUs cannot be connected.
    pub fn join(
        ordinal: usize,
        (rank, ranks): (usize, usize),
        id: Vec<u8>,
        limit: Duration,
    ) -> Result<Self, String> {
        let gpu = Gpu::open(ordinal);
        let (jobs, begun) = channel();
        let (answer, joined) = channel();
        let (ends, thread) = channel();
        let shared = Arc::<Shared>::default();
        let own = shared.clone();
        let calls = move || {
            serve(gpu, (&id, rank, ranks), &begun, &own, &answer);
            // Only now: NCCL's memory has been given back.
            drop::<Sender<()>>(ends);
        };
        thread::Builder::new()
            .name("nccl".into())
            .stack_size(STACK_BYTES)
            .spawn(calls)
            .map_err(|e| format!("the system has no thread for NCCL: {e}"))?;
        let late = || {
            let seconds = limit.as_secs_f64();
            format!(
                "the GPUs of {ranks} ranks were not connected in {seconds} s: raise parallel.timeout, or set \
                 parallel.engine = \"sockets\"; NCCL_DEBUG=INFO says more"
            )
        };
        match joined.recv_timeout(limit) {
            Ok(result) => result?,
            Err(RecvTimeoutError::Timeout) => return Err(late()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err("the thread that connects the GPUs has ended".into());
            }
        }
        Ok(Self { gpu, rank, ranks, limit, jobs, shared, thread: Mutex::new(thread) })
    }

    /// The operation in which this rank may be waiting for others.
    pub fn under_way(&self) -> Option<UnderWay> {
        self.gpu.context.bind();
        locked(&self.shared.state).first_under_way()
    }

    /// Why the thread or NCCL can carry out no more.
    pub fn failure(&self) -> Option<String> {
        locked(&self.shared.state).failure.clone()
    }

    /// Totals of what was begun so far. Waits up to [`GRACE`] for what the device has not done.
    pub fn crossed(&self) -> Crossed {
        let deadline = Instant::now() + GRACE;
        self.gpu.context.bind();
        // Otherwise CubeCL's thread may not come to what waits for the last operations.
        self.gpu.stream().hurry();
        loop {
            let mut state = locked(&self.shared.state);
            state.fold();
            if state.under_way.is_empty() || Instant::now() >= deadline {
                return state.crossed;
            }
            drop(state);
            sleep(LOOK);
        }
    }
}

impl fmt::Debug for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collectives")
            .field("rank", &self.rank)
            .field("ranks", &self.ranks)
            .finish_non_exhaustive()
    }
}

impl Drop for Collectives {
    /// Waits for what was begun, but not for long, and not at all where this rank ends by a panic. Another rank may still
    /// read what this one has given it, so all ranks must have their results before the first drops this.
    fn drop(&mut self) {
        self.shared.abandoned.store(panicking(), Relaxed);
        // Where it is gone nothing is left to end.
        let _ = self.jobs.send(None);
        if panicking() {
            return;
        }
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        // It sends nothing: either it ends, or it is left to the end of the process.
        let _ = thread.recv_timeout(2 * GRACE);
    }
}

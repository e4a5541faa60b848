//! [`World`]: the ranks of a cell, one process each, and what they do together. A single process is a world of one.
//!
//! A rank's own thread begins operations. A second thread carries them out one after the other, in the order in which they
//! began. That order must be the same on every rank that takes part.

mod door;
mod failure;
mod group;
mod handshake;
mod links;
mod network;
mod operations;
mod rendezvous;
mod stream;
mod tensors;
#[cfg(test)]
pub mod tests;
mod watch;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use itertools::Itertools;

pub use failure::Failure;
use group::{Counters, Job};
pub use group::{ProcessGroup, Ticket};
pub use handshake::random;
use links::{Links, Sign};
pub use operations::part;
pub use rendezvous::{Meeting, Seat};
pub use stream::Stream;
pub use tensors::{Arriving, Leaving};
use watch::Watch;

use crate::device::cuda::{Collectives, Crossed, nccl};

/// This process among the ranks of its cell.
pub struct World {
    all: ProcessGroup,
    /// `None` of a world of one.
    thread: Option<JoinHandle<()>>,
    /// Copies of the connections, by which this rank can end them at once.
    streams: Vec<Stream>,
    /// By rank.
    signs: Arc<[Sign]>,
    /// How long a rank waits for another.
    limit: Duration,
    /// Watches the GPUs where they are connected.
    watch: Option<Watch>,
}

/// Totals over this rank's operations so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Bytes that this rank has sent.
    pub sent: u64,
    /// Seconds in which an operation was running, including the wait for other ranks.
    pub busy: f64,
    /// The part of these seconds in which this rank's own thread waited for a result.
    pub exposed: f64,
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            sent: self.sent + more.sent,
            busy: self.busy + more.busy,
            exposed: self.exposed + more.exposed,
        }
    }
}

impl std::ops::Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            busy: self.busy - before.busy,
            exposed: self.exposed - before.exposed,
        }
    }
}

impl World {
    /// Ranks that are threads of this process, all connected to each other.
    ///
    /// # Panics
    /// When the system refuses a connection.
    pub fn threads(size: usize, limit: Duration) -> Vec<Self> {
        let mut streams: Vec<Vec<Option<Stream>>> =
            (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
        for (low, high) in (0..size).tuple_combinations() {
            let (a, b) = UnixStream::pair().expect("a pair of sockets");
            (streams[low][high], streams[high][low]) = (Some(Stream::Local(a)), Some(Stream::Local(b)));
        }
        let world = |(rank, streams)| Self::linked(rank, streams, limit).expect("connected");
        streams.into_iter().enumerate().map(world).collect()
    }

    /// The world of a single process.
    pub fn alone() -> Self {
        Self {
            all: ProcessGroup::alone(),
            thread: None,
            streams: vec![],
            signs: Arc::new([]),
            limit: Duration::MAX,
            watch: None,
        }
    }

    /// Meets the other ranks of the cell and waits for all of them.
    ///
    /// # Errors
    /// Names the rank that did not come.
    pub fn join(seat: &Seat) -> Result<Self, Failure> {
        if seat.size == 1 {
            return Ok(Self::alone());
        }
        Self::linked(seat.rank, seat.meet()?, seat.limit())
    }

    fn linked(rank: usize, streams: Vec<Option<Stream>>, limit: Duration) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::Lost {
            peer: rank,
            reason: format!("rank {rank} has no connection: {e}"),
        };
        let copies =
            streams.iter().flatten().map(Stream::try_clone).collect::<Result<_, _>>().map_err(failed)?;
        let ranks = (0..streams.len()).collect();
        let signs: Arc<[Sign]> = streams.iter().map(|_| Sign::default()).collect();
        let counters = Arc::new(Counters::default());
        let mut links = Links::new(rank, streams, limit, counters.sent.clone(), &signs).map_err(failed)?;
        let (jobs, begun) = channel::<Job>();
        let thread = thread::spawn(move || {
            loop {
                match begun.recv_timeout(links::BEAT) {
                    Ok(Some(job)) => job(&mut links),
                    Err(RecvTimeoutError::Timeout) => links.live(),
                    Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        Ok(Self {
            all: ProcessGroup { rank, ranks, jobs: Some(jobs), counters, gpus: None },
            thread: Some(thread),
            streams: copies,
            signs,
            limit,
            watch: None,
        })
    }

    /// Connects the GPUs of all ranks; this rank has the GPU with the number `ordinal`. From here on the ranks sum tensors
    /// by NCCL, and with `messages` also send them by NCCL. A thread calls `lost` if a rank does not come to such an
    /// operation, since nothing else could end the wait.
    ///
    /// # Errors
    /// Says why they cannot be connected.
    ///
    /// # Panics
    /// With a [`Failure`] if another rank is gone.
    pub fn connect(&mut self, ordinal: usize, messages: bool, lost: fn(Failure)) -> Result<(), Failure> {
        let failed = |reason| Failure::Gpus { reason };
        let own = if self.rank() == 0 { nccl::unique_id().map_err(failed)? } else { Vec::new() };
        let id = self.all.broadcast("the id of NCCL's ranks", 0, own).wait();
        let start = Instant::now();
        let gpus = Collectives::join(ordinal, (self.rank(), self.size()), id, self.limit);
        if gpus.is_err() && start.elapsed() >= self.limit {
            // NCCL does not say who is missing.
            self.all.barrier("what became of the GPUs");
        }
        let gpus = Arc::new(gpus.map_err(failed)?);
        self.all.gpus = Some(gpus.clone());
        self.watch = Some(Watch::start(gpus, self.signs.clone(), (self.rank(), self.limit), lost));
        self.all.try_gpus(ordinal).map_err(failed)?;
        if messages {
            self.all.try_messages(ordinal);
        }
        Ok(())
    }

    pub fn rank(&self) -> usize {
        self.all.rank
    }

    pub fn size(&self) -> usize {
        self.all.ranks.len()
    }

    /// All ranks.
    pub fn all(&self) -> &ProcessGroup {
        &self.all
    }

    pub fn traffic(&self) -> Traffic {
        let Counters { sent, busy, exposed } = &*self.all.counters;
        let seconds = |nanoseconds: &AtomicU64| nanoseconds.load(Relaxed) as f64 / 1e9;
        let gpus = self.all.gpus.as_ref().map_or_else(Crossed::default, |gpus| gpus.crossed());
        Traffic {
            sent: sent.load(Relaxed) + gpus.sent,
            busy: seconds(busy) + gpus.busy,
            exposed: seconds(exposed) + gpus.exposed,
        }
    }
}

impl Drop for World {
    /// Waits for the operations that have begun. A rank that panics does not wait: it closes its connections, so that the
    /// others notice at once.
    fn drop(&mut self) {
        // No operation is left to wait for, so other ranks may end before this one.
        self.watch = None;
        let failing = thread::panicking();
        if failing {
            for stream in &self.streams {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
        // The thread runs until it gets this.
        let _ = self.all.jobs.take().map(|jobs| jobs.send(None));
        if let Some(thread) = self.thread.take().filter(|_| !failing) {
            let _ = thread.join();
        }
    }
}

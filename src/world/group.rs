//! [`ProcessGroup`]: ranks that work together, and [`Ticket`]: the result of an operation that they have begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::links::Links;
use super::operations::{self, Call};
use crate::device::cuda::{Collectives, Turn};

/// An operation to carry out; `None` ends the thread.
pub(super) type Job = Option<Box<dyn FnOnce(&mut Links) + Send>>;

/// Ranks that work together, including this one.
#[derive(Clone, Debug)]
pub struct ProcessGroup {
    pub(super) rank: usize,
    /// In rising order.
    pub(super) ranks: Arc<[usize]>,
    /// `None` in a world of one.
    pub(super) jobs: Option<Sender<Job>>,
    pub(super) counters: Arc<Counters>,
    /// The GPUs, if each rank has its own and they are connected.
    pub(super) gpus: Option<Arc<Collectives>>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) sent: Arc<AtomicU64>,
    pub(super) busy: AtomicU64,
    pub(super) exposed: AtomicU64,
}

/// The result of an operation that has begun.
#[must_use]
pub struct Ticket<T> {
    result: Receiver<Result<T, Failure>>,
    counters: Arc<Counters>,
}

impl ProcessGroup {
    /// The group of a single process.
    pub fn alone() -> Self {
        Self { rank: 0, ranks: Arc::new([0]), jobs: None, counters: Arc::default(), gpus: None }
    }

    /// This rank's number in the world.
    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The lowest rank of the group.
    pub fn first(&self) -> usize {
        self.ranks[0]
    }

    /// This rank's place in the group, from 0.
    pub fn place(&self) -> usize {
        self.ranks.binary_search(&self.rank).expect("one of them")
    }

    /// A part of this group.
    ///
    /// # Panics
    /// When this rank is not among them.
    #[must_use]
    pub fn of(&self, ranks: impl IntoIterator<Item = usize>) -> Self {
        let mut ranks: Vec<usize> = ranks.into_iter().collect();
        ranks.sort_unstable();
        assert!(ranks.contains(&self.rank), "a rank can only act for itself");
        // The connection between GPUs includes all ranks.
        let gpus = self.gpus.clone().filter(|_| ranks.len() == self.size());
        Self { ranks: ranks.into(), gpus, ..self.clone() }
    }

    /// Sums over all ranks; additions are in the order of ranks.
    pub fn all_reduce(&self, name: impl Into<String>, values: Vec<f32>) -> Ticket<Vec<f32>> {
        self.begin(("all_reduce", name), Some(values.len()), values, operations::all_reduce)
    }

    /// As [`all_reduce`](Self::all_reduce), but only `root` gets the sums.
    pub fn reduce(&self, name: impl Into<String>, root: usize, values: Vec<f32>) -> Ticket<Vec<f32>> {
        let work =
            move |links: &mut Links, call: &Call, values| operations::reduce(links, call, root, values);
        self.begin(("reduce", name), Some(values.len()), values, work)
    }

    /// Sums over all ranks; each rank gets its own [`part`](super::part).
    pub fn reduce_scatter(&self, name: impl Into<String>, values: Vec<f32>) -> Ticket<Vec<f32>> {
        let work = |links: &mut Links, call: &Call, values: Vec<f32>| {
            operations::reduce_scatter(links, call, &values)
        };
        self.begin(("reduce_scatter", name), Some(values.len()), values, work)
    }

    /// All `count` values, of which each rank gives its own [`part`](super::part).
    pub fn all_gather(&self, name: impl Into<String>, own: Vec<f32>, count: usize) -> Ticket<Vec<f32>> {
        let work = move |links: &mut Links, call: &Call, own: Vec<f32>| {
            operations::all_gather(links, call, &own, count)
        };
        self.begin(("all_gather", name), Some(count), own, work)
    }

    /// The bytes of `root`.
    pub fn broadcast(&self, name: impl Into<String>, root: usize, own: Vec<u8>) -> Ticket<Vec<u8>> {
        let work = move |links: &mut Links, call: &Call, own| {
            let limit = links.limit;
            operations::broadcast(links, call, (root, limit), own)
        };
        self.begin(("broadcast", name), None, own, work)
    }

    /// As [`broadcast`](Self::broadcast), but the others wait for `root` as long as it is there: it may be writing files.
    /// If it hangs, the cell's own time limit ends all of them.
    pub fn broadcast_when_ready(
        &self,
        name: impl Into<String>,
        root: usize,
        own: Vec<u8>,
    ) -> Ticket<Vec<u8>> {
        let from = (root, Duration::MAX);
        let work = move |links: &mut Links, call: &Call, own| operations::broadcast(links, call, from, own);
        self.begin(("broadcast", name), None, own, work)
    }

    /// The bytes of every rank, in the order of ranks; lengths may differ.
    pub fn collect(&self, name: impl Into<String>, own: Vec<u8>) -> Ticket<Vec<Vec<u8>>> {
        let work = |links: &mut Links, call: &Call, own| operations::collect(links, call, own);
        let Some(jobs) = self.jobs.as_ref().filter(|_| self.size() > 1) else {
            return self.ready(vec![own]);
        };
        self.submit(jobs, ("collect", name.into()), None, own, work)
    }

    /// Returns once every rank has come here.
    pub fn barrier(&self, name: impl Into<String>) {
        self.collect(name, Vec::new()).wait();
    }

    /// Tells the ranks that take part that this rank has reached an operation of the GPUs.
    pub(super) fn come(&self, turn: Turn) {
        let job: Job = Some(Box::new(move |links: &mut Links| links.come(turn)));
        // The thread ends after the world.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
    }

    /// Sends bytes to one other rank.
    pub fn send(&self, name: impl Into<String>, to: usize, bytes: Vec<u8>) -> Ticket<()> {
        let jobs = self.jobs.as_ref().expect("there is another rank");
        let pair = ProcessGroup { ranks: pair(self.rank, to), ..self.clone() };
        let name = (direction(self.rank < to), name.into());
        let count = Some(bytes.len());
        pair.submit(jobs, name, count, bytes, move |links, call, bytes| links.send(to, &call.text, &bytes))
    }

    /// Receives `count` bytes from one other rank.
    pub fn receive(&self, name: impl Into<String>, from: usize, count: usize) -> Ticket<Vec<u8>> {
        let jobs = self.jobs.as_ref().expect("there is another rank");
        let pair = ProcessGroup { ranks: pair(self.rank, from), ..self.clone() };
        let name = (direction(from < self.rank), name.into());
        pair.submit(jobs, name, Some(count), (), move |links, call, ()| {
            links.receive(from, &call.text, count)
        })
    }

    /// Begins an operation. In a group of one its result is its input.
    fn begin<T: Send + 'static>(
        &self,
        (operation, name): (&'static str, impl Into<String>),
        count: Option<usize>,
        own: T,
        work: impl FnOnce(&mut Links, &Call, T) -> Result<T, Failure> + Send + 'static,
    ) -> Ticket<T> {
        match self.jobs.as_ref().filter(|_| self.size() > 1) {
            None => self.ready(own),
            Some(jobs) => self.submit(jobs, (operation, name.into()), count, own, work),
        }
    }

    fn submit<O: Send + 'static, T: Send + 'static>(
        &self,
        jobs: &Sender<Job>,
        (operation, name): (&'static str, String),
        count: Option<usize>,
        own: O,
        work: impl FnOnce(&mut Links, &Call, O) -> Result<T, Failure> + Send + 'static,
    ) -> Ticket<T> {
        let (to, result) = channel();
        let (ranks, counters) = (self.ranks.clone(), self.counters.clone());
        let job: Job = Some(Box::new(move |links: &mut Links| {
            let start = Instant::now();
            let result = links.carry_out(|links| {
                let call = Call::next(links, &ranks, (operation, &name), count);
                work(links, &call, own)
            });
            counters.busy.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
            // Nobody may want the result any more.
            let _ = to.send(result);
        }));
        jobs.send(job).expect("the thread ends after the world");
        Ticket { result, counters: self.counters.clone() }
    }

    fn ready<T>(&self, value: T) -> Ticket<T> {
        let (to, result) = channel();
        to.send(Ok(value)).expect("the ticket has the other end");
        Ticket { result, counters: self.counters.clone() }
    }
}

impl<T> Ticket<T> {
    /// Waits for the result.
    ///
    /// # Panics
    /// With a [`Failure`] if the operation failed.
    pub fn wait(self) -> T {
        let start = Instant::now();
        let result = self.result.recv().expect("operations end with a result");
        self.counters.exposed.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
        result.unwrap_or_else(|failure| failure.end())
    }
}

fn pair(a: usize, b: usize) -> Arc<[usize]> {
    Arc::new([a.min(b), a.max(b)])
}

/// The name of the operation; `up`: the message goes to the higher rank.
fn direction(up: bool) -> &'static str {
    if up { "message up" } else { "message down" }
}

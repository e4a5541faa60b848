//! The thread that calls NCCL, and [`State`]: what is known of its operations.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn::tensor::DType;

use super::super::nccl::{Collective, Communicator};
use super::super::{CopyStream, Event, Gpu, Later};
use super::bells::Bells;
use super::{Crossed, GRACE, LOOK, Shared, Turn, UnderWay};
use crate::common::locked;

/// How often the thread asks NCCL how it is while there is nothing to do.
const CHECK: Duration = Duration::from_millis(100);

/// Between two looks at whether a message has come: short against the 0.1 ms that one of 24 MiB takes over NVLink.
const PAUSE: Duration = Duration::from_micros(20);

/// An operation that CubeCL's thread has come to.
pub struct Job {
    pub turn: Turn,
    pub operation: String,
    pub collective: Collective,
    pub places: Vec<Place>,
    /// Of the numbers in all places.
    pub dtype: DType,
    /// Once the places hold what is to be summed or copied.
    pub ready: Arc<Event>,
    pub issued: Sender<Result<Issued, String>>,
    /// Once a result is needed.
    pub reached: Later,
}

/// Where a tensor lies.
pub struct Place {
    /// Address of `bytes` bytes.
    pub buffer: u64,
    pub bytes: usize,
    /// Keeps the tensor there.
    pub _kept: Box<dyn Send>,
}

/// An operation that NCCL has taken.
pub struct Issued {
    /// Recorded behind it.
    pub ended: Arc<Event>,
    /// Keep the tensors where they are.
    pub places: Vec<Place>,
}

/// An operation that the device may not have done yet.
pub struct Running {
    turn: Turn,
    operation: String,
    began: Event,
    ended: Arc<Event>,
    reached: Later,
}

#[derive(Default)]
pub struct State {
    /// Operations so far, by the other one of two ranks.
    begun: HashMap<Option<usize>, u64>,
    pub crossed: Crossed,
    /// In the order in which the device does them.
    pub under_way: VecDeque<Running>,
    /// The operation of the call to NCCL that is running.
    told: Option<UnderWay>,
    /// The operation that the device is at, and when that was first seen.
    seen: Option<(Turn, Instant)>,
    pub failure: Option<String>,
}

impl State {
    /// The next operation with this rank, or with all.
    pub fn next(&mut self, peer: Option<usize>) -> Turn {
        let begun = self.begun.entry(peer).or_default();
        *begun += 1;
        Turn { peer, number: *begun }
    }

    /// Adds up what has ended and whose result was asked for; the device's context is current.
    pub fn fold(&mut self) {
        while let Some(first) = self.under_way.front() {
            let Some(reached) = first.reached.event() else { return };
            match first.ended.reached().and_then(|ended| Ok(ended && reached.reached()?)) {
                Ok(false) => return,
                Ok(true) => {
                    self.crossed.busy += first.ended.seconds_since(&first.began);
                    self.crossed.exposed += first.ended.seconds_since(reached).max(0.0);
                }
                // Whoever computes on the device hears of its failure.
                Err(_) => {}
            }
            self.under_way.pop_front();
        }
    }

    /// The first operation that the device or NCCL is at.
    pub fn first_under_way(&mut self) -> Option<UnderWay> {
        if self.told.is_some() {
            return self.told.clone();
        }
        // A device that fails is at none.
        let at = self.under_way.iter().find(|running| !running.ended.reached().unwrap_or(true))?;
        if !at.began.reached().unwrap_or(false) {
            return None;
        }
        let (turn, since) = match self.seen {
            Some(seen) if seen.0 == at.turn => seen,
            _ => *self.seen.insert((at.turn, Instant::now())),
        };
        Some(UnderWay { turn, operation: at.operation.clone(), since })
    }
}

/// Connects this rank, sends the outcome to `answer`, and carries out the jobs until the last, `None`.
pub fn serve(
    gpu: &'static Gpu,
    (id, rank, ranks): (&[u8], usize, usize),
    jobs: &Receiver<Option<Job>>,
    shared: &Shared,
    answer: &Sender<Result<(), String>>,
) {
    gpu.context.bind();
    let bells = Bells::open(gpu, id, rank, ranks);
    let made = Communicator::join(id, rank, ranks).and_then(|made| Ok((made, CopyStream::new(gpu, true)?)));
    let (communicator, stream) = match made {
        Ok(made) => made,
        Err(reason) => {
            // Whoever asked may have waited for long enough.
            let _ = answer.send(Err(reason));
            return;
        }
    };
    let bells = bells.map(Bells::met);
    let _ = answer.send(Ok(()));
    loop {
        match jobs.recv_timeout(CHECK) {
            Ok(Some(job)) => carry_out(&communicator, &stream, (job, bells.as_ref()), shared),
            Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let failure = communicator.check().err();
                let mut state = locked(&shared.state);
                state.failure = state.failure.take().or(failure);
            }
        }
        locked(&shared.state).fold();
    }
    // Ending a communicator also ends what is under way.
    let deadline = Instant::now() + GRACE;
    let running =
        || locked(&shared.state).under_way.iter().any(|running| !running.ended.reached().unwrap_or(true));
    while !shared.abandoned.load(Relaxed) && running() && Instant::now() < deadline {
        sleep(LOOK);
    }
    drop(communicator);
    drop(stream);
    if running() {
        // The device may still write there.
        std::mem::forget(bells);
    }
}

fn carry_out(
    communicator: &Communicator,
    stream: &CopyStream,
    (job, bells): (Job, Option<&Bells>),
    shared: &Shared,
) {
    let Job { turn, operation, collective, places, dtype, ready, issued, reached } = job;
    let failure = {
        let mut state = locked(&shared.state);
        state.told = Some(UnderWay { turn, operation: operation.clone(), since: Instant::now() });
        state.failure.clone()
    };
    let stream = stream.raw().stream();
    ready.hold(stream);
    let began = Event::record_on(stream);
    let buffers: Vec<_> = places.iter().map(|place| (place.buffer, place.bytes)).collect();
    // SAFETY: CubeCL located so many bytes there, and `places` keep them there until its stream waits for `ended`, which
    // comes behind this, or until this rank fails; what was issued before `ready` has passed when NCCL begins, and nothing
    // issued between `ready` and that wait writes to them, since `Pending` holds the tensors until then. The context is
    // current on this thread, and ranks begin the same operations in the same order.
    let enqueue = || unsafe { communicator.enqueue(collective, &buffers, dtype, stream) };
    let met = || match (bells, collective) {
        (Some(bells), Collective::Send { to }) => bells.ring(to, turn.number, stream),
        (Some(bells), Collective::Receive { from }) => until_sent(bells, (from, turn.number), &ready, shared),
        _ => Ok(()),
    };
    let taken = failure.map_or(Ok(()), Err).and_then(|()| met()).and_then(|()| enqueue());
    let ended = Arc::new(Event::record_on(stream));
    let mut state = locked(&shared.state);
    state.told = None;
    let result = match taken {
        Ok(()) => {
            state.under_way.push_back(Running { turn, operation, began, ended: ended.clone(), reached });
            Ok(Issued { ended, places })
        }
        Err(reason) => {
            state.failure.get_or_insert_with(|| reason.clone());
            Err(reason)
        }
    };
    drop(state);
    // Where nobody receives the result, CubeCL's thread has ended.
    let _ = issued.send(result);
}

/// Waits until the sender's device has come to this message. The time that a rank may wait begins when this rank's device
/// could have it.
fn until_sent(
    bells: &Bells,
    (from, message): (usize, u64),
    ready: &Event,
    shared: &Shared,
) -> Result<(), String> {
    while !bells.has_rung(from, message) {
        if shared.abandoned.load(Relaxed) {
            return Err("this rank ends".into());
        }
        if !ready.reached().unwrap_or(true) {
            let mut state = locked(&shared.state);
            state.told.iter_mut().for_each(|told| told.since = Instant::now());
        }
        sleep(PAUSE);
    }
    Ok(())
}

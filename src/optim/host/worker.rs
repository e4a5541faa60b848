//! [`Worker`]: a thread that waits for buffers to arrive and does their work, one after the other, each on
//! all cores.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use burn::module::ParamId;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::state::{HostParameters, HostRule, Work};
use crate::common::refusal::refuse;
use crate::device::trace::note_host_work;
use crate::device::{HostMemory, Loan};
use crate::measure::alloc::{NO_DISK, Room};
use crate::optim::{Visit, number};

/// Threads that stay free: one drives the device and one is its backend's.
const FREE_THREADS: usize = 2;

/// What to change where the disk is full.
const DISK_ADVICE: &str = "make room, name another folder by the environment's RUNNER_CACHE, or leave out \
                          offload.optimizer_state";

/// Hands work to the thread, which ends with the last of these.
#[derive(Clone)]
pub struct Worker {
    queue: Sender<Message>,
    /// Nanoseconds of steps.
    busy: Arc<AtomicU64>,
}

enum Message {
    Work {
        id: ParamId,
        work: Work,
        loan: Loan,
        done: Sender<Answer>,
    },
    /// Hands a state out, where there is one, until it is put back.
    Take(ParamId, Sender<Option<HostParameters>>),
    Put(ParamId, HostParameters),
}

type Answer = Result<Box<dyn HostMemory>, String>;

/// A buffer that is at work.
pub struct Pending(Receiver<Answer>);

/// Threads that update: those of the process, of which several ranks have each their share, but the free ones.
pub fn updating_threads() -> usize {
    rayon::current_num_threads().saturating_sub(FREE_THREADS).max(1)
}

impl Worker {
    /// # Panics
    /// When the system has no threads to give.
    pub fn new(rule: HostRule, room: Room) -> Self {
        let (queue, jobs) = channel::<Message>();
        let busy = Arc::new(AtomicU64::new(0));
        let pool = ThreadPoolBuilder::new()
            .num_threads(updating_threads())
            .thread_name(|i| format!("optimizer-{i}"))
            .build()
            .expect("the system has threads");
        let step_time = busy.clone();
        let serve = move || {
            let mut states = HashMap::new();
            for request in jobs {
                // Whoever asked may be gone: a cell that ends does not wait.
                match request {
                    Message::Work { id, work, loan, done } => {
                        let _ =
                            done.send(answer((&rule, &room), &pool, &mut states, id, work, loan, &step_time));
                    }
                    Message::Take(id, taker) => {
                        let _ = taker.send(states.remove(&id));
                    }
                    Message::Put(id, state) => {
                        states.insert(id, state);
                    }
                }
            }
        };
        std::thread::Builder::new().name("optimizer".into()).spawn(serve).expect("the system has threads");
        Self { queue, busy }
    }

    /// Queues work on the buffer of the parameters whose state is kept under `id`.
    pub fn submit(&self, id: ParamId, loan: Loan, work: Work) -> Pending {
        let (done, pending) = channel();
        // A thread that is gone is noticed by who waits.
        let _ = self.queue.send(Message::Work { id, work, loan, done });
        Pending(pending)
    }

    /// The state kept under `id`, where there is one, behind all work that is queued.
    ///
    /// # Panics
    /// When the thread has ended.
    pub fn visit(&self, id: ParamId, visit: &mut Visit) {
        let (taker, taken) = channel();
        let _ = self.queue.send(Message::Take(id, taker));
        let Some(mut state) = taken.recv().expect("the optimizer on the host works") else { return };
        state.visit(visit);
        let _ = self.queue.send(Message::Put(id, state));
    }

    /// Seconds that steps have taken since the last call, the wait for gradients left out.
    pub fn take_seconds(&self) -> f64 {
        Duration::from_nanos(self.busy.swap(0, Relaxed)).as_secs_f64()
    }
}

impl Pending {
    /// The buffer, its work done.
    ///
    /// # Panics
    /// When the buffer does not arrive, or the host has no memory for its state.
    pub fn wait(self) -> Box<dyn HostMemory> {
        match self.0.recv() {
            Ok(Ok(memory)) => memory,
            Ok(Err(reason)) if reason.starts_with(NO_DISK) => refuse(format!("{reason}: {DISK_ADVICE}")),
            Ok(Err(reason)) => panic!("the optimizer on the host: {reason}"),
            Err(_) => panic!("the optimizer on the host has ended"),
        }
    }
}

fn answer(
    (rule, room): (&HostRule, &Room),
    pool: &ThreadPool,
    states: &mut HashMap<ParamId, HostParameters>,
    id: ParamId,
    work: Work,
    Loan { mut memory, arrival }: Loan,
    busy: &AtomicU64,
) -> Answer {
    arrival()?;
    if let Work::Adopt { elements, dtype } = work {
        let mut parameters = HostParameters::new(rule, elements, dtype, room)?;
        parameters.set_number(number(id));
        states.insert(id, parameters);
    }
    let state = states.get_mut(&id).expect("parameters are adopted first");
    let start = Instant::now();
    pool.install(|| state.apply(work, &mut *memory));
    if matches!(work, Work::Step(_)) {
        busy.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
        note_host_work(start);
    }
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::alloc::Uncounted;
    use crate::optim::host::HostStep;
    use crate::optim::{AdamW, Rule};
    use burn::tensor::DType;

    fn loan(values: &[f32], arrival: Result<(), String>) -> Loan {
        let mut memory = Uncounted::new(4 * values.len()).unwrap();
        memory.copy_from_slice(bytemuck::cast_slice(values));
        Loan { memory: Box::new(memory), arrival: Box::new(|| arrival) }
    }

    fn worker(rule: &AdamW) -> Worker {
        Worker::new(rule.on_host().expect("AdamW runs there"), Room::Memory)
    }

    fn values(memory: &dyn HostMemory) -> Vec<f32> {
        bytemuck::cast_slice(memory.bytes()).to_vec()
    }

    /// Two parameters, each with its own state: a step goes against the gradient's sign, lr far.
    #[test]
    fn buffers_come_back_with_their_own_weights() {
        let worker = worker(&AdamW { lr: 0.5, weight_decay: 0.0, ..AdamW::default() });
        let (one, other) = (ParamId::new(), ParamId::new());
        let work = |id, values: &[f32], work| worker.submit(id, loan(values, Ok(())), work);
        let adopt = |elements| Work::Adopt { elements, dtype: DType::F32 };
        for pending in [work(one, &[1.0, 2.0], adopt(2)), work(other, &[-3.0], adopt(1))] {
            pending.wait();
        }
        assert_eq!(worker.take_seconds(), 0.0, "only steps count");
        let step = Work::Step(HostStep::FULL);
        let pending = [work(other, &[0.1], step), work(one, &[-0.1, 0.1], step)];
        let [other, one] = pending.map(|pending| values(&*pending.wait()));
        for (ours, exact) in other.iter().chain(&one).zip([-3.5, 1.5, 1.5]) {
            assert!((ours - exact).abs() < 1e-5, "{other:?} {one:?}");
        }
        assert!(worker.take_seconds() > 0.0);
    }

    /// Its work begins behind the copy, however long that takes, and is not given up.
    #[test]
    fn a_buffer_is_waited_for_until_it_arrives() {
        let worker = worker(&AdamW::default());
        let (arrives, arrived) = channel();
        let arrival = Box::new(move || arrived.recv().map_err(|_| "the copy was given up".to_string()));
        let late = Loan { arrival, ..loan(&[1.0], Ok(())) };
        let pending = worker.submit(ParamId::new(), late, Work::Adopt { elements: 1, dtype: DType::F32 });
        assert!(pending.0.recv_timeout(Duration::from_millis(100)).is_err(), "the copy is still under way");
        arrives.send(()).expect("the worker waits");
        assert_eq!(values(&*pending.wait()), [1.0]);
    }

    #[test]
    #[should_panic(expected = "the optimizer on the host: the device failed")]
    fn a_buffer_that_does_not_arrive_ends_the_cell() {
        let worker = worker(&AdamW::default());
        let lost = Err("the device failed".into());
        worker
            .submit(ParamId::new(), loan(&[1.0], lost), Work::Adopt { elements: 1, dtype: DType::F32 })
            .wait();
    }
}

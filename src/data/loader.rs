//! [`Loader`]: batches in the order of their draws, made ready by threads while the model computes.

mod maker;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Collated, Collator, DataError, Draws, Position, SamplingPlan, Stream};
use maker::Maker;

/// A batch takes milliseconds; after this long a thread hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// Before a batch a buffer of text may be read and tokenised.
const LIMIT_OF_BUFFER: Duration = Duration::from_secs(3600);
/// How long the threads may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// A batch and how it came.
pub struct Loaded<T> {
    pub batch: T,
    /// Of the batch behind it.
    pub next: Position,
    /// Seconds the training loop waited until it was ready.
    pub stall: f64,
}

/// What a thread makes of the batch that it has collated.
pub type Finish<T> = fn(Collated) -> T;

type Message<T> = Result<(T, Position), DataError>;

/// See the module. Dropping it ends its threads.
pub struct Loader<T> {
    ways: Ways<T>,
    limit: Duration,
}

enum Ways<T> {
    /// In the training loop itself.
    Inline(Box<Maker<T>>),
    /// Each thread makes every n-th batch; batches are taken from them in turn.
    Threads { workers: Vec<Worker<T>>, turn: usize },
}

struct Worker<T> {
    /// `None` once the threads are to end.
    ready: Option<Receiver<Message<T>>>,
    /// `None` once it has ended.
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Loader<T> {
    /// The batches from `start` on, by `data.num_workers` threads with `data.prefetch_factor` batches
    /// ready each.
    pub fn new(plan: &SamplingPlan, collator: &Arc<Collator>, start: Position, finish: Finish<T>) -> Self {
        let threads = plan.config.num_workers;
        let maker = |skip| {
            let draws = Draws::new(plan.clone(), start);
            Maker { draws, collator: collator.clone(), rest: None, finish, skip }
        };
        let worker = |first| {
            let mut maker = maker(threads - 1);
            maker.draws.by_ref().take(first).for_each(drop);
            Worker::start(maker, plan.config.prefetch_factor)
        };
        let ways = match threads {
            0 => Ways::Inline(Box::new(maker(0))),
            _ => Ways::Threads { workers: (0..threads).map(worker).collect(), turn: 0 },
        };
        Self { ways, limit: LIMIT }
    }

    /// The batches of the first buffer of a stream and then of the others, from `start` on, whose epoch is the number of a
    /// buffer; by one thread at most.
    ///
    /// # Errors
    /// When the text before `start` cannot be read.
    pub fn streamed(
        plan: &SamplingPlan,
        collator: &Arc<Collator>,
        stream: Stream,
        start: Position,
        finish: Finish<T>,
    ) -> Result<Self, DataError> {
        let maker = Maker::streamed(plan.clone(), collator.clone(), stream, start, finish)?;
        let ways = match plan.config.num_workers {
            0 => Ways::Inline(Box::new(maker)),
            _ => Ways::Threads { workers: vec![Worker::start(maker, plan.config.prefetch_factor)], turn: 0 },
        };
        Ok(Self { ways, limit: LIMIT_OF_BUFFER })
    }

    /// The next batch.
    ///
    /// # Errors
    /// When it cannot be made, when no batch can be, or when none comes in time.
    ///
    /// # Panics
    /// As the thread that should have made it did.
    pub fn load(&mut self) -> Result<Loaded<T>, DataError> {
        let start = Instant::now();
        let (batch, next) = match &mut self.ways {
            Ways::Inline(maker) => maker.make()?,
            Ways::Threads { workers, turn } => {
                let count = workers.len();
                let worker = &mut workers[*turn];
                *turn = (*turn + 1) % count;
                worker.receive(self.limit)?
            }
        };
        Ok(Loaded { batch, next, stall: start.elapsed().as_secs_f64() })
    }
}

impl<T: Send + 'static> Worker<T> {
    fn start(mut maker: Maker<T>, ready: usize) -> Self {
        // One more is made while as many lie ready.
        let (sender, receiver): (SyncSender<Message<T>>, _) = sync_channel(ready);
        let thread = std::thread::spawn(move || {
            loop {
                let message = maker.make();
                let failed = message.is_err();
                // Waits for the training loop to take a batch; refused when it has gone.
                if sender.send(message).is_err() || failed {
                    return;
                }
            }
        });
        Self { ready: Some(receiver), thread: Some(thread) }
    }

    fn receive(&mut self, limit: Duration) -> Message<T> {
        let ready = self.ready.as_ref().expect("taken away only when the loader is dropped");
        match ready.recv_timeout(limit) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => Err(DataError::new(format!(
                "no batch came from a loader thread within {} s; set data.num_workers to 0 to load in the \
                 training loop",
                limit.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => match self.thread.take().map(JoinHandle::join) {
                Some(Err(panic)) => resume_unwind(panic),
                _ => Err(DataError::new("a loader thread has ended after an error")),
            },
        }
    }
}

impl<T> Drop for Loader<T> {
    fn drop(&mut self) {
        let Ways::Threads { workers, .. } = &mut self.ways else { return };
        workers.iter_mut().for_each(|worker| worker.ready = None);
        let start = Instant::now();
        // Each ends at its next batch. One that hangs is left to the end of the process.
        let running = |worker: &Worker<T>| worker.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while workers.iter().any(running) && start.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::{Balanced, Packed, Sampler, SamplerConfig, Standard};
    use super::super::{Samples, Share, Tokenize, Tokenizer};
    use super::*;

    /// 50 samples of one letter and more.
    fn loader<T: Send + 'static>(
        num_workers: usize,
        finish: Finish<T>,
        change: fn(&mut SamplerConfig),
    ) -> (Loader<T>, Arc<Collator>) {
        loader_of(4, num_workers, finish, change)
    }

    fn loader_of<T: Send + 'static>(
        batch_size: usize,
        num_workers: usize,
        finish: Finish<T>,
        change: fn(&mut SamplerConfig),
    ) -> (Loader<T>, Arc<Collator>) {
        let texts = (0..50).map(|n| "abc".repeat(1 + n % 7)).collect();
        let mut config = SamplerConfig { num_workers, ..SamplerConfig::of(Sampler::Standard(Standard {})) };
        change(&mut config);
        let tokenizer = Tokenizer::train(&[], 257).unwrap();
        let samples = Samples::new(texts, &tokenizer, 16, Tokenize::Once).unwrap();
        let lengths = Arc::new(samples.lengths());
        let max_length = 16;
        let plan = SamplingPlan { config, lengths, batch_size, max_length, seed: 1 };
        let share = Share::WHOLE;
        let collator = Arc::new(Collator {
            samples,
            config,
            batch_size,
            max_length,
            start: None,
            virtual_tokens: None,
            share,
        });
        (Loader::new(&plan, &collator, Position::default(), finish), collator)
    }

    #[test]
    fn threads_change_neither_the_batches_nor_their_order() {
        for change in [
            |_: &mut SamplerConfig| (),
            |config: &mut SamplerConfig| config.sampler = Sampler::Balanced(Balanced { k: 4 }),
            |config: &mut SamplerConfig| config.sampler = Sampler::Packed(Packed::default()),
        ] {
            let take = |num_workers| {
                let (mut loader, _) = loader(num_workers, |batch| batch, change);
                (0..40).map(|_| loader.load().map(|l| (l.batch, l.next)).unwrap()).collect::<Vec<_>>()
            };
            let inline = take(0);
            assert!(inline.iter().filter(|(_, next)| next.begins_epoch()).count() >= 2);
            for num_workers in [1, 3] {
                assert_eq!(take(num_workers), inline);
            }
        }
    }

    #[test]
    fn threads_end_with_the_loader() {
        let (mut loader, collator) = loader(2, |batch| batch, |_| ());
        loader.load().unwrap();
        assert_eq!(Arc::strong_count(&collator), 3);
        drop(loader);
        assert_eq!(Arc::strong_count(&collator), 1);
    }

    #[test]
    fn what_stops_a_thread_reaches_the_training_loop() {
        let (mut loader, _) = loader(1, |batch: Collated| assert!(batch.rows < 4, "too many rows"), |_| ());
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loader.load().map(|_| ())));
        let panic = panic.unwrap_err();
        assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("too many rows")));
    }

    #[test]
    fn a_wait_has_a_limit() {
        let (mut loader, _) = loader(1, |_| std::thread::sleep(Duration::from_millis(300)), |_| ());
        loader.limit = Duration::from_millis(5);
        let message = loader.load().map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("no batch came"), "{message}");
    }

    #[test]
    fn a_sampler_without_a_batch_says_so() {
        let all = |config: &mut SamplerConfig| config.drop_last = true;
        let (mut loader, _) = loader_of(60, 1, |batch| batch, all);
        let message = loader.load().map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("drop_last leaves out all"), "{message}");
    }
}

//! The CUDA [`Meter`]: device events for time, CubeCL's and the driver's figures for memory, and
//! losses read one step late, so that the host never waits inside a step.
//!
//! Warm-up steps are observed for memory and not timed; measured steps are timed and not observed. What is between steps
//! is neither.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Instant;

use burn::tensor::Tensor;
use cubecl::bytes::Bytes;
use cubecl::client::Client;

use super::pinned::pinned;
use super::{Event, Gpu, PeakObservation, Usage, buffer, out_of_memory};
use crate::measure::{Measured, Meter, Phase, Seconds, Stop, after_last_update, divergence};

/// The device's answer to a read: it arrives in page-locked memory without the host waiting.
type Read = Pin<Box<dyn Future<Output = Result<Vec<Bytes>, String>> + Send>>;

/// A phase of a measured step on the device's clock.
struct Span {
    step: usize,
    phase: Phase,
    start: Rc<Event>,
    end: Rc<Event>,
}

/// What is being read of a step.
#[derive(Default)]
struct Pending {
    /// Losses, which add up.
    losses: Vec<Read>,
    numbers: Option<Read>,
}

pub struct CudaMeter {
    gpu: &'static Gpu,
    /// A read refers to its client until it arrives; a process has one meter.
    client: &'static Client,
    /// Held before the network was built: scratch memory of the matrix products.
    base: Usage,
    observation: Option<PeakObservation>,
    /// End of what came before, in measured steps.
    since: Option<Rc<Event>>,
    spans: Vec<Span>,
    /// By measured step: backward of a graph, whose span is one of forward.
    backwards: Vec<(usize, Seconds)>,
    /// Measured steps begun.
    measured: usize,
    /// The steps whose loss is not known yet.
    pending: VecDeque<Pending>,
    result: Measured,
}

impl CudaMeter {
    /// Counts memory from here on.
    pub fn new(gpu: &'static Gpu) -> Self {
        gpu.synchronize();
        gpu.release_memory();
        Self {
            gpu,
            client: Box::leak(Box::new(gpu.client())),
            base: Usage::now(gpu),
            observation: None,
            since: None,
            spans: Vec::new(),
            backwards: Vec::new(),
            measured: 0,
            pending: VecDeque::new(),
            result: Measured::default(),
        }
    }

    fn mark(&self) -> Rc<Event> {
        Rc::new(Event::record(self.gpu))
    }

    /// Ends a phase of a measured step.
    fn end_span(&mut self, phase: Phase) {
        let Some(start) = self.since.take() else { return };
        let end = self.mark();
        self.spans.push(Span { step: self.measured - 1, phase, start, end: end.clone() });
        self.since = Some(end);
    }

    /// Notes the memory of a phase that has just been issued.
    fn note_memory(&mut self, phase: Phase) {
        let Some(observation) = &self.observation else { return };
        let now = Usage::now(self.gpu);
        let (live, reserved) = observation.take_peaks();
        let above = |bytes: u64, base: u64| bytes.saturating_sub(base);
        let memory = &mut self.result.memory;
        let peak = above(live.max(now.live), self.base.live);
        let reserved = above(reserved.max(now.reserved), self.base.reserved);
        memory.note(phase, above(now.live, self.base.live), peak);
        memory.reserved_peak = memory.reserved_peak.max(Some(reserved));
        memory.driver_peak = memory.driver_peak.max(Some(now.driver));
    }

    /// Waits for the loss of the oldest step whose loss is not known yet.
    fn arrive(&mut self) -> Result<(), Stop> {
        let Some(step) = self.pending.pop_front() else { return Ok(()) };
        self.result.losses.push(sum(step.losses)?);
        if let Some(read) = step.numbers {
            self.result.noted.push(arrived(read)?);
        }
        divergence(&self.result.losses).map_or(Ok(()), Err)
    }

    fn arrive_all(&mut self) -> Result<(), Stop> {
        while !self.pending.is_empty() {
            self.arrive()?;
        }
        Ok(())
    }

    /// The times of all phases so far, which the device has done.
    fn take_times(&mut self) {
        self.result.seconds.iter_mut().for_each(|of_phase| of_phase.resize(self.measured, 0.0));
        for Span { step, phase, start, end } in self.spans.drain(..) {
            self.result.seconds[phase as usize][step] += end.seconds_since(&start);
        }
        for (step, seconds) in self.backwards.drain(..) {
            let backward = seconds();
            self.result.seconds[Phase::Forward as usize][step] -= backward;
            self.result.seconds[Phase::Backward as usize][step] += backward;
        }
    }

    /// Reads fp32 numbers without waiting for them.
    fn read(&mut self, numbers: Tensor<1>) -> Read {
        let read = self.client.read_async(vec![buffer(numbers).handle]);
        if self.since.is_some() {
            // The copy belongs to no phase.
            self.since = Some(self.mark());
        }
        Box::pin(async move { read.await.map_err(|e| format!("{e:?}")) })
    }
}

/// The sum of losses whose reads were issued some time ago.
fn sum(losses: Vec<Read>) -> Result<f64, Stop> {
    losses.into_iter().try_fold(0.0, |sum, read| Ok(sum + f64::from(arrived(read)?[0])))
}

/// The numbers of a read that was issued some time ago.
fn arrived(read: Read) -> Result<Vec<f32>, Stop> {
    let bytes = cubecl::future::block_on(read).map_err(|error| match out_of_memory(&error) {
        Some(reason) => Stop::OutOfMemory { reason },
        None => panic!("the loss cannot be read: {error}"),
    })?;
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Ok(bytes[0].chunks_exact(4).map(number).collect())
}

impl Meter for CudaMeter {
    /// NVRTC compiles each kernel at its first launch, and CubeCL tries several variants of its
    /// reductions, with scratch buffers of gigabytes. Large matrix products are tuned here and nowhere
    /// else, so that no step of the measurement contains a trial.
    fn prepare(&mut self, work: &dyn Fn(), on_tuned: fn(usize)) {
        on_tuned(0);
        let tuning = self.gpu.allow_tuning(on_tuned);
        self.compile(work);
        drop(tuning);
    }

    fn compile(&mut self, work: &dyn Fn()) {
        let start = Instant::now();
        work();
        self.gpu.synchronize();
        self.gpu.release_memory();
        *self.result.prepare_seconds.get_or_insert(0.0) += start.elapsed().as_secs_f64();
    }

    fn begin(&mut self, measured: bool) {
        self.pause();
        self.pending.push_back(Pending::default());
        if !measured {
            self.observation = Some(PeakObservation::start(self.gpu));
            return;
        }
        self.measured += 1;
        self.since = Some(self.mark());
    }

    fn end(&mut self, phase: Phase) {
        self.note_memory(phase);
        self.end_span(phase);
    }

    fn end_graph(&mut self, backward: Seconds) {
        self.note_memory(Phase::Backward);
        if self.since.is_some() {
            self.backwards.push((self.measured - 1, backward));
        }
        self.end_span(Phase::Forward);
    }

    fn loss(&mut self, loss: Tensor<1>) {
        let read = self.read(loss);
        self.pending.back_mut().expect("a step has begun").losses.push(read);
    }

    fn note(&mut self, numbers: Tensor<1>) {
        let read = self.read(numbers);
        self.pending.back_mut().expect("a step has begun").numbers = Some(read);
    }

    fn pause(&mut self) {
        if self.observation.take().is_some() {
            // The rest of the warm-up belongs neither to the first measured step nor to what comes before it.
            self.gpu.synchronize();
        }
    }

    fn known(&self) -> &Measured {
        &self.result
    }

    /// Looks at the loss of the step before: the device has computed it long ago, and has this step to work
    /// on meanwhile.
    fn stop(&mut self) -> Option<Stop> {
        while self.pending.len() > 1 {
            if let Err(stop) = self.arrive() {
                return Some(stop);
            }
        }
        None
    }

    fn so_far(&mut self) -> Result<Measured, Stop> {
        self.arrive_all()?;
        self.gpu.synchronize();
        self.take_times();
        Ok(self.result.clone())
    }

    fn resume(&mut self, earlier: Measured) {
        self.measured = earlier.seconds[0].len();
        self.result = earlier;
    }

    fn finish(mut self: Box<Self>, proof: &dyn Fn() -> Tensor<1>) -> Result<Measured, Stop> {
        self.arrive_all()?;
        // CubeCL reports a failed allocation when something that depends on it is read.
        let proof = self.read(proof());
        after_last_update(sum(vec![proof])?)?;
        self.take_times();
        self.result.memory.note_process();
        self.result.memory.pinned = Some(pinned()).filter(|bytes| *bytes > 0);
        Ok(self.result)
    }
}

//! The CPU's [`Meter`]: the host's clock and the counting allocator.

use std::time::Instant;

use burn::tensor::Tensor;

use super::alloc;
use super::meter::{Measured, Meter, Phase, Stop, after_last_update, divergence};

/// The CPU backend computes when it is called, so the clock at the end of a call is the time of
/// its end.
pub struct CpuMeter {
    /// Live bytes before the network was built.
    base: isize,
    measured: bool,
    since: Instant,
    result: Measured,
}

impl CpuMeter {
    /// Counts memory from here on.
    pub fn start() -> Self {
        Self { base: alloc::live(), measured: false, since: Instant::now(), result: Measured::default() }
    }

    fn above_base(&self, bytes: isize) -> u64 {
        (bytes - self.base).max(0) as u64
    }
}

impl Meter for CpuMeter {
    fn reserve(&mut self, steps: usize) {
        let Measured { seconds, losses, noted, .. } = &mut self.result;
        seconds.iter_mut().chain([losses]).for_each(|of_steps| of_steps.reserve(steps));
        noted.reserve(steps);
        self.base = alloc::live();
    }

    /// The CPU has nothing to compile.
    fn prepare(&mut self, _work: &dyn Fn(), _told: fn(usize)) {}

    fn compile(&mut self, _work: &dyn Fn()) {}

    fn begin(&mut self, measured: bool) {
        self.measured = measured;
        if measured {
            self.result.seconds.iter_mut().for_each(|of_phase| of_phase.push(0.0));
        }
        self.result.losses.push(0.0);
        alloc::reset_peak();
        self.since = Instant::now();
    }

    fn end(&mut self, phase: Phase) {
        let seconds = self.since.elapsed().as_secs_f64();
        let (peak, live) = (self.above_base(alloc::peak()), self.above_base(alloc::live()));
        if self.measured
            && let Some(sum) = self.result.seconds[phase as usize].last_mut()
        {
            *sum += seconds;
        }
        self.result.memory.note(phase, live, peak);
        alloc::reset_peak();
        self.since = Instant::now();
    }

    fn loss(&mut self, loss: Tensor<1>) {
        let loss = f64::from(loss.into_scalar::<f32>());
        if let Some(sum) = self.result.losses.last_mut() {
            *sum += loss;
        }
        // Reading the loss belongs to no phase.
        self.since = Instant::now();
    }

    fn note(&mut self, numbers: Tensor<1>) {
        let numbers: Vec<f32> = numbers.into_data().iter::<f32>().collect();
        // What a meter keeps is not the cell's.
        self.base += (numbers.capacity() * size_of::<f32>()) as isize;
        self.result.noted.push(numbers);
        self.since = Instant::now();
    }

    fn known(&self) -> &Measured {
        &self.result
    }

    fn stop(&mut self) -> Option<Stop> {
        divergence(&self.result.losses)
    }

    fn so_far(&mut self) -> Result<Measured, Stop> {
        Ok(self.result.clone())
    }

    fn resume(&mut self, earlier: Measured) {
        self.result = earlier;
    }

    fn finish(mut self: Box<Self>, proof: &dyn Fn() -> Tensor<1>) -> Result<Measured, Stop> {
        self.result.memory.note_process();
        after_last_update(f64::from(proof().into_scalar::<f32>()))?;
        Ok(self.result)
    }
}

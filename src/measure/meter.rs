//! [`Meter`]: follows the steps of a cell and measures time, memory and loss, each device in its
//! own way.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::measure::process::process_peak_rss;
use crate::measure::{Crossing, ProcessMemory, alloc};

/// A phase of a training step, in the order they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Phase {
    /// Batch to loss.
    Forward,
    /// Loss to gradients.
    Backward,
    /// Gradients to new parameters.
    Optimizer,
}

/// Bytes, measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The most live bytes at any moment of any step, above what the process held before the
    /// network was built: tensors and nothing else.
    pub live_peak: u64,
    /// The same, by phase.
    pub forward_peak: u64,
    pub backward_peak: u64,
    pub optimizer_peak: u64,
    /// Live bytes between forward and backward: weights, optimizer state, batch, and what the
    /// checkpoint level keeps.
    pub after_forward: u64,
    /// The most device memory that the backend's pools held, in use or not, above what they held
    /// before; of CUDA devices.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reserved_peak: Option<u64>,
    /// The most device memory that the driver counted as taken, by every process and for every
    /// need, but what a memory limit holds back; of CUDA devices.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver_peak: Option<u64>,
    /// Bytes of page-locked memory on the host that copies go through, after the last step; of CUDA devices.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pinned: Option<u64>,
    /// Bytes of ordinary memory on the host that hold what is not on the device, after the last step:
    /// master weights and moments; on the CPU also what a GPU's host would have page-locked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<u64>,
    /// Bytes of files that hold what an optimizer on the host keeps, after the last step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk: Option<u64>,
    /// The operating system's figure for the whole process at its highest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process_rss_peak: Option<u64>,
    /// What the process had of the host's memory at its highest, page-locked memory included, and file-backed pages.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process: Option<ProcessMemory>,
}

impl MemoryUse {
    /// Notes the live bytes at the end of a phase, and the most of them during it.
    pub fn note(&mut self, phase: Phase, live: u64, peak: u64) {
        let of_phase = match phase {
            Phase::Forward => {
                self.after_forward = self.after_forward.max(live);
                &mut self.forward_peak
            }
            Phase::Backward => &mut self.backward_peak,
            Phase::Optimizer => &mut self.optimizer_peak,
        };
        *of_phase = peak.max(*of_phase);
        self.live_peak = self.live_peak.max(peak);
    }

    /// Notes what holds memory besides the device, after the last step.
    pub fn note_process(&mut self) {
        [self.host, self.disk] = alloc::outside();
        (self.process_rss_peak, self.process) = (process_peak_rss(), ProcessMemory::peak());
    }
}

/// Why a cell's steps end early.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// A loss or a gradient is not finite any more.
    Diverged { reason: String },
    /// The device, or the host in its place, has no more memory.
    OutOfMemory { reason: String },
    /// The cell was asked to stop, and has saved its state after so many steps.
    Asked { step: usize },
}

impl Stop {
    /// In words.
    pub fn reason(self) -> String {
        match self {
            Self::Diverged { reason } | Self::OutOfMemory { reason } => reason,
            Self::Asked { step } => format!("stopped after step {step}"),
        }
    }
}

/// What the steps cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds by [`Phase`], one a measured step.
    pub seconds: [Vec<f64>; 3],
    /// Loss of every step, warm-up included.
    pub losses: Vec<f64>,
    pub memory: MemoryUse,
    /// What crossed the bus in one step more, by the device's records; empty where there are none.
    pub crossings: Vec<Crossing>,
    /// The numbers that [`Meter::note`] took of each step.
    pub noted: Vec<Vec<f32>>,
    /// What [`Meter::prepare`] took; `None` where there is nothing to prepare.
    pub prepare_seconds: Option<f64>,
}

/// Seconds of a phase that a device knows once it has ended it.
pub type Seconds = Box<dyn Fn() -> f64>;

/// Follows steps. Made before the network is built, so that memory is counted from there.
pub trait Meter {
    /// Makes room for the numbers of so many steps, before the network is built: what a meter keeps is not the cell's.
    fn reserve(&mut self, _steps: usize) {}

    /// Lets the device compile and tune its kernels on `work`, a step without its update, before any
    /// step counts; what that takes of memory is given back. `on_tuned` gets 0 at the start, and then the
    /// number of matrix products tuned so far, on the thread that tunes.
    fn prepare(&mut self, work: &dyn Fn(), on_tuned: fn(usize));

    /// As [`Meter::prepare`], without tuning: for work like that of the preparation in another size.
    fn compile(&mut self, work: &dyn Fn());

    /// A step begins; a warm-up step is not `measured`.
    fn begin(&mut self, measured: bool);

    /// A phase ends, which began with the step or with the end of the phase before it.
    fn end(&mut self, phase: Phase);

    /// Forward and backward of a micro-batch end, which ran as one graph. `backward`: what backward took of it.
    fn end_graph(&mut self, _backward: Seconds) {
        unreachable!("only a GPU has graphs")
    }

    /// Takes the loss of this step, or of a micro-batch of it, whose losses add up; [1] in fp32.
    fn loss(&mut self, loss: Tensor<1>);

    /// Takes other numbers of this step, [n] in fp32, once a step and after its last phase; they are known
    /// when its loss is.
    fn note(&mut self, numbers: Tensor<1>);

    /// The step is over. What comes before the next one, such as answers and evaluations, is not followed.
    fn pause(&mut self) {}

    /// What is known of the steps so far without waiting: losses, memory, and the numbers that [`Meter::note`] took.
    fn known(&self) -> &Measured;

    /// Whether what is known of the losses so far ends the cell.
    fn stop(&mut self) -> Option<Stop>;

    /// What the steps so far cost, for another process to go on from. Waits until it is known.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    fn so_far(&mut self) -> Result<Measured, Stop>;

    /// Goes on from what the steps of an earlier process cost.
    fn resume(&mut self, earlier: Measured);

    /// After the last step. `proof` computes the loss once more: it depends on every parameter, and so shows
    /// whether the last update was finite, and on a device that reports late whether it failed.
    fn finish(self: Box<Self>, proof: &dyn Fn() -> Tensor<1>) -> Result<Measured, Stop>;
}

/// Whether the newest loss ends the cell: it is not finite.
pub fn divergence(losses: &[f64]) -> Option<Stop> {
    let loss = losses.last().filter(|loss| !loss.is_finite())?;
    let what = format!("the loss of step {} was {loss}", losses.len());
    Some(match losses.len() {
        1 => Stop::Diverged {
            reason: format!(
                "{what}, before any update: check that the weights are finite, or set a precision.compute with a wider range"
            ),
        },
        _ => diverged(&what),
    })
}

/// The stop of training in which this was not finite, with what to change.
pub fn diverged(what: &str) -> Stop {
    let advice =
        "set a smaller train.optimizer.lr, train.clip_norm, or a precision.compute with a wider range";
    Stop::Diverged { reason: format!("{what}: {advice}") }
}

/// Stops a cell whose loss after the last update, `loss` of the meter's proof, is not finite: no step's loss shows that.
pub fn after_last_update(loss: f64) -> Result<(), Stop> {
    if loss.is_finite() {
        Ok(())
    } else {
        Err(diverged(&format!("after the last update the loss was {loss}")))
    }
}

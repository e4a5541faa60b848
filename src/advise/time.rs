//! How long a step takes, from its work and the rates of its device.
//!
//! An operator takes the longer of two times: its operations over the rate of a large product, and its bytes over that
//! of a large copy; where passes over memory stand between its products, both. Each kernel adds [`RAMP`]. A phase takes no
//! less than what the host needs to launch its kernels. Blocks that move take the time of their copies: with `overlap`
//! during the computation, otherwise between it. An update on the host takes its bytes over the host's rate, and backward
//! of the last micro-batch hides what it can.
//!
//! Shares of rates are constants of this version's kernels. They are fitted to the rows of an H200 that
//! `cargo test predicted_times` walks, which also holds their error.

use strum::VariantArray;

use super::Rates;
use super::adapters::adapters;
use super::moved::{copies, exposed_update};
use crate::common::{Compute, DeviceId};
use crate::device::Capability;
use crate::estimate::{Costs, Load};
use crate::measure::Phase;
use crate::ops::cost::{Work, Works};
use crate::ops::name::OperatorName;
use crate::optim::adamw::cuda::TOGETHER;
use crate::recipe::Cell;
use crate::residence::Strategy;

/// The share of the rate of large products that a network's products reach: in the types of tensor cores, fitted to
/// `results/data_parallel_gpus` and to the steps of 17 to 146 ms in `results/strong`, which are then within 8 %; and in fp32,
/// fitted to `results/swiglu`, within 7 %.
const PRODUCT_SHARE: f64 = 0.89;
const FP32_SHARE: f64 = 1.0;
/// The share of the rate of large fp32 products that attention in fp32 reaches, whose scores pass through memory; fitted to
/// `results/methods` and `results/gpt2_small_amp`, of 512 tokens.
const ATTENTION_SHARE: f64 = 0.12;
/// The share of the rate of large products that attention on a CPU reaches.
const ATTENTION_SHARE_OF_CPU: f64 = 0.39;
/// Operations of fused attention for each fp32 operation of a large product that its softmax takes besides its products: with it
/// attention reaches 0.39 of an H200's rate, fitted to the same steps, of 512 to 2048 tokens. A softmax is work of the CUDA cores,
/// and so takes less beside the tensor cores of a GeForce card, which are slower.
const ATTENTION_OF_FP32: f64 = 10.9;
/// The share of the rate of a large copy that memory-bound kernels reach; fitted to the same steps.
const COPY_SHARE: f64 = 0.75;
/// Bytes that pass through memory for each logit of a step: in fp32 written and read, its gradient written and read
/// by two products.
const LOGIT_BYTES: f64 = 14.0;
/// Seconds that a kernel of a GPU takes besides its work, at its beginning and its end: products of 0.5 to 280 GFLOP in traces
/// of `results/inference` take 3 to 6 µs more than their operations. It is why small products are less efficient.
const RAMP: f64 = 4e-6;
/// The same in a CUDA graph, where the next kernel is ready when one ends; fitted to the recorded steps in `results/strong` and
/// `results/gpt2_large_11gib`.
const RAMP_OF_A_GRAPH: f64 = 2.8e-6;

/// Seconds of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTime {
    pub forward: f64,
    pub backward: f64,
    /// Of the update, what comes after backward.
    pub optimizer: f64,
    /// Of these three, the copies of blocks that no computation hides.
    pub copies: f64,
    /// Besides, the wait of the device for the host to launch its kernels.
    pub launches: f64,
}

impl StepTime {
    /// Seconds of the whole step.
    pub fn total(&self) -> f64 {
        self.forward + self.backward + self.optimizer + self.launches
    }
}

/// The predicted seconds of a cell's step on a device with these rates.
pub fn step_time(cell: &Cell, rates: &Rates) -> StepTime {
    StepTime::new(&Costs::new(cell).load(cell), rates)
}

impl StepTime {
    /// Of a load on a device with these rates.
    pub fn new(load: &Load, rates: &Rates) -> Self {
        let (cell, model) = (load.cell, Model::new(load, rates));
        let [forward, backward, optimizer] = model.phases();
        let [to_forward, to_backward] = copies(load, rates);
        let [with_forward, with_backward] =
            [forward.with(to_forward, cell), backward.with(to_backward, cell)];
        let update = exposed_update(load, rates, with_backward / cell.train.accumulation_steps as f64);
        let busy = with_forward + with_backward + optimizer.device;
        let host = model.launching([forward, backward, optimizer]);
        Self {
            forward: with_forward,
            backward: with_backward,
            optimizer: optimizer.device + update,
            copies: with_forward - forward.device + with_backward - backward.device,
            launches: match cell.device_id() {
                // The CPU computes and launches by turns; a GPU's host runs ahead.
                DeviceId::Cpu => host,
                DeviceId::Cuda(_) => (host - busy).max(0.0),
            },
        }
    }
}

/// Seconds of the host for the launches of a step.
pub fn launching(cell: &Cell, rates: &Rates) -> f64 {
    let costs = Costs::new(cell);
    let load = costs.load(cell);
    let model = Model::new(&load, rates);
    model.launching(model.phases())
}

/// How many times as long a step takes if its host takes `times` as long for a launch. Hosts of one kind of GPU differ by a
/// factor of 2.
pub fn with_launches(cell: &Cell, rates: &Rates, times: f64) -> f64 {
    let other = Rates { launch: times * rates.launch, ..*rates };
    step_time(cell, &other).total() / step_time(cell, rates).total()
}

/// A cell's work at some rates.
struct Model<'a> {
    load: &'a Load<'a>,
    cell: &'a Cell,
    rates: &'a Rates,
    works: Works,
}

/// Seconds of a phase without copies of blocks: of the device's work, and of the host that launches it.
#[derive(Clone, Copy)]
struct Busy {
    device: f64,
    host: f64,
}

impl<'a> Model<'a> {
    fn new(load: &'a Load<'a>, rates: &'a Rates) -> Self {
        Self { load, cell: load.cell, rates, works: load.works() }
    }

    /// Forward, backward and update.
    fn phases(&self) -> [Busy; 3] {
        let again = if self.cell.checkpoint.blocks > 0 || self.cell.offload.moves() { 2 } else { 1 };
        let [forward, backward] = adapters(self.load, self.rates);
        let and = |busy: Busy, seconds: f64| Busy { device: busy.device + seconds, ..busy };
        [
            and(self.phase(Phase::Forward, self.casts() + self.unpacked(1)), forward),
            and(
                self.phase(Phase::Backward, self.sums() + self.unpacked(again)),
                backward + (again - 1) as f64 * forward,
            ),
            self.phase(Phase::Optimizer, self.norm()),
        ]
    }

    /// The host launches a graph of forward and backward by one call.
    fn launching(&self, [forward, backward, optimizer]: [Busy; 3]) -> f64 {
        optimizer.host + if self.cell.train.graph { 0.0 } else { forward.host + backward.host }
    }

    /// A cast reads a weight as it is stored and writes it narrow, once in a step or in each micro-batch, as in a graph of one.
    fn casts(&self) -> Work {
        let Cell { precision, train, .. } = self.cell;
        let once = self.load.workload.keeps_casts() && !train.graph;
        let times = if once { 1 } else { train.accumulation_steps };
        let bytes = precision.stored_bytes() + precision.compute.bytes();
        let parameters = if precision.autocast { self.load.operators.parameters() } else { 0 };
        Work { bytes: (times as u64 * parameters * bytes) as f64, ..Work::default() }
    }

    /// Each micro-batch but the first adds its gradients to the sums.
    fn sums(&self) -> Work {
        let trained = self.load.operators.trained_tensors(self.cell.offload.moves());
        let times = (self.cell.train.accumulation_steps - 1) as u64;
        let bytes = 3 * trained.elements * self.cell.precision.stored_bytes();
        Work {
            bytes: (times * bytes) as f64,
            launches: (times * trained.count.div_ceil(TOGETHER)) as f64,
            ..Work::default()
        }
    }

    /// Weights of 4 bits become numbers for each pass over them.
    fn unpacked(&self, passes: usize) -> Work {
        let operators = &self.load.operators;
        let numbers = if self.cell.tuning.packs() { operators.parameters_of_blocks() } else { 0 };
        let bytes = 0.5 + self.cell.precision.compute.bytes() as f64;
        let times = passes * self.cell.train.accumulation_steps;
        Work { bytes: numbers as f64 * bytes * times as f64, ..Work::default() }
    }

    /// The norm of all gradients reads them.
    fn norm(&self) -> Work {
        let trained = self.load.operators.trained_tensors(self.cell.offload.moves());
        let bytes = (trained.elements * self.cell.precision.stored_bytes()) as f64;
        match self.cell.needs_norm() {
            false => Work::default(),
            true => Work { bytes, launches: trained.count.div_ceil(TOGETHER) as f64, ..Work::default() },
        }
    }

    /// The work of all operators in a phase, and `besides` the work that no operator counts.
    fn phase(&self, phase: Phase, besides: Work) -> Busy {
        let own = OperatorName::VARIANTS.iter().map(|name| (*name, self.works[*name].of(phase)));
        let all = own.chain([(OperatorName::GradientSums, besides)]);
        let ramp = match (self.cell.device_id(), self.cell.train.graph) {
            (DeviceId::Cpu, _) => 0.0,
            (DeviceId::Cuda(_), false) => RAMP,
            (DeviceId::Cuda(_), true) => RAMP_OF_A_GRAPH,
        };
        all.fold(Busy { device: 0.0, host: 0.0 }, |busy, (name, work)| Busy {
            device: busy.device + self.seconds(name, phase, work) + ramp * work.launches,
            host: busy.host + self.rates.launch * work.launches,
        })
    }

    /// Seconds of an operator's kernels, without their ramps.
    fn seconds(&self, name: OperatorName, phase: Phase, work: Work) -> f64 {
        let rate = self.rates.ceilings.matmul(self.cell.precision.compute).unwrap_or(f64::INFINITY);
        let copy = self.rates.ceilings.copy.unwrap_or(f64::INFINITY) * COPY_SHARE;
        let (compute, on_cpu) = (self.cell.precision.compute, self.cell.device_id() == DeviceId::Cpu);
        let fp32 = self.rates.ceilings.matmul_fp32.unwrap_or(f64::INFINITY);
        let softmax = fp32 * self.attention_of_fp32();
        let rate = match (name, compute) {
            (OperatorName::Attention, Compute::Bf16 | Compute::Fp16) if !on_cpu => {
                1.0 / (1.0 / (rate * PRODUCT_SHARE) + 1.0 / softmax)
            }
            (OperatorName::Attention, _) if on_cpu => rate * ATTENTION_SHARE_OF_CPU,
            (OperatorName::Attention, _) => fp32 * ATTENTION_SHARE,
            (_, Compute::Fp32) => rate * FP32_SHARE,
            _ => rate * PRODUCT_SHARE,
        };
        let (operations, bytes) = (work.operations / rate, work.bytes / copy);
        match name {
            // Between the products are the gate, and the softmax of logits.
            OperatorName::Swiglu => operations + bytes,
            OperatorName::Loss => operations + self.logit_bytes(phase) / copy,
            _ => operations.max(bytes),
        }
    }

    /// [`ATTENTION_OF_FP32`], of which multiprocessors with half as many fp32 units have twice as much: they have as many for
    /// exponentials.
    fn attention_of_fp32(&self) -> f64 {
        let is_half = |capability: Capability| capability <= Capability::new(8, 0);
        let times = if self.cell.capability.is_some_and(is_half) { 2.0 } else { 1.0 };
        ATTENTION_OF_FP32 * times
    }

    fn logit_bytes(&self, phase: Phase) -> f64 {
        let Some(shape) = self.cell.model.decoder() else { return 0.0 };
        let tokens = self.cell.train.tokens() * self.cell.train.accumulation_steps;
        let each = match (phase, self.cell.train.mode.trains()) {
            // In fp32 written and read.
            (Phase::Forward, false) => 8.0,
            (Phase::Forward | Phase::Backward, true) => LOGIT_BYTES / 2.0,
            _ => 0.0,
        };
        each * (tokens * shape.vocab_size) as f64
    }
}

impl Busy {
    /// The device's time with so many seconds of copies.
    fn with(self, copies: f64, cell: &Cell) -> f64 {
        let waits = cell.offload.strategy.movement().is_some_and(|movement| movement.host_waits());
        match cell.offload.strategy {
            Strategy::Overlap(_) => self.device.max(copies),
            // The host launches when a block has come, and waits until it is done.
            _ if waits && cell.device_id() != DeviceId::Cpu => self.device + self.host + copies,
            _ => self.device + copies,
        }
    }
}

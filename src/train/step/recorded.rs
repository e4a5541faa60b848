//! [`Recorded`]: forward and backward of a micro-batch as one CUDA graph, `train.graph`.
//!
//! The host launches the thousand kernels of a micro-batch by one call. The first step of a network runs without a graph.
//! The second is recorded and replayed, and later steps are replayed if their batches have the same form. The gradients of
//! several micro-batches are added to sums that begin with zeros: the same additions in the same order as without a graph.
//! They are added as blocks end, so that besides the sums only the gradients of one block are in memory.

use std::sync::{Arc, Mutex};

use burn::module::Module;
use burn::tensor::Tensor;

use super::{End, PhaseEnd, Step};
use crate::common::DeviceId;
use crate::device::cuda::{Gpu, Graph, Input, Mark, Place, Run, write_zeros};
use crate::measure::Phase;
use crate::model::Inputs;
use crate::ops::name::OperatorName;
use crate::ops::parameters::each_parameter;
use crate::optim::{FixedSums, GradientSet};
use crate::parallel::RecordedBucket;
use crate::residence::SlotState;
use crate::train::build::Build;

/// How far a step is with its graph.
pub(super) enum Recording {
    /// The cell has no graph.
    Off,
    /// The next step runs without a graph.
    First,
    /// The next step is recorded.
    Next,
    Done(Box<Recorded>),
    /// There was one.
    Over,
    /// There is none, for this reason.
    Refused(String),
}

pub(super) struct Recorded {
    graph: Graph,
    /// What the graph reads besides the weights.
    inputs: Inputs,
    /// The gradient of the loss, unless it is 1.
    scale: Option<Tensor<1>>,
    /// Between forward and backward.
    middle: Mark,
    /// Where the weights lay when it was recorded.
    weights: Vec<Option<Place>>,
    loss: Tensor<1>,
    /// Of the micro-batch, or the sums of the step; without those in `buckets`.
    gradients: GradientSet,
    /// What replicas sum as soon as the graph has come to it.
    buckets: Vec<RecordedBucket>,
    /// Where blocks that move are before the graph, and after it.
    blocks: [SlotState; 2],
}

/// What a run of forward and backward leaves.
struct Ran {
    loss: Tensor<1>,
    gradients: GradientSet,
    after: SlotState,
    /// Between the two, in a recording.
    middle: Option<Mark>,
}

/// Where each parameter of a module lies.
fn places<M: Module>(module: &M) -> Vec<Option<Place>> {
    let mut places = Vec::new();
    each_parameter(module, |_, value| places.push(Place::of(value.inner())));
    places
}

impl<N: Build> Step<'_, N> {
    /// Sets the sums of a step to zero, if it has several micro-batches and a graph.
    pub(super) fn begin_sums(&mut self, batches: &[N::Batch]) -> Option<FixedSums> {
        let DeviceId::Cuda(ordinal) = self.device else { return None };
        if !self.train.graph || (batches.len() == 1 && self.sums.is_none()) {
            return None;
        }
        let network = self.stage.residence.network();
        let make = || Gpu::open(ordinal).in_place(|| FixedSums::new(network));
        let sums = self.sums.get_or_insert_with(make);
        write_zeros(sums.all());
        Some(sums.clone())
    }

    /// Runs forward and backward of all micro-batches by the graph; `false` if there is none for these batches.
    pub(super) fn replay(&mut self, batches: &[N::Batch], end: &mut End) -> bool {
        self.recording = match std::mem::replace(&mut self.recording, Recording::Off) {
            Recording::First => Recording::Next,
            Recording::Next => self.record(batches, end),
            other => other,
        };
        let scale = self.scale();
        let Recording::Done(recorded) = &self.recording else { return false };
        let of_its_form = |batch| N::inputs(batch).filter(|inputs| inputs.form == recorded.inputs.form);
        let inputs: Option<Vec<Inputs>> = batches.iter().map(of_its_form).collect();
        let Some(inputs) = inputs else { return false };
        // Not expected: updates write weights in place.
        if places(self.stage.residence.network()) != recorded.weights {
            self.recording = Recording::Refused("an update moved weights to another place".into());
            return false;
        }
        let range = self.device.range(c"graph");
        if let Some((into, from)) = recorded.scale.clone().zip(scale) {
            recorded.graph.refill(&[Input::Float(into)], &[Input::Float(from)]);
        }
        let [before, after] = &recorded.blocks;
        for inputs in inputs {
            self.stage.residence.return_to(before);
            recorded.graph.refill(&recorded.inputs.tensors, &inputs.tensors);
            let backward = recorded.graph.timed_replay(&recorded.middle);
            self.stage.residence.join(after);
            // The next replay overwrites it after everything that reads it.
            end(PhaseEnd::Graph(backward), Some(recorded.loss.clone()));
        }
        let (gradients, loss) = (recorded.gradients.clone(), recorded.loss.clone());
        match &self.replicas {
            None => *self.stage.residence.gradient_set() = gradients,
            Some(replicas) => {
                replicas.sum_recorded(&recorded.buckets, gradients);
                if self.wants_norm() {
                    self.take_sums();
                }
            }
        }
        drop(range);
        if self.train.sync_each_step {
            let _: f32 = loss.into_scalar();
        }
        true
    }

    fn record(&mut self, batches: &[N::Batch], end: &mut End) -> Recording {
        let (Some(inputs), DeviceId::Cuda(ordinal)) = (N::inputs(&batches[0]), self.device) else {
            return Recording::Refused("the launches of a step depend on its batch".into());
        };
        if self.replicas.as_ref().is_some_and(|replicas| !replicas.settle_for_graph()) {
            return Recording::Refused("the host sums gradients over ranks".into());
        }
        let scale = self.scale();
        let residence = &self.stage.residence;
        residence.return_to(&residence.slot_state());
        let before = residence.slot_state();
        let buckets = Arc::<Mutex<Vec<RecordedBucket>>>::default();
        let gpu = Gpu::open(ordinal);
        let recorded = gpu.record(|run| {
            let ran = self.forward_and_backward(run, (&batches[0], scale.clone()), &buckets, end);
            // Before the recording begins: its copies wait for nothing from before.
            if run != Run::Recorded {
                self.stage.residence.return_to(&before);
            }
            ran
        });
        // What is recorded has moved no block.
        self.stage.residence.join(&before);
        // The first run has added to them.
        self.sums.iter().for_each(|sums| write_zeros(sums.all()));
        match recorded {
            Err(reason) => Recording::Refused(reason),
            Ok((graph, Ran { loss, gradients, after, middle })) => Recording::Done(Box::new(Recorded {
                graph,
                inputs,
                scale,
                middle: middle.expect("the last run records"),
                weights: places(self.stage.residence.network()),
                loss,
                gradients,
                buckets: std::mem::take(&mut *buckets.lock().expect("no panic")),
                blocks: [before, after],
            })),
        }
    }

    /// Forward and backward of one micro-batch, scaled, by the launches of the graph. What replicas sum is put in
    /// `buckets`.
    fn forward_and_backward(
        &mut self,
        run: Run,
        (batch, scale): (&N::Batch, Option<Tensor<1>>),
        buckets: &Arc<Mutex<Vec<RecordedBucket>>>,
        end: &mut End,
    ) -> Ran {
        let DeviceId::Cuda(ordinal) = self.device else { unreachable!("only a GPU records") };
        let casts = self.keeps_casts.then(|| self.stage.residence.keep_casts());
        // Of several micro-batches replicas sum only the sums.
        let of_replicas = || self.replicas.as_ref().map(|replicas| replicas.recording_gates(run, buckets));
        let gates = self.sums.as_ref().map(FixedSums::gates).or_else(of_replicas);
        self.stage.residence.fork();
        let loss = self.stage.forward(0, batch);
        drop(gates);
        // The meter reads the memory at the end of forward.
        if run == Run::First {
            end(PhaseEnd::Phase(Phase::Forward), None);
        }
        let middle = (run == Run::Recorded).then(|| Mark::new(Gpu::open(ordinal)));
        let gradients = self.stage.backward(0, scale);
        drop(casts);
        let network = self.stage.residence.network();
        let gradients = match &self.sums {
            None => {
                let mut set = GradientSet::default();
                set.add(network, gradients);
                set
            }
            Some(sums) => {
                let _scope = OperatorName::GradientSums.scope();
                sums.add(network, gradients);
                sums.set(network)
            }
        };
        self.stage.residence.settle();
        Ran { loss, gradients, after: self.stage.residence.slot_state(), middle }
    }

    /// Gives the graph's memory back: what follows runs without it.
    pub fn forget_graph(&mut self) {
        if matches!(self.recording, Recording::Done(_)) {
            self.recording = Recording::Over;
        }
    }

    /// How forward and backward ran; `None` if they were not to be recorded.
    pub fn graph_path(&self) -> Option<String> {
        match &self.recording {
            Recording::Off => None,
            Recording::First | Recording::Next => Some("none: too few steps".into()),
            Recording::Done(_) | Recording::Over => Some("forward and backward are one CUDA graph".into()),
            Recording::Refused(reason) => Some(format!("none: {reason}")),
        }
    }
}

//! [`Recorded`]: forward and backward of a micro-batch as one CUDA graph, `train.graph`.
//!
//! The host launches a step's thousand kernels by one call. The first step of a network runs as without a graph; the second is
//! recorded and replayed, and so are all that follow whose batch has the same form.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

use super::{End, Step};
use crate::device::cuda::{Gpu, Graph, Input, Place, Run};
use crate::measure::Phase;
use crate::model::Inputs;
use crate::optim::GradientSet;
use crate::train::build::Build;
use crate::words::DeviceId;

/// Where a step's forward and backward stand with a graph.
pub(super) enum Recording {
    /// It is not asked for.
    Off,
    /// The step that comes computes what the next one records.
    First,
    Next,
    Done(Box<Recorded>),
    /// Why there is none.
    Refused(String),
}

pub(super) struct Recorded {
    graph: Graph,
    /// What it reads, besides the weights.
    inputs: Inputs,
    /// The gradient of the loss, where it is not 1.
    scale: Option<Tensor<1>>,
    /// Where the weights were.
    weights: Vec<Option<Place>>,
    loss: Tensor<1>,
    gradients: GradientSet,
}

/// Where each parameter of a module lies.
struct Places(Vec<Option<Place>>);

impl ModuleVisitor for Places {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        self.0.push(Place::of(parameter.val().inner()));
    }
}

fn places<M: Module>(module: &M) -> Vec<Option<Place>> {
    let mut places = Places(Vec::new());
    module.visit(&mut places);
    places.0
}

impl<N: Build> Step<'_, N> {
    /// Forward and backward of the batch by a graph; `false`: they are still to be computed.
    pub(super) fn replay(&mut self, batch: &N::Batch, end: &mut End) -> bool {
        self.recording = match std::mem::replace(&mut self.recording, Recording::Off) {
            Recording::First => Recording::Next,
            Recording::Next => self.record(batch, end),
            other => other,
        };
        let scale = self.scale();
        let Recording::Done(recorded) = &self.recording else { return false };
        let Some(inputs) = N::inputs(batch).filter(|inputs| inputs.form == recorded.inputs.form) else {
            return false;
        };
        // Never so far: updates write weights where they are.
        if places(self.stage.residence.network()) != recorded.weights {
            self.recording = Recording::Refused("an update moved weights to another place".into());
            return false;
        }
        let range = self.device.range(c"graph");
        recorded.graph.refill(&recorded.inputs.tensors, &inputs.tensors);
        if let Some((into, from)) = recorded.scale.clone().zip(scale) {
            recorded.graph.refill(&[Input::Float(into)], &[Input::Float(from)]);
        }
        recorded.graph.replay();
        let loss = recorded.loss.clone();
        *self.stage.residence.gradient_set() = recorded.gradients.clone();
        drop(range);
        if self.train.sync_each_step {
            let _: f32 = loss.clone().into_scalar();
        }
        end(Phase::Backward, Some(loss));
        true
    }

    fn record(&mut self, batch: &N::Batch, end: &mut End) -> Recording {
        let (Some(inputs), DeviceId::Cuda(ordinal)) = (N::inputs(batch), self.device) else {
            return Recording::Refused("the launches of a step depend on its batch".into());
        };
        let scale = self.scale();
        let recorded = Gpu::open(ordinal).record(|run| {
            let casts = self.keeps_casts.then(|| self.stage.residence.keep_casts());
            let loss = self.stage.forward(0, batch);
            // For the meter's memory.
            if run == Run::First {
                end(Phase::Forward, None);
            }
            let gradients = self.stage.backward(0, scale.clone());
            drop(casts);
            let mut set = GradientSet::default();
            set.add(self.stage.residence.network(), gradients);
            (loss, set)
        });
        match recorded {
            Err(reason) => Recording::Refused(reason),
            Ok((graph, (loss, gradients))) => {
                let weights = places(self.stage.residence.network());
                Recording::Done(Box::new(Recorded { graph, inputs, scale, weights, loss, gradients }))
            }
        }
    }

    /// Which way forward and backward took; `None` where no graph is asked for.
    pub fn graph_path(&self) -> Option<String> {
        match &self.recording {
            Recording::Off => None,
            Recording::First | Recording::Next => Some("none: too few steps".into()),
            Recording::Done(_) => Some("forward and backward are one CUDA graph".into()),
            Recording::Refused(reason) => Some(format!("none: {reason}")),
        }
    }
}

//! [`Stages`]: the stages that a rank of a pipeline has, and what goes between them and those of other ranks.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use burn::backend::DispatchTensor;
use burn::module::Module;
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};

use super::division::{Division, Live, outside, stages_of};
use super::record::Recorder;
use super::schedule::{Action, Carries, Message};
use crate::measure::StageTime;
use crate::model::{Network, Output};
use crate::ops::autocast::autocast;
use crate::ops::parameters::flat;
use crate::ops::wide;
use crate::params::table::id;
use crate::residence::Residence;
use crate::world::{Group, Ticket};

/// Forwards and backwards of a profile, of which the least counts.
const TRIALS: usize = 5;

/// Messages that may be on their way at a time: each is in memory.
const MOST_SENT: usize = 64;

/// A rank's stages, while they train.
pub struct Stages<N> {
    pub division: Division,
    device: Device,
    group: Group,
    /// What this rank does in a step.
    actions: Vec<Action>,
    /// Forwards whose backward is still to come.
    live: HashMap<(usize, usize), Live<N>>,
    /// Messages that are on their way here, and results that leave.
    arriving: HashMap<Key, Ticket<Vec<u8>>>,
    leaving: HashMap<Key, Tensor<2>>,
    sent: VecDeque<Ticket<()>>,
    /// The gradient of a tied embedding on the last rank, which the norm counts on the first.
    tied: Option<DispatchTensor>,
    pub recorder: Recorder,
}

type Key = (Carries, usize, usize);

fn key(message: &Message) -> Key {
    (message.carries, message.stage, message.micro_batch)
}

impl<N: Network> Stages<N> {
    pub fn new(division: Division, group: &Group, device: &Device) -> Self {
        let actions = division.order.of_rank(group.rank());
        Self {
            division,
            device: device.clone(),
            group: group.clone(),
            actions,
            live: HashMap::new(),
            arriving: HashMap::new(),
            leaving: HashMap::new(),
            sent: VecDeque::new(),
            tied: None,
            recorder: Recorder::new(),
        }
    }

    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    fn name(message: &Message) -> String {
        let Message { carries, stage, micro_batch, .. } = message;
        let what = match carries {
            Carries::Activation => "output",
            Carries::Gradient => "input gradient",
        };
        format!("{what} of stage {stage} for micro-batch {micro_batch}")
    }

    /// Begins to send what a stage has computed.
    pub fn send(&mut self, message: &Message) {
        let value = self.leaving.remove(&key(message)).expect("it was computed");
        let bytes = value.into_data().as_bytes().to_vec();
        self.sent.push_back(self.group.send(Self::name(message), message.peer, bytes));
        if self.sent.len() > MOST_SENT {
            self.sent.pop_front().expect("there are some").wait();
        }
    }

    /// Begins to receive what another rank computes.
    pub fn receive(&mut self, message: &Message, network: &N, batch: &N::Batch) {
        let (shape, dtype) = network.between(batch);
        let count = shape[0] * shape[1] * dtype.size();
        let ticket = self.group.receive(Self::name(message), message.peer, count);
        self.arriving.insert(key(message), ticket);
    }

    /// Waits until all that was sent has left.
    pub fn finish(&mut self) {
        self.sent.drain(..).for_each(Ticket::wait);
    }

    /// What another rank has computed.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) where it does not come.
    fn arrived(&mut self, key: Key, network: &N, batch: &N::Batch) -> Tensor<2> {
        let ticket = self.arriving.remove(&key).expect("receiving has begun");
        self.tensor(ticket.wait(), network, batch)
    }

    fn tensor(&self, bytes: Vec<u8>, network: &N, batch: &N::Batch) -> Tensor<2> {
        let (shape, dtype) = network.between(batch);
        Tensor::from_data(TensorData::from_bytes_vec(bytes, shape, dtype), (&self.device, dtype))
    }

    /// A stage's output for a micro-batch, outside of the graph, which is kept; of the last one the loss.
    pub fn forward(
        &mut self,
        (stage, micro_batch): (usize, usize),
        network: &N,
        batch: &N::Batch,
    ) -> Option<Tensor<1>> {
        let part = self.division.part(stage);
        let input = (!part.is_first)
            .then(|| self.arrived((Carries::Activation, stage - 1, micro_batch), network, batch));
        self.recorder.begin();
        let (y, live) = self.division.forward(&part, network, batch, input);
        self.live.insert((stage, micro_batch), live);
        let loss = match y {
            Output::Hidden(y) => {
                self.leaving.insert((Carries::Activation, stage, micro_batch), y);
                None
            }
            Output::Loss(loss) => Some(loss),
        };
        self.recorder.end(Action::Forward { stage, micro_batch });
        loss
    }

    /// A stage's gradients for a micro-batch, with the network that they are of where that is not the one of now. `scale`:
    /// of the loss.
    pub fn backward(
        &mut self,
        (stage, micro_batch): (usize, usize),
        network: &N,
        batch: &N::Batch,
        scale: Option<Tensor<1>>,
    ) -> (Gradients, Option<N>) {
        let part = self.division.part(stage);
        let dy = (!part.is_last)
            .then(|| self.arrived((Carries::Gradient, stage + 1, micro_batch), network, batch));
        self.recorder.begin();
        let live = self.live.remove(&(stage, micro_batch)).expect("forward comes before backward");
        let (found, dx, own) = self.division.backward(&part, live, network, batch, (dy, scale));
        if let Some(dx) = dx {
            self.leaving.insert((Carries::Gradient, stage, micro_batch), dx);
        }
        self.recorder.end(Action::Backward { stage, micro_batch });
        (found, own)
    }

    /// What this rank's stages take for a micro-batch, one rank after the other.
    pub fn profile(&mut self, network: &N, batch: &N::Batch) {
        for turn in 0..self.group.size() {
            self.group.barrier(format!("profile of rank {turn}"));
            if turn == self.group.rank() {
                let stages = stages_of(self.division.order.shape, turn);
                self.recorder.times = stages.map(|stage| self.time(stage, network, batch)).collect();
            }
        }
        self.group.barrier("end of the profiles");
    }

    /// The least of some trials, on inputs without a meaning.
    fn time(&self, stage: usize, network: &N, batch: &N::Batch) -> StageTime {
        let (part, ([rows, columns], dtype)) = (self.division.part(stage), network.between(batch));
        let made_up = || {
            let values = (0..rows * columns).map(|i| ((i % 97) as f32 - 48.0) / 48.0).collect::<Vec<_>>();
            let data = TensorData::new(values, [rows, columns]).convert_dtype(dtype);
            Tensor::<2>::from_data(data, (&self.device, dtype))
        };
        let mut least = StageTime { stage, forward: f64::INFINITY, backward: f64::INFINITY };
        for _ in 0..TRIALS {
            let (x, dy) = ((!part.is_first).then(made_up), (!part.is_last).then(made_up));
            let start = Instant::now();
            let (_, live) = self.division.forward(&part, network, batch, x);
            let between = Instant::now();
            drop(self.division.backward(&part, live, network, batch, (dy, None)));
            least.forward = least.forward.min((between - start).as_secs_f64());
            least.backward = least.backward.min(between.elapsed().as_secs_f64());
        }
        least
    }

    /// A batch's loss through all stages, nothing being kept; 0 on ranks without the last one.
    pub fn loss(&self, network: &N, batch: &N::Batch) -> Tensor<1> {
        let _region = autocast(self.division.region);
        let (network, shape) = (network.valid(), self.division.order.shape);
        let mut loss = Tensor::zeros([1], (&self.device, DType::F32));
        for stage in stages_of(shape, self.group.rank()) {
            let part = self.division.part(stage);
            let message = |stage: usize, other: usize| Message {
                carries: Carries::Activation,
                stage,
                micro_batch: 0,
                peer: shape.rank_of(other),
            };
            let x = (!part.is_first).then(|| {
                let message = message(stage - 1, stage - 1);
                let (sizes, dtype) = network.between(batch);
                let count = sizes[0] * sizes[1] * dtype.size();
                let bytes = self.group.receive(Self::name(&message), message.peer, count).wait();
                self.tensor(bytes, &network, batch)
            });
            match network.part(&part, batch, x) {
                Output::Loss(of_batch) => loss = outside(of_batch),
                Output::Hidden(y) => {
                    let message = message(stage, stage + 1);
                    let bytes = outside(y).into_data().as_bytes().to_vec();
                    self.group.send(Self::name(&message), message.peer, bytes).wait();
                }
            }
        }
        loss
    }

    /// Before an update: a tied embedding gets the gradients of both its stages. With `wants_norm` Σ g² over all ranks, of
    /// each parameter once, [1] in fp32.
    pub fn settle<M: Module>(
        &mut self,
        tied: Option<String>,
        residence: &mut Residence<M>,
        wants_norm: bool,
    ) -> Option<Tensor<1>> {
        let (rank, last) = (self.group.rank(), self.group.size() - 1);
        let embedding = tied.filter(|_| rank == 0 || rank == last).map(|name| id(&name));
        let own = embedding.and_then(|id| Some((id, residence.gradient_set().take(id)?)));
        if let Some((id, gradient)) = own {
            let gradient = flat(gradient);
            let (dtype, device) = (gradient.dtype(), gradient.device());
            let values = wide(gradient).into_data().try_into_vec::<f32>().expect("fp32");
            let sums = self.group.of([0, last]).all_reduce("gradient of the tied embedding", values).wait();
            let count = sums.len();
            let sum =
                Tensor::<1>::from_data(TensorData::new(sums, [count]), (&device, dtype)).into_dispatch();
            match rank {
                0 => residence.gradient_set().insert(id, sum),
                _ => self.tied = Some(sum),
            }
        }
        let squares = wants_norm.then(|| {
            let own = residence.squares();
            let (device, value) = (own.device(), own.into_scalar::<f32>());
            let sum = self.group.all_reduce("norm of gradients", vec![value]).wait();
            Tensor::from_data(TensorData::new(sum, [1]), (&device, DType::F32))
        });
        if let (Some(id), Some(sum)) = (embedding, self.tied.take()) {
            residence.gradient_set().insert(id, sum);
        }
        squares
    }
}

//! [`Stages`]: the stages of a rank of a pipeline, and the messages between them and those of other ranks.

use std::collections::{HashMap, VecDeque};

use burn::backend::DispatchTensor;
use burn::module::Module;
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::division::{Division, Live, stages_of};
use super::record::Recorder;
use super::schedule::{Action, Carries, Message};
use crate::common::DeviceId;
use crate::device::Moment;
use crate::measure::{Samples, StageTime};
use crate::model::{Network, Output};
use crate::ops::autocast::autocast;
use crate::ops::backend::outside;
use crate::ops::parameters::flat;
use crate::ops::rounded;
use crate::optim::GradientSet;
use crate::params::table::id;
use crate::residence::Residence;
use crate::world::{Arriving, Leaving, ProcessGroup};

/// Least and most trials of a profile whose median counts, and about how many seconds they take at most. As many come before
/// them: a GPU's clock falls under load.
const TRIALS: [usize; 2] = [5, 30];
const SECONDS: f64 = 1.0;

/// Most messages that may be on their way at a time: each takes memory.
const MOST_SENT: usize = 64;

/// The stages of a rank during training.
pub struct Stages<N> {
    pub division: Division,
    device: Device,
    group: ProcessGroup,
    /// The actions of this rank in a step.
    pub actions: Vec<Action>,
    /// Forwards whose backward is still to come.
    live: HashMap<(usize, usize), Live<N>>,
    /// Messages on their way here, and results that still have to be sent.
    arriving: HashMap<Key, Arriving>,
    leaving: HashMap<Key, Tensor<2>>,
    sent: VecDeque<Leaving>,
    /// On the last rank: the gradient of a tied embedding, taken out since the norm counts it on the first.
    tied: Option<DispatchTensor>,
    pub recorder: Recorder,
}

type Key = (Carries, usize, usize);

fn key(message: &Message) -> Key {
    (message.carries, message.stage, message.micro_batch)
}

impl<N: Network> Stages<N> {
    pub fn new(division: Division, group: &ProcessGroup, device: DeviceId) -> Self {
        let order = &division.order;
        let actions = match group.has_gpus() {
            true => order.of_rank_ahead(group.rank()),
            false => order.of_rank(group.rank()),
        };
        Self {
            division,
            device: device.burn(),
            group: group.clone(),
            actions,
            live: HashMap::new(),
            arriving: HashMap::new(),
            leaving: HashMap::new(),
            sent: VecDeque::new(),
            tied: None,
            recorder: Recorder::new(device),
        }
    }

    fn name(message: &Message) -> String {
        let Message { carries, stage, micro_batch, .. } = message;
        let what = match carries {
            Carries::Activation => "output",
            Carries::Gradient => "input gradient",
        };
        format!("{what} of stage {stage} for micro-batch {micro_batch}")
    }

    /// Begins to send a result of a stage.
    pub fn send(&mut self, message: &Message) {
        let value = self.leaving.remove(&key(message)).expect("it was computed");
        let value = flat(value.into_dispatch());
        self.sent.push_back(self.group.send_tensor(Self::name(message), message.peer, value));
        while self.sent.front_mut().is_some_and(Leaving::is_over) {
            self.sent.pop_front().expect("there is one").wait();
        }
        if self.sent.len() > MOST_SENT {
            self.sent.pop_front().expect("there are some").wait();
        }
    }

    /// Begins to receive a result of another rank.
    pub fn receive(&mut self, message: &Message, network: &N, batch: &N::Batch) {
        let arriving = self.coming(message, network, batch);
        self.arriving.insert(key(message), arriving);
    }

    fn coming(&self, message: &Message, network: &N, batch: &N::Batch) -> Arriving {
        let ([rows, columns], dtype) = network.between(batch);
        let what = (dtype, &self.device);
        self.group.receive_tensor(Self::name(message), message.peer, rows * columns, what)
    }

    /// Waits until all messages have been sent.
    pub fn finish(&mut self) {
        self.sent.drain(..).for_each(Leaving::wait);
    }

    /// Waits for a result of another rank.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) if it does not come.
    fn arrived(&mut self, key: Key, network: &N, batch: &N::Batch) -> Tensor<2> {
        let arriving = self.arriving.remove(&key).expect("receiving has begun");
        arriving.wait().expect("it is for this rank").reshape(network.between(batch).0)
    }

    /// Forward of a stage for a micro-batch; the graph is kept. Returns the loss in the last stage.
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

    /// Backward of a stage for a micro-batch: its gradients, and the network of its forward if weights have changed since.
    /// `scale`: of the loss. The caller ends the action by [`Recorder::end`] once it has added the gradients up.
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
        (found, own)
    }

    /// Measures this rank's stages for a micro-batch, one rank after the other.
    pub fn profile(&mut self, network: &N, batch: &N::Batch) {
        self.group.barrier("begin of the profiles");
        for turn in 0..self.group.size() {
            if turn == self.group.rank() {
                let stages = stages_of(self.division.order.shape, turn);
                self.recorder.times = stages.map(|stage| self.time(stage, network, batch)).collect();
            }
            // Many trials may take longer than ranks wait for each other.
            self.group.broadcast_when_ready(format!("profile of rank {turn}"), turn, Vec::new()).wait();
        }
    }

    /// Computes this rank's stages for a micro-batch, and leaves nothing behind.
    pub fn rehearse(&self, network: &N, batch: &N::Batch) {
        for stage in stages_of(self.division.order.shape, self.group.rank()) {
            let _ = self.trials(stage, network, batch)();
        }
    }

    /// The median of several trials by the device's clock. As in a step, the host runs ahead of the device.
    fn time(&self, stage: usize, network: &N, batch: &N::Batch) -> StageTime {
        let mut trial = self.trials(stage, network, batch);
        let seconds = |moments: Vec<Moment>| self.recorder.timer.seconds(moments.iter());
        // The first has nothing to add to.
        trial();
        let first = seconds(trial().into());
        // As many as in a step, which is under load for as long.
        let ([least, most], of_step) = (TRIALS, self.division.order.shape.micro_batches);
        let enough = (SECONDS / (first[2] - first[0])) as usize;
        let count = of_step.min(enough).clamp(least, most);
        (0..count).for_each(|_| drop(trial()));
        let seconds = seconds((0..count).flat_map(|_| trial()).collect());
        let median = |of: fn(&[f64]) -> f64| Samples::new(seconds.chunks(3).map(of).collect()).median;
        StageTime { stage, forward: median(|at| at[1] - at[0]), backward: median(|at| at[2] - at[1]) }
    }

    /// Forward and backward of a stage on made-up inputs, whose gradients are added to those before. Each call gives the
    /// moments at which forward begins, ends, and backward ends.
    fn trials<'s>(
        &'s self,
        stage: usize,
        network: &'s N,
        batch: &'s N::Batch,
    ) -> impl FnMut() -> [Moment; 3] + use<'s, N> {
        let (part, ([rows, columns], dtype)) = (self.division.part(stage), network.between(batch));
        // As unlike each other as those of a step: a GPU multiplies repeated numbers with less power, at a higher clock.
        let mut random = ChaCha8Rng::seed_from_u64(stage as u64);
        let mut made_up = || {
            let values: Vec<f32> = (0..rows * columns).map(|_| random.random_range(-1.7..1.7)).collect();
            let data = TensorData::new(values, [rows, columns]).convert_dtype(dtype);
            Tensor::<2>::from_data(data, (&self.device, dtype))
        };
        let x = (!part.is_first).then(&mut made_up);
        let dy = (!part.is_last).then(made_up);
        let (timer, mut sums) = (&self.recorder.timer, GradientSet::default());
        move || {
            let start = timer.now();
            let (_, live) = self.division.forward(&part, network, batch, x.clone());
            let between = timer.now();
            let (found, _, own) = self.division.backward(&part, live, network, batch, (dy.clone(), None));
            sums.add(own.as_ref().unwrap_or(network), found);
            [start, between, timer.now()]
        }
    }

    /// The loss of a batch through all stages; keeps nothing. 0 on ranks without the last stage.
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
                let arriving = self.coming(&message(stage - 1, stage - 1), &network, batch);
                arriving.wait().expect("it is for this rank").reshape(network.between(batch).0)
            });
            match network.part(&part, batch, x) {
                Output::Loss(of_batch) => loss = outside(of_batch),
                Output::Hidden(y) => {
                    let message = message(stage, stage + 1);
                    let y = flat(outside(y).into_dispatch());
                    self.group.send_tensor(Self::name(&message), message.peer, y).wait();
                }
            }
        }
        loss
    }

    /// Before an update: sums the gradients of a tied embedding over its two stages. With `wants_norm` returns Σ g² over all
    /// ranks, which counts each parameter once, [1] in fp32.
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
            let (dtype, ends) = (gradient.dtype(), self.group.of([0, last]));
            let sum = ends.sum("gradient of the tied embedding", rounded(gradient, DType::F32)).wait();
            let sum = rounded(sum.expect("both ends get it"), dtype).into_dispatch();
            match rank {
                0 => residence.gradient_set().insert(id, sum),
                _ => self.tied = Some(sum),
            }
        }
        let squares = wants_norm.then(|| {
            self.group.sum("norm of gradients", residence.squares()).wait().expect("every rank gets it")
        });
        if let (Some(id), Some(sum)) = (embedding, self.tied.take()) {
            residence.gradient_set().insert(id, sum);
        }
        squares
    }
}

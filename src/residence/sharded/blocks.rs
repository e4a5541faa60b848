//! [`ShardedBlocks`]: blocks whose weights too are divided among ranks. They are gathered for their turns in forward and in
//! backward, one block ahead. Each rank keeps its part of the sums of gradients. Its parts are on its device, or move to the
//! host and back as blocks do (Rajbhandari et al. 2021, "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep
//! Learning").

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::module::{Module, ParamId};
use burn::tensor::{DType, Tensor, TensorData};

use super::bucket::{Bucket, Gathering};
use super::config::Sharding;
use super::kept::KeptParts;
use super::module::UNDER_WAY;
use crate::ops::narrow;
use crate::optim::host::Work;
use crate::optim::{Optimizer, OptimizerConfig, StepSize, Visit};
use crate::params::source::Source;
use crate::residence::ParameterStore;
use crate::residence::activations::Input;
use crate::residence::config::Placement;
use crate::residence::engine::{Engine, Pass};
use crate::residence::layout::Layout;
use crate::residence::names::BlockNames;
use crate::residence::strategy::Movement;
use crate::residence::turns::Turns;

pub struct ShardedBlocks {
    names: BlockNames,
    buckets: Vec<Bucket>,
    /// This rank's parts of each block, as a block of its own.
    parts: Box<dyn Turns>,
    /// The type in which the parts take gradients.
    gradients: DType,
    /// By block: the parts of all ranks, on their way. This rank's part then has its turn.
    coming: Vec<Option<Gathering>>,
    turn: Option<usize>,
    /// Blocks whose gradients are on their way, oldest first.
    under_way: VecDeque<usize>,
}

impl ShardedBlocks {
    /// Makes the blocks one by one, and keeps this rank's parts. All ranks make the same blocks.
    ///
    /// # Panics
    /// When the host or the device does not have enough memory.
    pub fn new<M: Module>(
        (sharding, placement): (&Sharding, Placement),
        names: BlockNames,
        layouts: Vec<Arc<Layout>>,
        source: &Source,
        make: impl Fn(usize) -> M,
    ) -> Self {
        let (dtype, device) = (source.dtype(), source.device().clone().inner());
        let bucket = |(i, layout)| Bucket::new(names.name(i), layout, (dtype, &device), &sharding.ranks);
        let buckets: Vec<Bucket> = layouts.into_iter().enumerate().map(bucket).collect();
        let own: Vec<Arc<Layout>> = buckets.iter().map(|bucket| Arc::new(bucket.own_layout())).collect();
        let cut = |i: usize| {
            let values =
                buckets[i].layout.values(&make(i)).into_iter().map(|(part, values)| (part.id, values));
            let cut = buckets[i].cut(&values.collect::<HashMap<ParamId, Tensor<1>>>());
            cut.into_iter().flatten().collect::<Vec<_>>()
        };
        let (parts, gradients): (Box<dyn Turns>, DType) = match placement.offload.strategy.movement() {
            None => (Box::new(KeptParts::new((names.clone(), own), device.clone(), cut)), DType::F32),
            Some(movement) => {
                let layouts = own.clone();
                let values = |i: usize| {
                    let firsts = own[i].parts.iter().map(|part| part.first);
                    firsts.zip(cut(i).into_iter().map(Tensor::into_dispatch)).collect()
                };
                let stored = (dtype, device.clone());
                (
                    Box::new(Engine::filled((placement, movement), (names.clone(), layouts), stored, values)),
                    dtype,
                )
            }
        };
        let coming = buckets.iter().map(|_| None).collect();
        Self { names, buckets, parts, gradients, coming, turn: None, under_way: VecDeque::new() }
    }

    /// Begins to gather a block: its part here has its turn until the block comes.
    fn gather(&mut self, block: usize, pass: Pass) -> Gathering {
        let parts = self.parts.enter(block, pass).into_iter().map(Tensor::from_dispatch);
        self.buckets[block].gather(&self.buckets[block].own(parts))
    }

    /// This rank's place among those that have parts.
    fn place(&self) -> usize {
        self.buckets.first().map_or(0, Bucket::place)
    }

    /// Waits for the oldest sums that are on their way, and hands them to this rank's part.
    fn take_sums(&mut self) {
        let Some(block) = self.under_way.pop_front() else { return };
        if let Some(sums) = self.buckets[block].take_gradient() {
            self.parts.take_gradients(block, vec![narrow(sums, self.gradients).into_dispatch()]);
        }
    }
}

impl Turns for ShardedBlocks {
    fn begin(&mut self, config: &OptimizerConfig, optimizer: &Optimizer) {
        self.parts.begin(config, optimizer);
    }

    fn want_squares(&mut self, wanted: bool) {
        self.parts.want_squares(wanted);
    }

    fn enter(&mut self, block: usize, pass: Pass) -> Vec<DispatchTensor> {
        assert!(self.turn.is_none(), "block {block} comes while {:?} has its turn", self.turn);
        self.turn = Some(block);
        let gathering = self.coming[block].take().unwrap_or_else(|| self.gather(block, pass));
        let parameters = self.buckets[block].parameters(gathering);
        self.parts.leave(block);
        // After forward an update may follow, so nothing is gathered ahead of the next forward.
        let next = match pass {
            Pass::Forward | Pass::Inference => Some(block + 1).filter(|next| *next < self.buckets.len()),
            Pass::Backward => block.checked_sub(1),
        };
        if let Some(next) = next {
            self.coming[next] = Some(self.gather(next, pass));
        }
        parameters
    }

    /// The gathered weights are freed with their last user.
    fn leave(&mut self, block: usize) {
        assert_eq!(self.turn.take(), Some(block), "the block whose turn it is leaves");
    }

    fn take_gradients(&mut self, block: usize, gradients: Vec<DispatchTensor>) {
        assert_eq!(self.turn, Some(block), "gradients come during a block's turn");
        if gradients.is_empty() {
            return;
        }
        if self.under_way.len() as u64 == UNDER_WAY {
            self.take_sums();
        }
        self.buckets[block].reduce(gradients.into_iter().enumerate().collect());
        self.under_way.push_back(block);
    }

    fn discard(&mut self) {
        self.under_way.clear();
        self.buckets.iter_mut().for_each(Bucket::discard);
        self.parts.discard();
    }

    fn layout(&self, block: usize) -> &Arc<Layout> {
        &self.buckets[block].layout
    }

    fn movement(&self) -> Arc<dyn Movement> {
        self.parts.movement()
    }

    fn follow(&mut self, movement: Arc<dyn Movement>) {
        self.parts.follow(movement);
    }

    fn update_on_arrival(&mut self, work: Work) {
        self.parts.update_on_arrival(work.on_rank(self.place()));
    }

    fn make_room(&mut self, elements: usize) {
        self.parts.make_room(elements);
    }

    fn keep(&mut self, block: usize, x: Tensor<2>) -> Input {
        self.parts.keep(block, x)
    }

    fn restore(&mut self, block: usize, input: Input) -> Tensor<2> {
        self.parts.restore(block, input)
    }

    fn release_input(&mut self, block: usize) {
        self.parts.release_input(block);
    }
}

impl ParameterStore for ShardedBlocks {
    fn make_states(&mut self) {
        self.parts.make_states();
    }

    /// Over this rank's parts.
    fn squares(&self) -> Option<Tensor<1>> {
        self.parts.squares()
    }

    fn update(&mut self, size: &StepSize) {
        self.parts.update(&size.on_rank(self.place()));
    }

    fn finish(&mut self) {
        self.parts.finish();
    }

    fn settle(&mut self) {
        (0..self.under_way.len()).for_each(|_| self.take_sums());
        self.parts.settle();
    }

    /// All ranks ask for the same parameter, of which each has a part.
    fn value(&mut self, name: &str) -> Option<TensorData> {
        let layout = |block| self.buckets.get(block).map(|bucket: &Bucket| &*bucket.layout);
        let (block, part) = Layout::place(name, &self.names, layout)?;
        let (name, parts) = (self.names.name(block), &mut self.parts);
        Some(self.buckets[block].value(part, |own| parts.value(&format!("{name}.{own}"))))
    }

    fn visit_states(&mut self, visit: &mut Visit) {
        self.parts.visit_states(visit);
    }
}

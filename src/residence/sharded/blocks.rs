//! [`ShardedBlocks`]: blocks whose weights too are divided among ranks. They are gathered for their turns in forward and in
//! backward, one block ahead. Each rank keeps its part of the sums of gradients.

use std::collections::HashMap;
use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::module::{Module, ParamId};
use burn::tensor::{Tensor, TensorData};

use super::bucket::{Bucket, Gathering, Own};
use super::config::Sharding;
use crate::optim::{DeviceOptimizer, Kept, Optimizer, OptimizerConfig, StepSize, Visit};
use crate::params::named::Named;
use crate::params::source::Source;
use crate::residence::ParameterStore;
use crate::residence::engine::Pass;
use crate::residence::layout::Layout;
use crate::residence::strategy::{Function, Movement};
use crate::residence::turns::Turns;

pub struct ShardedBlocks {
    /// Beginning of the names of the blocks' parameters, before the block's number: `model.layers`.
    prefix: &'static str,
    buckets: Vec<Bucket>,
    /// By block: this rank's parts of its weights.
    own: Vec<Own>,
    /// By block: the parts of all ranks, on their way.
    coming: Vec<Option<Gathering>>,
    turn: Option<usize>,
    /// `None`: there is no update.
    optimizer: Option<DeviceOptimizer>,
}

impl ShardedBlocks {
    /// Makes the blocks one by one, and keeps this rank's parts. All ranks make the same blocks.
    pub fn new<M: Module>(
        sharding: &Sharding,
        prefix: &'static str,
        layouts: Vec<Arc<Layout>>,
        source: &Source,
        make: impl Fn(usize) -> M,
    ) -> Self {
        let device = source.device().clone().inner();
        let bucket = |(i, layout)| {
            let stored = (source.dtype(), &device);
            Bucket::new(format!("{prefix}.{i}"), layout, stored, &sharding.ranks)
        };
        let buckets: Vec<Bucket> = layouts.into_iter().enumerate().map(bucket).collect();
        let own = buckets.iter().enumerate().map(|(i, bucket)| {
            let block = make(i);
            let values = bucket.layout.values(&block).into_iter().map(|(part, values)| (part.id, values));
            bucket.cut(&values.collect::<HashMap<ParamId, Tensor<1>>>())
        });
        let own: Vec<Own> = own.collect();
        let coming = own.iter().map(|_| None).collect();
        Self { prefix, buckets, own, coming, turn: None, optimizer: None }
    }

    fn gather(&self, block: usize) -> Gathering {
        self.buckets[block].gather(&self.own[block])
    }
}

impl Turns for ShardedBlocks {
    fn begin(&mut self, config: &OptimizerConfig, _: &Optimizer) {
        self.optimizer = config.rule().map(DeviceOptimizer::new);
    }

    fn enter(&mut self, block: usize, pass: Pass) -> Vec<DispatchTensor> {
        assert!(self.turn.is_none(), "block {block} comes while {:?} has its turn", self.turn);
        self.turn = Some(block);
        let gathering = self.coming[block].take().unwrap_or_else(|| self.gather(block));
        // After forward an update may follow, so nothing is gathered ahead of the next forward.
        let next = match pass {
            Pass::Forward | Pass::Inference => Some(block + 1).filter(|next| *next < self.buckets.len()),
            Pass::Backward => block.checked_sub(1),
        };
        if let Some(next) = next {
            self.coming[next] = Some(self.gather(next));
        }
        self.buckets[block].parameters(gathering)
    }

    /// The gathered weights are freed with their last user.
    fn leave(&mut self, block: usize) {
        assert_eq!(self.turn.take(), Some(block), "the block whose turn it is leaves");
    }

    fn take_gradients(&mut self, block: usize, gradients: Vec<DispatchTensor>) {
        assert_eq!(self.turn, Some(block), "gradients come during a block's turn");
        if !gradients.is_empty() {
            self.buckets[block].reduce(gradients.into_iter().enumerate().collect());
        }
    }

    fn discard(&mut self) {
        self.buckets.iter_mut().for_each(Bucket::discard);
    }

    fn layout(&self, block: usize) -> &Arc<Layout> {
        &self.buckets[block].layout
    }

    fn movement(&self) -> Arc<dyn Movement> {
        Arc::new(Function {})
    }
}

impl ParameterStore for ShardedBlocks {
    fn make_states(&mut self) {
        if let Some(optimizer) = &mut self.optimizer {
            self.buckets.iter().for_each(|bucket| bucket.make_state(optimizer));
        }
    }

    /// Over this rank's parts.
    fn squares(&self) -> Option<Tensor<1>> {
        self.buckets.iter().filter_map(Bucket::squares).reduce(|sum, more| sum + more)
    }

    fn update(&mut self, size: &StepSize) {
        let begun = self.optimizer.as_mut().and_then(|optimizer| Some((optimizer.begin(size)?, optimizer)));
        let Some((size, optimizer)) = begun else { return self.discard() };
        for (bucket, [own, _]) in self.buckets.iter_mut().zip(&mut self.own) {
            if bucket.has_gradient() {
                *own = own.take().map(|own| bucket.update(optimizer, own, &size));
            }
        }
    }

    fn settle(&mut self) {
        self.buckets.iter_mut().for_each(Bucket::settle);
    }

    /// All ranks ask for the same parameter, of which each has a part.
    fn value(&mut self, name: &str) -> Option<TensorData> {
        let (block, part) = name.strip_prefix(self.prefix)?.strip_prefix('.')?.split_once('.')?;
        let block = block.parse::<usize>().ok().filter(|block| *block < self.buckets.len())?;
        let part = self.layout(block).find(part)?;
        Some(self.buckets[block].value(part, &self.own[block]))
    }

    fn visit_states(&mut self, visit: &mut Visit) {
        let Some(optimizer) = &mut self.optimizer else { return };
        for bucket in &self.buckets {
            let visit = &mut |value: &str, kept: Kept<'_>| visit(&format!("{}.{value}", bucket.name()), kept);
            optimizer.visit(bucket.id, visit);
        }
    }

    /// Empty: each rank has only parts of gradients.
    fn gradients(&mut self) -> Named {
        Named::new()
    }
}

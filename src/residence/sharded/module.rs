//! [`ShardedModule`]: a module with all weights on every rank. Each rank has its part of the gradients and of the optimizer's
//! state.
//!
//! A bucket is a block, or everything outside of blocks. Its gradients are summed while backward goes on with the blocks
//! before it, and each rank gets its part of the sums. After the update the ranks exchange their parts of the weights.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use burn::backend::DispatchTensor;
use burn::module::{Module, ParamId};
use burn::tensor::{DType, Device, Gradients, Tensor};
use itertools::Itertools;

use super::bucket::{Bucket, Gathering};
use super::config::{Shard, Sharding};
use crate::ops::gate::{Gates, gates};
use crate::ops::parameters::{each_parameter, flat, update_each};
use crate::optim::host::{HostOptimizer, Work};
use crate::optim::{GradientSet, Optimizer, StepSize, Visit, squares};
use crate::params::table::{Entry, Table, id};
use crate::residence::layout::Layout;

/// Most buckets whose gradients are on their way at once: one is summed while the next is computed. With more of them whole
/// gradients would take memory while they wait.
pub const UNDER_WAY: u64 = 2;

/// The block of a parameter: the first number between the points of its name.
pub fn block_of(name: &str) -> Option<usize> {
    name.split('.').find_map(|part| part.parse().ok())
}

pub struct ShardedModule {
    shared: Arc<Mutex<Buckets>>,
    /// Whether ranks keep only their parts of gradients from one micro-batch to the next.
    divides_gradients: bool,
    /// Of this rank's parts.
    optimizer: Optimizer,
}

/// Takes the gradients that the gates of a forward hand over.
struct Buckets {
    all: Vec<Bucket>,
    /// A parameter's bucket, and its number in the layout of the bucket.
    places: HashMap<ParamId, (usize, usize)>,
    /// Whole gradients that are not yet summed over ranks.
    whole: GradientSet,
    /// Buckets whose gradients are on their way, oldest first.
    under_way: VecDeque<usize>,
}

impl ShardedModule {
    /// Divides the module's trained parameters, which are in the table.
    ///
    /// # Panics
    /// When the host does not have enough memory for the state of an optimizer there.
    pub fn new<M: Module>(
        sharding: &Sharding,
        module: &M,
        table: &Table,
        mut optimizer: Optimizer,
        device: &Device,
    ) -> Self {
        let mut trained: HashMap<ParamId, DType> = HashMap::new();
        each_parameter(module, |id, parameter| {
            if parameter.is_require_grad() {
                trained.insert(id, parameter.dtype());
            }
        });
        let entries = table.entries.iter().filter(|entry| trained.contains_key(&id(&entry.name)));
        let by_block: BTreeMap<Option<usize>, Vec<&Entry>> =
            entries.map(|entry| (block_of(&entry.name), entry)).into_group_map().into_iter().collect();
        let bucket = |(block, entries): (Option<usize>, Vec<&Entry>)| {
            let name = block.map_or_else(|| "what is outside of blocks".into(), |i| format!("block {i}"));
            let layout = Layout::over(entries.iter().map(|entry| (*entry, entry.name.as_str())));
            Bucket::new(name, Arc::new(layout), (entries[0].dtype, device), &sharding.ranks)
        };
        let all: Vec<Bucket> = by_block.into_iter().map(bucket).collect();
        let numbered = all.iter().enumerate();
        let places = numbered.flat_map(|(number, bucket)| {
            let parts = bucket.layout.parts.iter().enumerate();
            parts.map(move |(part, parameter)| (parameter.id, (number, part)))
        });
        let places = places.collect();
        if let Optimizer::OnHost(host) = &mut optimizer {
            all.iter().for_each(|bucket| host.adopt_values(bucket.id, own(module, bucket)));
        }
        let (whole, under_way) = (GradientSet::default(), VecDeque::new());
        let shared = Arc::new(Mutex::new(Buckets { all, places, whole, under_way }));
        let divides_gradients = sharding.shard >= Shard::Gradients;
        Self { shared, divides_gradients, optimizer }
    }

    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.shared.lock().expect("no panic")
    }

    /// The gates of a forward; `None` if its gradients stay whole. `last`: whether it is the last of its step.
    pub fn gates(&self, last: bool) -> Option<Gates> {
        let shared = self.shared.clone();
        (last || self.divides_gradients).then(|| {
            gates(Arc::new(move |gradients| {
                let mut buckets = shared.lock().expect("no panic");
                let gradients = buckets.with_earlier(gradients);
                buckets.reduce(gradients);
            }))
        })
    }

    /// Adds the gradients of a micro-batch that had no gate.
    pub fn add<M: Module>(&self, module: &M, gradients: Gradients) {
        let mut buckets = self.buckets();
        buckets.whole.add(module, gradients);
        if self.divides_gradients {
            buckets.reduce_whole();
        }
    }

    /// After the last backward of a step: begins to sum the whole gradients.
    pub fn sum(&self) {
        self.buckets().reduce_whole();
    }

    /// Waits for all sums that have begun.
    pub fn settle(&self) {
        let mut buckets = self.buckets();
        buckets.under_way.clear();
        buckets.all.iter_mut().for_each(Bucket::settle);
    }

    /// Σ g² over this rank's parts, [1] in fp32.
    pub fn squares(&self) -> Option<Tensor<1>> {
        // What is finite in fp32 need not be in the type in which it goes to the host.
        let as_used = match self.optimizer {
            Optimizer::OnHost(_) => Bucket::gradient_as_stored,
            Optimizer::None | Optimizer::OnDevice(_) => Bucket::gradient,
        };
        let squares = |bucket| Some(squares(vec![as_used(bucket)?.into_dispatch()]));
        self.buckets().all.iter().filter_map(squares).reduce(|sum, more| sum + more)
    }

    pub fn make_states(&mut self) {
        if let Optimizer::OnDevice(optimizer) = &mut self.optimizer {
            let buckets = self.shared.lock().expect("no panic");
            buckets.all.iter().for_each(|bucket| bucket.make_state(optimizer));
        }
    }

    pub fn visit_states(&mut self, visit: &mut Visit) {
        for bucket in &self.shared.lock().expect("no panic").all {
            self.optimizer.visit(bucket.id, bucket.name(), visit);
        }
    }

    /// Updates this rank's parts of the weights, and gathers those of other ranks. While one bucket is gathered, the next is
    /// updated.
    pub fn update<M: Module>(&mut self, module: M, size: &StepSize) -> M {
        let mut buckets = self.shared.lock().expect("no panic");
        buckets.whole = GradientSet::default();
        let size = &size.on_rank(buckets.all.first().map_or(0, Bucket::place));
        match &mut self.optimizer {
            Optimizer::None => {}
            Optimizer::OnDevice(optimizer) => {
                if let Some(size) = optimizer.begin(size) {
                    return buckets.updated(module, |module, bucket, gradient| {
                        optimizer.update(bucket.id, own(module, bucket), gradient, &size)
                    });
                }
            }
            Optimizer::OnHost(host) => {
                if let Some(work) = Work::step(size) {
                    return buckets.updated_on_host(module, host, work);
                }
            }
        }
        buckets.all.iter_mut().for_each(Bucket::discard);
        module
    }
}

impl Buckets {
    /// As [`updated`](Self::updated), by the optimizer on the host.
    fn updated_on_host<M: Module>(&mut self, module: M, host: &mut HostOptimizer, work: Work) -> M {
        let mut pending = HashMap::new();
        for bucket in &self.all {
            if let Some(gradient) = bucket.gradient_as_stored() {
                pending.insert(bucket.id, host.begin(bucket.id, gradient, work));
            }
        }
        self.updated(module, |module, bucket, _| {
            let pending = pending.remove(&bucket.id).expect("it has a gradient");
            host.end(bucket.id, own(module, bucket).zeros_like(), pending)
        })
    }

    /// The module with the weights of all ranks. `update` makes this rank's part of a bucket that has a gradient.
    fn updated<M: Module>(
        &mut self,
        mut module: M,
        mut update: impl FnMut(&M, &Bucket, Tensor<1>) -> Tensor<1>,
    ) -> M {
        let mut coming: Option<(usize, Gathering)> = None;
        for number in 0..self.all.len() {
            let Some(gradient) = self.all[number].take_gradient() else { continue };
            let bucket = &self.all[number];
            let gathering = bucket.gather(&[Some(update(&module, bucket, gradient)), None]);
            if let Some((earlier, gathering)) = coming.replace((number, gathering)) {
                module = gathered(module, &self.all[earlier], gathering);
            }
        }
        coming
            .into_iter()
            .fold(module, |module, (last, gathering)| gathered(module, &self.all[last], gathering))
    }

    /// Adds those of earlier micro-batches to gradients.
    fn with_earlier(&mut self, gradients: Vec<(ParamId, DispatchTensor)>) -> Vec<(ParamId, DispatchTensor)> {
        let sum = |(id, gradient): (ParamId, DispatchTensor)| match self.whole.take(id) {
            None => (id, gradient),
            Some(earlier) => {
                (id, (Tensor::<1>::from_dispatch(earlier) + Tensor::from_dispatch(gradient)).into_dispatch())
            }
        };
        gradients.into_iter().map(sum).collect()
    }

    fn reduce_whole(&mut self) {
        let gradients = std::mem::take(&mut self.whole).into_ordered();
        self.reduce(gradients);
    }

    /// Begins to sum gradients, in the order of buckets.
    fn reduce(&mut self, gradients: Vec<(ParamId, DispatchTensor)>) {
        let mut by_bucket: BTreeMap<usize, Vec<(usize, DispatchTensor)>> = BTreeMap::new();
        for (id, gradient) in gradients {
            let (bucket, part) = self.places[&id];
            by_bucket.entry(bucket).or_default().push((part, gradient));
        }
        for (bucket, gradients) in by_bucket {
            if self.under_way.len() as u64 == UNDER_WAY {
                let first = self.under_way.pop_front().expect("there are some");
                self.all[first].settle();
            }
            self.all[bucket].reduce(gradients);
            self.under_way.push_back(bucket);
        }
    }
}

/// This rank's part of a bucket's trained parameters.
fn own<M: Module>(module: &M, bucket: &Bucket) -> Tensor<1> {
    let [own, _] = bucket.cut(&values(module, bucket));
    own.expect("a bucket has trained parameters")
}

/// The values of a bucket's parameters.
fn values<M: Module>(module: &M, bucket: &Bucket) -> HashMap<ParamId, Tensor<1>> {
    let wanted: Vec<ParamId> = bucket.layout.parts.iter().map(|part| part.id).collect();
    let mut values = HashMap::new();
    each_parameter(module, |id, parameter| {
        if wanted.contains(&id) {
            values.insert(id, flat(parameter.inner().into_dispatch()));
        }
    });
    values
}

/// Puts the updated weights of a bucket into the module.
fn gathered<M: Module>(module: M, bucket: &Bucket, gathering: Gathering) -> M {
    let parts = bucket.layout.parts.iter().zip(bucket.parameters(gathering));
    let weights = parts.map(|(part, weight)| (part.id, flat(weight)));
    update_each(module, weights.collect(), |_, _, weight| weight)
}

//! [`Replicas`]: data parallelism. Each rank has the whole network and computes the gradients of its share of a batch. Their
//! sums over ranks are the gradients of the whole batch, since the losses of the shares add up to its loss.
//!
//! A gate hands over the gradients of a block as a bucket, which is summed while backward goes on with the blocks before it
//! (Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"). Embedding, norm and head
//! follow after backward. Sums are in fp32. A bucket is one flat tensor, which one kernel writes on a GPU. NCCL needs none
//! for gradients in fp32: it sums each where it is, all of a bucket as one operation.
//!
//! Unless the update needs the norm over all gradients, blocks are updated as soon as their sums are there, while the rest
//! is still summed: the embedding of a large vocabulary may be a third of all gradients.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use burn::backend::DispatchTensor;
use burn::module::{Module, ParamId};
use burn::tensor::{Gradients, Tensor};

use super::buckets::{Bucket, Summed, added, arrived};
use super::config::DataReduce;
use crate::device::cuda::{Mark, Run};
use crate::ops::gate::{Gates, gates};
use crate::ops::parameters::{each_parameter, flat};
use crate::optim::GradientSet;
use crate::world::ProcessGroup;

/// Least elements of a bucket of parameters without a gate, apart from the last: 25 MiB of fp32, as in PyTorch.
const BUCKET: usize = (25 << 20) / 4;

/// The replicas of a network, including this one.
pub struct Replicas {
    group: ProcessGroup,
    reduce: DataReduce,
    sums: Arc<Mutex<Sums>>,
}

/// The gradients of a step, on their way.
#[derive(Default)]
struct Sums {
    /// Gradients of earlier micro-batches.
    earlier: GradientSet,
    under_way: Vec<Summed>,
    /// How many of these come from gates; known once backward is over.
    gated: usize,
    /// Whether a graph holds the gradients too.
    in_place: bool,
    /// Sums to which others are still to be added.
    partial: HashMap<ParamId, DispatchTensor>,
}

/// A bucket that a graph fills, and where in the graph it is full.
pub struct RecordedBucket {
    bucket: Bucket,
    /// `None` before the launches are recorded.
    full: Option<Mark>,
}

impl Replicas {
    /// `None` if there is only one.
    pub fn of(group: &ProcessGroup, reduce: DataReduce) -> Option<Self> {
        (group.size() > 1).then(|| Self { group: group.clone(), reduce, sums: Arc::default() })
    }

    /// The gates for the last forward of a step; `None` if gradients are summed only after its backward.
    pub fn gates(&self) -> Option<Gates> {
        let (group, sums) = (self.group.clone(), self.sums.clone());
        (self.reduce == DataReduce::AllReduce).then(|| {
            gates(Arc::new(move |gradients| {
                let mut sums = sums.lock().expect("no panic");
                let with_earlier = |(id, gradient): (ParamId, DispatchTensor)| match sums.earlier.take(id) {
                    None => (id, gradient),
                    Some(earlier) => (id, added(earlier, gradient)),
                };
                let gradients: Vec<_> = gradients.into_iter().map(with_earlier).collect();
                sums.begin(&group, DataReduce::AllReduce, gradients);
            }))
        })
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().expect("no panic")
    }

    /// Before the last backward of a step: takes the gradients of the earlier ones.
    pub fn begin(&self, earlier: GradientSet) {
        *self.sums() = Sums { earlier, ..Sums::default() };
    }

    /// After the last backward of a step: begins to sum the gradients that had no gate.
    pub fn end<M: Module>(&self, module: &M, gradients: Gradients) {
        let mut sums = self.sums();
        let mut earlier = std::mem::take(&mut sums.earlier);
        earlier.add(module, gradients);
        sums.begin_rest(&self.group, self.reduce, earlier);
    }

    /// Before a graph is recorded: whether it can leave gradients to be summed. NCCL reads them where they are, on an event.
    /// Then no thread looks at an event until the graph is recorded.
    pub fn settle_for_graph(&self) -> bool {
        self.group.settle();
        self.group.has_gpus() && self.reduce == DataReduce::AllReduce
    }

    /// The gates of a forward that is recorded, or runs as it will be. They put what backward hands over into `buckets`.
    pub fn recording_gates(&self, run: Run, buckets: &Arc<Mutex<Vec<RecordedBucket>>>) -> Gates {
        let (group, buckets) = (self.group.clone(), buckets.clone());
        buckets.lock().expect("no panic").clear();
        gates(Arc::new(move |gradients| {
            let bucket = Bucket::of(&group, DataReduce::AllReduce, gradients);
            let recorded = bucket.map(|bucket| {
                let full = (run == Run::Recorded).then(|| bucket.mark());
                RecordedBucket { bucket, full }
            });
            buckets.lock().expect("no panic").extend(recorded);
        }))
    }

    /// After a graph was launched: begins to sum what it leaves, each bucket once it is full. `rest`: what has no gate.
    pub fn sum_recorded(&self, buckets: &[RecordedBucket], rest: GradientSet) {
        let mut sums = self.sums();
        *sums = Sums { in_place: true, ..Sums::default() };
        for RecordedBucket { bucket, full } in buckets {
            let name = sums.name();
            sums.under_way.push(bucket.sum_in_place(&self.group, name, full.as_ref()));
        }
        sums.begin_rest(&self.group, self.reduce, rest);
    }

    /// Waits for the sums of what the gates handed over, which come first, but not for the last of several: it has only
    /// begun, and the others can be updated meanwhile.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) if another rank does not come.
    pub fn first_sums<M: Module>(&self, module: &M) -> GradientSet {
        let mut sums = std::mem::take(&mut *self.sums());
        let ready = match sums.gated {
            one @ (0 | 1) => one,
            several => several - 1,
        };
        let of_gates = sums.under_way.drain(..ready).collect();
        let (mut first, mut partial) = (HashMap::new(), HashMap::new());
        let more: HashSet<ParamId> = sums.under_way.iter().flat_map(Summed::ids).collect();
        for (id, sum) in arrived(of_gates, HashMap::new()) {
            if more.contains(&id) { &mut partial } else { &mut first }.insert(id, sum);
        }
        *self.sums() = Sums { partial, ..sums };
        GradientSet::of_map(module, first)
    }

    /// Waits for all other sums. Ranks that do not update get none.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) if another rank does not come.
    pub fn sums_left<M: Module>(&self, module: &M) -> GradientSet {
        let Sums { under_way, partial, .. } = std::mem::take(&mut *self.sums());
        GradientSet::of_map(module, arrived(under_way, partial))
    }

    /// The number of the rank that updates, on every rank; [1] in fp32.
    pub fn of_updater(&self, number: Tensor<1>) -> Tensor<1> {
        if self.reduce == DataReduce::AllReduce {
            return number;
        }
        let copy = self.group.copy_of("norm of gradients", self.group.first(), number);
        copy.wait().expect("every rank gets it")
    }

    /// On ranks that do not update: the trained parameters of the rank that does. Empty on the others.
    pub fn weights<M: Module>(&self, module: &M) -> HashMap<ParamId, Tensor<1>> {
        let mut values = HashMap::new();
        if self.reduce == DataReduce::AllReduce {
            return values;
        }
        each_parameter(module, |id, parameter| {
            if !parameter.is_require_grad() {
                return;
            }
            let value = flat(parameter.inner().into_dispatch());
            let value = self.group.copy_of("weights", self.group.first(), value).wait();
            values.extend(value.filter(|_| self.group.place() > 0).map(|value| (id, value)));
        });
        values
    }
}

impl Sums {
    /// Begins to sum these gradients, if there are any.
    fn begin(&mut self, group: &ProcessGroup, reduce: DataReduce, gradients: Vec<(ParamId, DispatchTensor)>) {
        let bucket = Bucket::of(group, reduce, gradients);
        let name = self.name();
        self.under_way.extend(bucket.map(|bucket| match self.in_place {
            true => bucket.sum_in_place(group, name, None),
            false => bucket.sum(group, reduce, name),
        }));
    }

    /// Of the next bucket.
    fn name(&self) -> String {
        format!("gradients, bucket {}", self.under_way.len() + 1)
    }

    /// Begins to sum what has no gate.
    fn begin_rest(&mut self, group: &ProcessGroup, reduce: DataReduce, rest: GradientSet) {
        self.gated = self.under_way.len();
        let (mut bucket, mut elements) = (Vec::new(), 0);
        for (id, gradient) in rest.into_ordered() {
            elements += Tensor::<1>::from_dispatch(gradient.clone()).shape().num_elements();
            bucket.push((id, gradient));
            if elements >= BUCKET {
                self.begin(group, reduce, std::mem::take(&mut bucket));
                elements = 0;
            }
        }
        self.begin(group, reduce, bucket);
    }
}

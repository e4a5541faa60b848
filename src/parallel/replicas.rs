//! [`Replicas`]: data parallelism. Each rank has the whole network and computes the gradients of its share of a batch. Their
//! sums over ranks are the gradients of the whole batch, since the losses of the shares add up to its loss.
//!
//! A gate hands over the gradients of a block as a bucket, which is summed while backward goes on with the blocks before it
//! (Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"). Embedding, norm and head
//! follow after backward. A bucket is one flat tensor, and sums are in fp32. On a GPU one kernel writes a whole bucket, and
//! gradients in fp32 stay where they were summed.
//!
//! Unless the update needs the norm over all gradients, blocks are updated as soon as their sums are there, while the rest
//! is still summed: the embedding of a large vocabulary may be a third of all gradients.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::backend::DispatchTensor;
use burn::module::{Module, ParamId};
use burn::tensor::{DType, Gradients, Tensor};

use super::config::DataReduce;
use crate::ops::backend::on_cuda;
use crate::ops::flat::{ALIGNED, laid_out, part};
use crate::ops::gate::{Gates, gates};
use crate::ops::parameters::{each_parameter, flat};
use crate::ops::rounded;
use crate::optim::GradientSet;
use crate::world::{Arriving, Group};

/// Least elements of a bucket of parameters without a gate, apart from the last: 25 MiB of fp32, as in PyTorch.
const BUCKET: usize = (25 << 20) / 4;

/// The replicas of a network, including this one.
pub struct Replicas {
    group: Group,
    reduce: DataReduce,
    sums: Arc<Mutex<Sums>>,
}

/// The gradients of a step, on their way.
#[derive(Default)]
struct Sums {
    /// Gradients of earlier micro-batches.
    earlier: GradientSet,
    under_way: Vec<Bucket>,
    /// How many of these come from gates; known once backward is over.
    gated: usize,
    /// Sums to which others are still to be added.
    partial: HashMap<ParamId, DispatchTensor>,
}

struct Bucket {
    parts: Vec<Part>,
    /// The sums of all parts in one flat tensor.
    sum: Arriving,
}

/// A parameter's gradient within a bucket.
struct Part {
    id: ParamId,
    elements: Range<usize>,
    dtype: DType,
}

impl Replicas {
    /// `None` if there is only one.
    pub fn of(group: &Group, reduce: DataReduce) -> Option<Self> {
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
        sums.gated = sums.under_way.len();
        let (mut bucket, mut elements) = (Vec::new(), 0);
        for (id, gradient) in earlier.into_ordered() {
            elements += Tensor::<1>::from_dispatch(gradient.clone()).shape().num_elements();
            bucket.push((id, gradient));
            if elements >= BUCKET {
                sums.begin(&self.group, self.reduce, std::mem::take(&mut bucket));
                elements = 0;
            }
        }
        sums.begin(&self.group, self.reduce, bucket);
    }

    /// Waits for the sums of what the gates handed over, which come first.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) if another rank does not come.
    pub fn first_sums<M: Module>(&self, module: &M) -> GradientSet {
        let mut sums = std::mem::take(&mut *self.sums());
        let of_gates = sums.under_way.drain(..std::mem::take(&mut sums.gated)).collect();
        let (mut first, mut partial) = (HashMap::new(), HashMap::new());
        let more: HashSet<ParamId> =
            sums.under_way.iter().flat_map(|bucket| &bucket.parts).map(|part| part.id).collect();
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

    /// Whether this rank updates the weights.
    pub fn updates(&self) -> bool {
        self.reduce == DataReduce::AllReduce || self.group.place() == 0
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
            values.extend(value.filter(|_| !self.updates()).map(|value| (id, value)));
        });
        values
    }
}

impl Sums {
    /// Begins to sum these gradients, if there are any.
    fn begin(&mut self, group: &Group, reduce: DataReduce, gradients: Vec<(ParamId, DispatchTensor)>) {
        if gradients.is_empty() {
            return;
        }
        let (mut values, mut parts) =
            (Vec::with_capacity(gradients.len()), Vec::with_capacity(gradients.len()));
        let mut length = 0usize;
        for (id, gradient) in gradients {
            let gradient = flat(gradient);
            // A CPU's kernels take any slice, and padding would be sent.
            let first = if on_cuda(&gradient) { length.next_multiple_of(ALIGNED) } else { length };
            length = first + gradient.dims()[0];
            parts.push(Part { id, elements: first..length, dtype: gradient.dtype() });
            values.push((first, gradient));
        }
        let device = values[0].1.device();
        let values = laid_out(length, (DType::F32, &device), values);
        let name = format!("gradients, bucket {}", self.under_way.len() + 1);
        let sum = match reduce {
            DataReduce::AllReduce => group.sum(name, values),
            DataReduce::Rank0 => group.sum_at(name, group.first(), values),
        };
        self.under_way.push(Bucket { parts, sum });
    }
}

/// The sums of these buckets, flat and in the types of their parameters, added to the earlier sums `all`.
fn arrived(
    buckets: Vec<Bucket>,
    mut all: HashMap<ParamId, DispatchTensor>,
) -> HashMap<ParamId, DispatchTensor> {
    for Bucket { parts, sum } in buckets {
        // Ranks that do not update get none.
        let Some(values) = sum.wait() else { continue };
        // A bucket has one or two types.
        let mut in_types = vec![values];
        for Part { id, elements, dtype } in parts {
            let known = in_types.iter().position(|values| values.dtype() == dtype);
            let place = known.unwrap_or_else(|| {
                in_types.push(rounded(in_types[0].clone(), dtype));
                in_types.len() - 1
            });
            let gradient = part(&in_types[place], elements).into_dispatch();
            // A gradient behind an operator of the parameter alone comes after its gate.
            let gradient = match all.remove(&id) {
                None => gradient,
                Some(earlier) => added(earlier, gradient),
            };
            all.insert(id, gradient);
        }
    }
    all
}

fn added(a: DispatchTensor, b: DispatchTensor) -> DispatchTensor {
    (Tensor::<1>::from_dispatch(a) + Tensor::from_dispatch(b)).into_dispatch()
}

//! [`Replicas`]: data parallelism. Each rank has the whole network and computes the gradients of its share of a batch;
//! their sums over ranks are those of the whole batch, since the losses of the shares add up to its loss.
//!
//! A bucket of gradients is what one gate hands over, those of a block: they are summed behind the backward of the blocks
//! before it (Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"). The rest,
//! embedding, norm and head, follows after backward. Sums are in fp32.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::backend::DispatchTensor;
use burn::module::{Module, ParamId};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};

use super::config::DataReduce;
use crate::ops::gate::{Gates, gates};
use crate::ops::parameters::{each_parameter, flat};
use crate::ops::wide;
use crate::optim::GradientSet;
use crate::world::{Group, Ticket};

/// Elements of a bucket of what has no gate, at least where there are as many: 25 MiB of fp32, as PyTorch's.
const BUCKET: usize = (25 << 20) / 4;

/// The replicas of a network, this one among them.
pub struct Replicas {
    group: Group,
    reduce: DataReduce,
    sums: Arc<Mutex<Sums>>,
}

/// The gradients of a step, on their way.
#[derive(Default)]
struct Sums {
    /// Of earlier micro-batches.
    earlier: GradientSet,
    under_way: Vec<Bucket>,
}

struct Bucket {
    parts: Vec<Part>,
    /// Values of all parts, one after the other; of ranks that get no sums nothing.
    sum: Ticket<Vec<f32>>,
}

/// A parameter's gradient within a bucket.
struct Part {
    id: ParamId,
    elements: usize,
    dtype: DType,
    device: Device,
}

impl Replicas {
    /// `None` where there is one.
    pub fn of(group: &Group, reduce: DataReduce) -> Option<Self> {
        (group.size() > 1).then(|| Self { group: group.clone(), reduce, sums: Arc::default() })
    }

    /// The gates of the forward whose backward is the last of its step; `None` where gradients stay until it is over.
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
        *self.sums() = Sums { earlier, under_way: Vec::new() };
    }

    /// After it: the sums over all replicas, from what is left in the gradients of the last backward. Waits for them. On
    /// ranks that do not update there are none.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) where another rank does not come.
    pub fn finish<M: Module>(&self, module: &M, gradients: Gradients) -> GradientSet {
        let Sums { mut earlier, under_way } = std::mem::take(&mut *self.sums());
        earlier.add(module, gradients);
        let mut sums = Sums { under_way, ..Sums::default() };
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
        GradientSet::of_map(module, sums.wait())
    }

    /// Whether this rank updates.
    pub fn updates(&self) -> bool {
        self.reduce == DataReduce::AllReduce || self.group.place() == 0
    }

    /// A number that the rank that updates has, on every rank; [1] in fp32.
    pub fn of_updater(&self, number: Tensor<1>) -> Tensor<1> {
        if self.reduce == DataReduce::AllReduce {
            return number;
        }
        let device = number.device();
        let own = number.into_data().as_bytes().to_vec();
        let bytes = self.group.broadcast("norm of gradients", self.group.first(), own).wait();
        Tensor::from_data(TensorData::from_bytes_vec(bytes, [1], DType::F32), (&device, DType::F32))
    }

    /// The trained parameters as the rank that updates has them, for the others; nothing where every rank updates.
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
            let (count, dtype, device) = (value.dims()[0], value.dtype(), value.device());
            let own = if self.updates() { value.into_data().as_bytes().to_vec() } else { Vec::new() };
            let bytes = self.group.broadcast("weights", self.group.first(), own).wait();
            if !self.updates() {
                let data = TensorData::from_bytes_vec(bytes, [count], dtype);
                values.insert(id, Tensor::from_data(data, (&device, dtype)));
            }
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
        let (mut values, mut parts) = (Vec::new(), Vec::with_capacity(gradients.len()));
        for (id, gradient) in gradients {
            let gradient = flat(gradient);
            let (dtype, device) = (gradient.dtype(), gradient.device());
            let data = wide(gradient).into_data();
            let of_part: &[f32] = data.as_slice().expect("fp32");
            parts.push(Part { id, elements: of_part.len(), dtype, device });
            values.extend_from_slice(of_part);
        }
        let name = format!("gradients, bucket {}", self.under_way.len() + 1);
        let sum = match reduce {
            DataReduce::AllReduce => group.all_reduce(name, values),
            DataReduce::Rank0 => group.reduce(name, group.first(), values),
        };
        self.under_way.push(Bucket { parts, sum });
    }

    /// All sums, flat and in their parameters' types.
    fn wait(self) -> HashMap<ParamId, DispatchTensor> {
        let mut all: HashMap<ParamId, DispatchTensor> = HashMap::new();
        for Bucket { parts, sum } in self.under_way {
            let values = sum.wait();
            let mut values = values.as_slice();
            // Ranks that do not update get nothing.
            for Part { id, elements, dtype, device } in parts.into_iter().filter(|_| !values.is_empty()) {
                let (own, rest) = values.split_at(elements);
                values = rest;
                let data = TensorData::new(own.to_vec(), [elements]);
                let gradient = Tensor::<1>::from_data(data, (&device, dtype)).into_dispatch();
                // What came behind an operator of the parameter alone follows after its gate.
                let gradient = match all.remove(&id) {
                    None => gradient,
                    Some(earlier) => added(earlier, gradient),
                };
                all.insert(id, gradient);
            }
        }
        all
    }
}

fn added(a: DispatchTensor, b: DispatchTensor) -> DispatchTensor {
    (Tensor::<1>::from_dispatch(a) + Tensor::from_dispatch(b)).into_dispatch()
}

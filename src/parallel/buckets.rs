//! [`Bucket`]: gradients that are summed over replicas by one operation.

use std::collections::HashMap;
use std::ops::Range;

use burn::backend::DispatchTensor;
use burn::module::ParamId;
use burn::tensor::{DType, Tensor};

use super::config::DataReduce;
use crate::device::cuda::{Mark, Pending, buffer};
use crate::ops::backend::on_cuda;
use crate::ops::flat::{ALIGNED, laid_out, part};
use crate::ops::parameters::flat;
use crate::ops::rounded;
use crate::world::{Arriving, ProcessGroup};

/// Gradients in fp32, ready to be summed.
pub struct Bucket {
    parts: Vec<Part>,
    /// Where they are all in fp32 and GPUs sum them: each in a tensor of its own. Else all parts in one.
    values: Vec<Tensor<1>>,
}

/// A parameter's gradient within a bucket.
#[derive(Clone)]
struct Part {
    id: ParamId,
    /// Of the tensor with all parts.
    elements: Range<usize>,
    dtype: DType,
}

/// A bucket that is being summed.
pub struct Summed {
    parts: Vec<Part>,
    sum: Sum,
}

enum Sum {
    One(Arriving),
    Each(Pending),
}

impl Bucket {
    /// `None` without gradients.
    pub fn of(
        group: &ProcessGroup,
        reduce: DataReduce,
        gradients: Vec<(ParamId, DispatchTensor)>,
    ) -> Option<Self> {
        let gradients: Vec<_> = gradients.into_iter().map(|(id, gradient)| (id, flat(gradient))).collect();
        let device = gradients.first()?.1.device();
        let mut length = 0usize;
        let part = |(id, gradient): &(ParamId, Tensor<1>)| {
            // A CPU's kernels take any slice, and padding would be sent.
            let first = if on_cuda(gradient) { length.next_multiple_of(ALIGNED) } else { length };
            length = first + gradient.dims()[0];
            Part { id: *id, elements: first..length, dtype: gradient.dtype() }
        };
        let parts: Vec<_> = gradients.iter().map(part).collect();
        let values = gradients.into_iter().map(|(_, gradient)| gradient);
        let wide = parts.iter().all(|part| part.dtype == DType::F32);
        let values = if wide && group.has_gpus() && reduce == DataReduce::AllReduce {
            values.collect()
        } else {
            let firsts = parts.iter().map(|part| part.elements.start);
            vec![laid_out(length, (DType::F32, &device), firsts.zip(values).collect())]
        };
        Some(Self { parts, values })
    }

    /// Begins to sum it.
    pub fn sum(mut self, group: &ProcessGroup, reduce: DataReduce, name: String) -> Summed {
        let sum = match (self.values.len(), reduce) {
            (1, DataReduce::AllReduce) => Sum::One(group.sum(name, self.values.remove(0))),
            (1, DataReduce::Rank0) => Sum::One(group.sum_at(name, group.first(), self.values.remove(0))),
            _ => Sum::Each(group.sum_each(name, self.values)),
        };
        Summed { parts: self.parts, sum }
    }

    /// The place in the launches that are being recorded at which it is full.
    pub fn mark(&self) -> Mark {
        Mark::behind(&buffer(self.values[0].clone()))
    }

    /// Begins to sum it where it lies, over the gradients that a graph writes again in each step: once the graph has come to
    /// `full`, or behind what was issued so far.
    pub fn sum_in_place(&self, group: &ProcessGroup, name: String, full: Option<&Mark>) -> Summed {
        let sum = Sum::Each(group.sum_in_place(name, self.values.clone(), full));
        Summed { parts: self.parts.clone(), sum }
    }
}

impl Summed {
    pub fn ids(&self) -> impl Iterator<Item = ParamId> + '_ {
        self.parts.iter().map(|part| part.id)
    }

    /// The sums in the order of the parts, flat and in the types of their parameters. Ranks that do not update get none.
    fn wait(self) -> Vec<(ParamId, Tensor<1>)> {
        let Self { parts, sum } = self;
        let mut values = match sum {
            Sum::One(sum) => sum.wait().into_iter().collect(),
            Sum::Each(sums) => sums.wait_each(),
        };
        if values.len() == 1 {
            values = taken_apart(values.remove(0), &parts);
        }
        parts.into_iter().map(|part| part.id).zip(values).collect()
    }
}

/// The sums of these buckets, added to the earlier sums `all`.
pub fn arrived(
    buckets: Vec<Summed>,
    mut all: HashMap<ParamId, DispatchTensor>,
) -> HashMap<ParamId, DispatchTensor> {
    for (id, gradient) in buckets.into_iter().flat_map(Summed::wait) {
        let gradient = gradient.into_dispatch();
        // A gradient behind an operator of the parameter alone comes after its gate.
        let gradient = match all.remove(&id) {
            None => gradient,
            Some(earlier) => added(earlier, gradient),
        };
        all.insert(id, gradient);
    }
    all
}

/// The parts of a flat tensor in their types. One kernel rounds all parts of a type.
fn taken_apart(values: Tensor<1>, parts: &[Part]) -> Vec<Tensor<1>> {
    // A bucket has one or two types.
    let mut in_types = vec![values];
    let taken = |Part { elements, dtype, .. }: &Part| {
        let known = in_types.iter().position(|values| values.dtype() == *dtype);
        let place = known.unwrap_or_else(|| {
            in_types.push(rounded(in_types[0].clone(), *dtype));
            in_types.len() - 1
        });
        part(&in_types[place], elements.clone())
    };
    parts.iter().map(taken).collect()
}

pub fn added(a: DispatchTensor, b: DispatchTensor) -> DispatchTensor {
    (Tensor::<1>::from_dispatch(a) + Tensor::from_dispatch(b)).into_dispatch()
}

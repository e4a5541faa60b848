//! [`Bucket`]: parameters whose gradients are summed together. Each rank updates its part of them.
//!
//! The parameters lie one after the other, padded to a multiple of the ranks. Sums are in fp32 and in the order of ranks, and
//! stay in fp32 until the update.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::module::ParamId;
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::regions::{Region, Regions};
use crate::ops::backend::on_cuda;
use crate::ops::flat::{laid_out, part};
use crate::ops::narrow;
use crate::ops::parameters::flat;
use crate::optim::DeviceOptimizer;
use crate::params::table::{Entry, Group, id};
use crate::residence::layout::Layout;
use crate::world::{Arriving, ProcessGroup};

/// This rank's parts of a bucket's trained and of its frozen parameters, if there are any.
pub type Own = [Option<Tensor<1>>; 2];

/// The parts of all ranks, on their way.
pub type Gathering = [Option<Arriving>; 2];

/// The names of these parts.
const OWN: [&str; 2] = ["trained", "frozen"];

const EVERY_RANK: &str = "every rank gets it";

pub struct Bucket {
    name: String,
    /// Id of the optimizer's state.
    pub id: ParamId,
    pub layout: Arc<Layout>,
    regions: Regions,
    dtype: DType,
    /// Outside of autodiff.
    device: Device,
    ranks: ProcessGroup,
    /// This rank's part of the sums since the last update, in fp32; and the sums that are on their way.
    gradient: Option<Tensor<1>>,
    under_way: Option<Arriving>,
}

impl Bucket {
    /// `dtype`: of the stored parameters.
    pub fn new(
        name: String,
        layout: Arc<Layout>,
        (dtype, device): (DType, &Device),
        ranks: &ProcessGroup,
    ) -> Self {
        let regions = Regions::of(&layout, ranks.size());
        Self {
            id: id(&name),
            name,
            layout,
            regions,
            dtype,
            device: device.clone(),
            ranks: ranks.clone(),
            gradient: None,
            under_way: None,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// This rank's place among those that have the parts.
    pub fn place(&self) -> usize {
        self.ranks.place()
    }

    /// Begins to sum gradients over ranks, each given with its number in the layout. Missing gradients count as 0.
    pub fn reduce(&mut self, mut gradients: Vec<(usize, DispatchTensor)>) {
        self.settle();
        gradients.sort_unstable_by_key(|(part, _)| *part);
        let all = 0..self.regions.trained.own * self.ranks.size();
        let gradients = gradients.into_iter().map(|(part, gradient)| (part, flat(gradient)));
        let values = self.laid_out(all, DType::F32, gradients);
        self.under_way = Some(self.ranks.sum_in_parts(format!("gradients of {}", self.name), values));
    }

    /// A range of the buffer, from flat parameters in their order; gaps are 0.
    fn laid_out(
        &self,
        range: Range<usize>,
        dtype: DType,
        values: impl Iterator<Item = (usize, Tensor<1>)>,
    ) -> Tensor<1> {
        let piece = |(number, values): (usize, Tensor<1>)| {
            let of = &self.layout.parts[number];
            let (from, to) = (of.first.max(range.start), (of.first + of.elements()).min(range.end));
            (from < to).then(|| (from - range.start, part(&values, from - of.first..to - of.first)))
        };
        laid_out(range.len(), (dtype, &self.device), values.filter_map(piece).collect())
    }

    /// Waits for the sums, and adds them to those of earlier micro-batches.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) if another rank does not come.
    pub fn settle(&mut self) {
        let Some(sums) = self.under_way.take() else { return };
        let sums = sums.wait().expect(EVERY_RANK);
        self.gradient = Some(match self.gradient.take() {
            None => sums,
            Some(earlier) => earlier + sums,
        });
    }

    /// Waits for the sums, as [`settle`](Self::settle), and gives up the gradient since the last update.
    pub fn take_gradient(&mut self) -> Option<Tensor<1>> {
        self.settle();
        self.gradient.take()
    }

    /// Forgets the gradients so far.
    pub fn discard(&mut self) {
        (self.gradient, self.under_way) = (None, None);
    }

    /// The gradient since the last update in the type of the stored parameters.
    pub fn gradient_as_stored(&self) -> Option<Tensor<1>> {
        Some(narrow(self.gradient.clone()?, self.dtype))
    }

    /// The gradient since the last update, in fp32.
    pub fn gradient(&self) -> Option<Tensor<1>> {
        self.gradient.clone()
    }

    /// Makes the optimizer's state for this rank's part.
    pub fn make_state(&self, optimizer: &mut DeviceOptimizer) {
        if self.regions.trained.own > 0 {
            optimizer.state(self.id, &[self.regions.trained.own], &self.device);
        }
    }

    /// Cuts this rank's parts out of the values of all parameters of the bucket, which are flat and outside of autodiff.
    pub fn cut(&self, values: &HashMap<ParamId, Tensor<1>>) -> Own {
        let value = |part: usize| (part, values[&self.layout.parts[part].id].clone());
        self.regions.all().map(|region| {
            let own = region.of_rank(self.ranks.place());
            (region.own > 0).then(|| self.laid_out(own, self.dtype, region.parts.clone().map(value)))
        })
    }

    /// The layout of this rank's parts: one trained parameter and one frozen one, if there are any.
    pub fn own_layout(&self) -> Layout {
        let entry = |(region, name): (&Region, &str)| Entry {
            name: name.into(),
            shape: vec![region.own],
            dtype: self.dtype,
            trainable: name == OWN[0],
            group: Group::Block(0),
            packed: false,
            split: None,
        };
        let entries = self.regions.all().into_iter().zip(OWN).map(entry).filter(|entry| entry.shape != [0]);
        let entries: Vec<Entry> = entries.collect();
        Layout::over(entries.iter().map(|entry| (entry, entry.name.as_str())))
    }

    /// This rank's parts, given in the order of [`own_layout`](Self::own_layout).
    pub fn own(&self, mut parts: impl Iterator<Item = Tensor<1>>) -> Own {
        self.regions.all().map(|region| parts.next().filter(|_| region.own > 0))
    }

    /// Begins to gather the parts of all ranks.
    pub fn gather(&self, own: &Own) -> Gathering {
        let [trained, frozen] = own;
        let begin = |part: &Option<Tensor<1>>, what: &str| {
            let name = || format!("{what} weights of {}", self.name);
            part.as_ref().map(|part| self.ranks.put_together(name(), part.clone()))
        };
        [begin(trained, "trained"), begin(frozen, "frozen")]
    }

    /// The gathered parameters in their shapes, outside of autodiff.
    ///
    /// # Panics
    /// As [`settle`](Self::settle).
    pub fn parameters(&self, gathering: Gathering) -> Vec<DispatchTensor> {
        let regions = self.regions.all().into_iter().zip(gathering);
        let of_region =
            regions.filter_map(|(region, arriving)| Some((region, arriving?.wait().expect(EVERY_RANK))));
        let parts = of_region.flat_map(|(region, whole)| {
            let first = region.first;
            let part = move |part: usize| self.parameter(part, first, &whole);
            region.parts.clone().map(part).collect::<Vec<_>>()
        });
        parts.collect()
    }

    /// A parameter of a whole region that begins at element `first`.
    fn parameter(&self, number: usize, first: usize, whole: &Tensor<1>) -> DispatchTensor {
        let of = &self.layout.parts[number];
        let start = of.first - first;
        let values = part(whole, start..start + of.elements());
        // A CPU's kernels would copy a part of a larger tensor at each use.
        let values = match on_cuda(&values) {
            true => values,
            false => Tensor::from_data(values.into_data(), (&self.device, self.dtype)),
        };
        // The rank of a tensor is a mark on its type alone; the shape is the backend's.
        match *of.shape {
            [_] => values.into_dispatch(),
            [rows, columns] => values.reshape([rows, columns]).into_dispatch(),
            _ => unreachable!("parameters are vectors and matrices"),
        }
    }

    /// A parameter as it is stored, from the parts of all ranks. `own` gives this rank's part of the given name, as stored.
    ///
    /// # Panics
    /// As [`settle`](Self::settle).
    pub fn value(&self, part: usize, own: impl FnOnce(&str) -> Option<TensorData>) -> TensorData {
        let number = usize::from(part >= self.layout.trainable);
        let region = self.regions.all()[number].of_rank(self.ranks.place());
        let part = &self.layout.parts[part];
        let (from, to) = (part.first.max(region.start), (part.first + part.elements()).min(region.end));
        let own = if from < to { own(OWN[number]) } else { None };
        let bytes = own.map_or_else(Vec::new, |own| {
            let size = self.dtype.size();
            own.as_bytes()[(from - region.start) * size..(to - region.start) * size].to_vec()
        });
        let name = format!("{} of {}", part.name, self.name);
        let bytes = self.ranks.collect(name, bytes).wait().concat();
        TensorData::from_bytes_vec(bytes, part.shape.clone(), self.dtype)
    }
}

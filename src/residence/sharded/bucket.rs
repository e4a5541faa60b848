//! [`Bucket`]: parameters whose gradients are summed together, of which each rank updates its part.
//!
//! They lie one after the other, padded to a multiple of the ranks. Sums are in fp32 and in the order of ranks, and stay
//! in fp32 until the update.

use std::collections::HashMap;
use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::module::ParamId;
use burn::tensor::{Bytes, DType, Device, Tensor, TensorData};
use bytemuck::Pod;

use super::regions::{Region, Regions};
use crate::ops::parameters::flat;
use crate::ops::wide;
use crate::optim::{DeviceOptimizer, StepSize, squares};
use crate::residence::layout::Layout;
use crate::world::{Group, Ticket};

/// This rank's parts of a bucket's trained and frozen parameters, where it has any.
pub type Own = [Option<Tensor<1>>; 2];

/// The same of each rank, as bytes.
pub type Shares = Vec<Vec<u8>>;

pub struct Bucket {
    name: String,
    /// Of the optimizer's state.
    pub id: ParamId,
    pub layout: Arc<Layout>,
    regions: Regions,
    dtype: DType,
    /// Outside of autodiff.
    device: Device,
    ranks: Group,
    /// This rank's part of the sums since the last update, in fp32; and one that is on its way.
    gradient: Option<Tensor<1>>,
    under_way: Option<Ticket<Vec<f32>>>,
}

impl Bucket {
    /// `dtype`: of the parameters as they are stored.
    pub fn new(name: String, layout: Arc<Layout>, (dtype, device): (DType, &Device), ranks: &Group) -> Self {
        let regions = Regions::of(&layout, ranks.size());
        Self {
            name,
            id: ParamId::new(),
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

    /// Begins to sum gradients over ranks, each with its parameter's number in the layout. Of the others it is 0.
    pub fn reduce(&mut self, gradients: Vec<(usize, DispatchTensor)>) {
        self.settle();
        let mut values = vec![0.0; self.regions.trained.own * self.ranks.size()];
        for (part, gradient) in gradients {
            let data = wide(flat(gradient)).into_data();
            let of_part: &[f32] = data.as_slice().expect("fp32");
            let first = self.layout.parts[part].first;
            values[first..first + of_part.len()].copy_from_slice(of_part);
        }
        self.under_way = Some(self.ranks.reduce_scatter(format!("gradients of {}", self.name), values));
    }

    /// Waits for the sums, and adds them to those of earlier micro-batches.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) where another rank does not come.
    pub fn settle(&mut self) {
        let Some(ticket) = self.under_way.take() else { return };
        let sums = TensorData::new(ticket.wait(), [self.regions.trained.own]);
        let sums = Tensor::<1>::from_data(sums, (&self.device, DType::F32));
        self.gradient = Some(match self.gradient.take() {
            None => sums,
            Some(earlier) => earlier + sums,
        });
    }

    /// Forgets the gradients so far.
    pub fn discard(&mut self) {
        (self.gradient, self.under_way) = (None, None);
    }

    /// Whether there are gradients since the last update.
    pub fn has_gradient(&self) -> bool {
        self.gradient.is_some()
    }

    /// Σ g² over this rank's part, [1] in fp32.
    pub fn squares(&self) -> Option<Tensor<1>> {
        Some(squares(vec![self.gradient.clone()?.into_dispatch()]))
    }

    /// Makes the optimizer's state of this rank's part.
    pub fn make_state(&self, optimizer: &mut DeviceOptimizer) {
        if self.regions.trained.own > 0 {
            optimizer.state(self.id, &[self.regions.trained.own], &self.device);
        }
    }

    /// This rank's part of the trained parameters after a step along its gradient, which is freed.
    ///
    /// # Panics
    /// Where there is no gradient.
    pub fn update(&mut self, optimizer: &mut DeviceOptimizer, own: Tensor<1>, size: &StepSize) -> Tensor<1> {
        let gradient = self.gradient.take().expect("asked by the caller");
        optimizer.update(self.id, own, gradient, size)
    }

    /// This rank's parts, from the values of all parameters of the bucket, flat and outside of autodiff.
    pub fn cut(&self, values: &HashMap<ParamId, Tensor<1>>) -> Own {
        self.regions.all().map(|region| (region.own > 0).then(|| self.cut_region(region, values)))
    }

    fn cut_region(&self, region: &Region, values: &HashMap<ParamId, Tensor<1>>) -> Tensor<1> {
        let own = region.of_rank(self.ranks.place());
        let mut pieces = Vec::new();
        let zeros = |pieces: &mut Vec<Tensor<1>>, count: usize| {
            if count > 0 {
                pieces.push(Tensor::zeros([count], (&self.device, self.dtype)));
            }
        };
        let mut at = own.start;
        for part in &self.layout.parts[region.parts.clone()] {
            let (from, to) = (part.first.max(own.start), (part.first + part.elements()).min(own.end));
            if from < to {
                zeros(&mut pieces, from - at);
                pieces.push(values[&part.id].clone().narrow(0, from - part.first, to - from));
                at = to;
            }
        }
        zeros(&mut pieces, own.end - at);
        Tensor::cat(pieces, 0)
    }

    /// Begins to bring the parts of all ranks together.
    pub fn gather(&self, own: &Own) -> Ticket<Shares> {
        let mut bytes = Vec::new();
        own.iter().flatten().for_each(|part| bytes.extend_from_slice(part.to_data().as_bytes()));
        self.ranks.collect(format!("weights of {}", self.name), bytes)
    }

    /// A parameter of what was gathered, in its shape and in memory of its own, outside of autodiff.
    pub fn parameter(&self, part: usize, shares: &[Vec<u8>]) -> DispatchTensor {
        let pieces = self.pieces(part, shares);
        let part = &self.layout.parts[part];
        // Of the elements' alignment: Burn copies bytes of less once more.
        let bytes = match self.dtype.size() {
            4 => joined::<u32>(pieces, part.elements()),
            _ => joined::<u16>(pieces, part.elements()),
        };
        let data = TensorData::from_bytes(bytes, part.shape.clone(), self.dtype);
        let options = (&self.device, self.dtype);
        // The rank of a tensor is a mark on its type alone; the shape is the backend's.
        match *part.shape {
            [_] => Tensor::<1>::from_data(data, options).into_dispatch(),
            [_, _] => Tensor::<2>::from_data(data, options).into_dispatch(),
            _ => unreachable!("parameters are vectors and matrices"),
        }
    }

    /// Where a parameter is in the parts of all ranks, in their order.
    fn pieces<'s>(&self, part: usize, shares: &'s [Vec<u8>]) -> Vec<&'s [u8]> {
        let (region, before) = self.regions.find(part);
        let (part, size) = (&self.layout.parts[part], self.dtype.size());
        let piece = |(place, share): (usize, &'s Vec<u8>)| {
            let own = region.of_rank(place);
            let (from, to) = (part.first.max(own.start), (part.first + part.elements()).min(own.end));
            let place = |element: usize| (before + element - own.start) * size;
            (from < to).then(|| &share[place(from)..place(to)])
        };
        shares.iter().enumerate().filter_map(piece).collect()
    }

    /// A parameter as it is stored, from the parts of all ranks.
    ///
    /// # Panics
    /// As [`settle`](Self::settle).
    pub fn value(&self, part: usize, own: &Own) -> TensorData {
        let region = self.regions.find(part).0.of_rank(self.ranks.place());
        let own = &own[usize::from(part >= self.layout.trainable)];
        let part = &self.layout.parts[part];
        let (from, to) = (part.first.max(region.start), (part.first + part.elements()).min(region.end));
        let bytes = match own {
            Some(own) if from < to => {
                own.clone().narrow(0, from - region.start, to - from).into_data().as_bytes().to_vec()
            }
            _ => Vec::new(),
        };
        let name = format!("{} of {}", part.name, self.name);
        let bytes = self.ranks.collect(name, bytes).wait().concat();
        TensorData::from_bytes_vec(bytes, part.shape.clone(), self.dtype)
    }
}

/// Pieces one after the other, so many elements of one size.
fn joined<T: Pod + Send + Sync>(pieces: Vec<&[u8]>, elements: usize) -> Bytes {
    let mut all = vec![T::zeroed(); elements];
    let mut rest: &mut [u8] = bytemuck::cast_slice_mut(&mut all);
    for piece in pieces {
        let (here, behind) = rest.split_at_mut(piece.len());
        here.copy_from_slice(piece);
        rest = behind;
    }
    Bytes::from_elems(all)
}

//! A parameter from a source: given, loaded, drawn, or a shape alone; of ranks that divide it, each one's share.

use std::ops::Range;

use burn::module::Param;
use burn::tensor::{Device, Shape, Tensor, TensorData};
use safetensors::tensor::TensorView;

use super::first_values::{drawn, random};
use super::{Files, Init, Origin, Shared, Source};
use crate::ops::rounded;
use crate::params::split::{Slice, Split};
use crate::params::table::{Entry, id};
use crate::params::weights::write_elements;

impl Source {
    /// The parameter of this name within the module, which every rank has whole; `init` where it is not loaded.
    ///
    /// # Panics
    /// When more are asked for than are given.
    pub fn parameter<const D: usize>(
        &self,
        name: &'static str,
        shape: [usize; D],
        init: Init,
    ) -> Param<Tensor<D>> {
        self.divided(name, shape, None, init)
    }

    /// The rank's share of the parameter of this name and whole shape.
    ///
    /// # Panics
    /// As [`parameter`](Self::parameter), and when it does not divide.
    pub fn divided<const D: usize>(
        &self,
        name: &'static str,
        shape: [usize; D],
        split: Option<Split>,
        init: Init,
    ) -> Param<Tensor<D>> {
        self.made(name, shape, split, |name| self.first(name, shape, init))
    }

    /// As [`divided`](Self::divided), of a parameter that is added to the network: what it begins with where no file has it
    /// is `value`, in any type.
    pub fn computed<const D: usize>(
        &self,
        name: &'static str,
        shape: [usize; D],
        split: Option<Split>,
        value: impl FnOnce() -> Tensor<D>,
    ) -> Param<Tensor<D>> {
        self.made(name, shape, split, |name| match &self.shared.adapter {
            Some(_) => self.first(name, shape, Init::Constant(0.0)),
            None => {
                let (dtype, elements) = (self.shared.dtype, shape.iter().product::<usize>());
                let bytes = rounded(value(), dtype).into_data().as_bytes().to_vec();
                self.on_device(TensorData::from_bytes_vec(bytes, [elements], dtype), shape)
            }
        })
    }

    /// The rank's share of a parameter; `first`: its whole value before training, by its name, where it is not loaded.
    fn made<const D: usize>(
        &self,
        name: &'static str,
        shape: [usize; D],
        split: Option<Split>,
        first: impl FnOnce(&str) -> Tensor<D>,
    ) -> Param<Tensor<D>> {
        let Shared { device, dtype, tuning, origin, table, .. } = &*self.shared;
        if let Origin::Given(given) = origin {
            let next = given.borrow_mut().next();
            let (id, tensor) = next.unwrap_or_else(|| panic!("the {name} of {} is not given", self.path));
            let tensor = Tensor::<D>::from_dispatch(tensor);
            debug_assert_eq!(tensor.dims(), shape, "{name} of {}", self.path);
            return Param::initialized(id, tensor);
        }
        let name = self.path_of(name.into()).into_owned();
        let (id, trainable) = (id(&name), (tuning.trainable)(&name, self.group));
        let slice = split.filter(|_| self.ranks.size() > 1).map(|split| Slice {
            shape: &shape,
            split,
            place: self.ranks.place(),
            ranks: self.ranks.size(),
        });
        let own_shape: [usize; D] =
            slice.map_or(shape, |slice| slice.own_shape().try_into().expect("of the same rank"));
        let tensor = match origin {
            Origin::Given(_) => unreachable!("handed out above"),
            Origin::Shapes => None,
            Origin::Files(files) => {
                Some(self.loaded(files, &name, own_shape, slice).unwrap_or_else(|| own(first(&name), slice)))
            }
            Origin::Random(_) => Some(own(first(&name), slice)),
        };
        let (whole, group) = (shape.to_vec(), self.group);
        let entry = Entry { name, shape: whole, dtype: *dtype, trainable, group, packed: false, split };
        table.borrow_mut().entries.push(entry);
        match tensor {
            None => {
                let empty = |_: &Device, _| unreachable!("a source of shapes has no values");
                Param::uninitialized(id, empty, device.clone(), trainable, Shape::from(own_shape))
            }
            Some(tensor) if trainable => Param::initialized(id, tensor.require_grad()),
            Some(tensor) => Param::initialized(id, tensor),
        }
    }

    /// A rank's share as the files have it; `None` of what is added to their network.
    fn loaded<const D: usize>(
        &self,
        Files { weights, filler }: &Files,
        name: &str,
        own_shape: [usize; D],
        slice: Option<Slice<'_>>,
    ) -> Option<Tensor<D>> {
        let (tensor, dtype) = (self.replaced(name).or_else(|| weights.get(name))?, self.shared.dtype);
        let fill = |elements: Range<usize>, out: &mut [u8]| match slice {
            None => write_elements(&tensor, elements, out, dtype),
            Some(slice) => slice.runs_within(elements).for_each(|(place, run)| {
                let (first, size) = (place * dtype.size(), run.len() * dtype.size());
                write_elements(&tensor, run, &mut out[first..first + size], dtype);
            }),
        };
        Some(filler.borrow_mut().tensor(own_shape, dtype, &fill).autodiff())
    }

    /// The whole parameter before training, where no weights have it: an adapter's from its file or drawn by its name, of
    /// the model's own the next of the device's random numbers. Every rank draws the whole, and so the same as one process.
    fn first<const D: usize>(&self, name: &str, shape: [usize; D], init: Init) -> Tensor<D> {
        let Shared { device, dtype, tuning, origin, adapter, .. } = &*self.shared;
        let elements = shape.iter().product::<usize>();
        let stored = adapter.as_ref().and_then(|adapter| adapter.get(name));
        if !self.group.is_added() && stored.is_none() {
            let Origin::Random(on) = origin else {
                panic!("{name} was there when the files were checked");
            };
            let plain = device.clone().inner();
            return on
                .in_own_memory(elements * dtype.size(), || random(init, shape, (&plain, *dtype)))
                .autodiff();
        }
        let values = match stored {
            None => drawn(name, tuning.seed, elements, init),
            Some(tensor) => TensorData::from_bytes_vec(self.bytes(&tensor, shape), [elements], *dtype),
        };
        self.on_device(values, shape)
    }

    /// A parameter of these values, which are in a row.
    fn on_device<const D: usize>(&self, values: TensorData, shape: [usize; D]) -> Tensor<D> {
        let Shared { device, dtype, .. } = &*self.shared;
        // As a vector: Burn aligns the rows of what it makes on CUDA, and kernels would copy them.
        Tensor::<1>::from_data(values, (&device.clone().inner(), *dtype)).reshape(shape).autodiff()
    }

    /// The values that an adapter's file has of a parameter of the model itself, in the place of the model's.
    pub(super) fn replaced(&self, name: &str) -> Option<TensorView<'_>> {
        let adapter = self.shared.adapter.as_ref().filter(|_| !self.group.is_added());
        adapter.and_then(|adapter| adapter.get(name))
    }

    /// All elements of a file's tensor in the source's type.
    pub(super) fn bytes<const D: usize>(&self, tensor: &TensorView<'_>, shape: [usize; D]) -> Vec<u8> {
        let (elements, dtype) = (shape.iter().product::<usize>(), self.shared.dtype);
        let mut bytes = vec![0; elements * dtype.size()];
        write_elements(tensor, 0..elements, &mut bytes, dtype);
        bytes
    }
}

/// What a rank has of a whole parameter.
fn own<const D: usize>(whole: Tensor<D>, slice: Option<Slice<'_>>) -> Tensor<D> {
    let Some(slice) = slice else { return whole };
    let (dtype, device) = (whole.dtype(), whole.device().inner());
    let bytes = slice.cut(whole.inner().into_data().as_bytes(), dtype.size());
    // As a vector: Burn aligns the rows of what it makes on CUDA, and kernels would copy them.
    let data = TensorData::from_bytes_vec(bytes, [slice.own_shape().iter().product::<usize>()], dtype);
    Tensor::<1>::from_data(data, (&device, dtype)).reshape(Shape::from(slice.own_shape())).autodiff()
}

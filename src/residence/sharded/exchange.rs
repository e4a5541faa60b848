//! Flat tensors that ranks sum in parts, and those that they put together from parts; all parts are of one length.

use burn::tensor::{Bytes, DType, Device, Tensor, TensorData};
use bytemuck::Pod;

use crate::world::{Group, Ticket};

/// A flat tensor on its way.
#[must_use]
pub struct Arriving {
    way: Way,
    device: Device,
}

enum Way {
    Sums(Ticket<Vec<f32>>),
    /// Of each rank, in numbers of this type.
    Parts(Ticket<Vec<Vec<u8>>>, DType),
}

/// Begins to sum tensors over ranks, in fp32 and in the order of ranks. Each rank gets its part.
pub fn sum_in_parts(ranks: &Group, name: String, values: Tensor<1>) -> Arriving {
    let device = values.device();
    let values = values.into_data().try_into_vec().expect("fp32");
    Arriving { way: Way::Sums(ranks.reduce_scatter(name, values)), device }
}

/// Begins to put the parts of all ranks together, one after the other.
pub fn put_together(ranks: &Group, name: String, own: &Tensor<1>) -> Arriving {
    let bytes = own.to_data().as_bytes().to_vec();
    Arriving { way: Way::Parts(ranks.collect(name, bytes), own.dtype()), device: own.device() }
}

impl Arriving {
    /// The tensor.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) where another rank does not come.
    pub fn wait(self) -> Tensor<1> {
        let (data, dtype) = match self.way {
            Way::Sums(ticket) => {
                let sums = ticket.wait();
                let count = sums.len();
                (TensorData::new(sums, [count]), DType::F32)
            }
            Way::Parts(ticket, dtype) => {
                let parts = ticket.wait();
                let count = parts.iter().map(Vec::len).sum::<usize>() / dtype.size();
                // Of the elements' alignment: Burn copies bytes of less once more.
                let bytes = match dtype.size() {
                    4 => joined::<u32>(&parts, count),
                    _ => joined::<u16>(&parts, count),
                };
                (TensorData::from_bytes(bytes, [count], dtype), dtype)
            }
        };
        Tensor::from_data(data, (&self.device, dtype))
    }
}

/// Parts one after the other, so many elements of one size.
fn joined<T: Pod + Send + Sync>(parts: &[Vec<u8>], elements: usize) -> Bytes {
    let mut all = vec![T::zeroed(); elements];
    let mut rest: &mut [u8] = bytemuck::cast_slice_mut(&mut all);
    for part in parts {
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
    Bytes::from_elems(all)
}

//! [`Arriving`] and [`Leaving`]: flat tensors on their way between ranks.

use std::ops::Range;

use burn::tensor::{Bytes, DType, Device, Tensor, TensorData};
use bytemuck::Pod;

use crate::device::cuda::{Pending, buffer, copied, tensor};
use crate::world::group::Ticket;

/// A flat tensor on its way.
#[must_use]
pub struct Arriving {
    pub(super) way: Way,
    /// Whether this rank gets the result.
    pub(super) is_ours: bool,
}

/// A flat tensor that this rank sends.
#[must_use]
pub enum Leaving {
    Gpus(Box<Pending>),
    Bytes(Ticket<()>),
}

/// Who carries it, and what of it arrives.
pub(super) enum Way {
    Gpus(Pending),
    /// This part of the result.
    OwnPart(Pending, Range<usize>),
    /// Sums in fp32.
    Sums(Ticket<Vec<f32>>, Device),
    /// A tensor of this type, for this device.
    Bytes(Ticket<Vec<u8>>, DType, Device),
    /// The tensors of all ranks in their order, of this type, for this device.
    Parts(Ticket<Vec<Vec<u8>>>, DType, Device),
    /// This rank's own tensor, which the others copy.
    Own(Ticket<Vec<u8>>, Box<Tensor<1>>),
}

impl Leaving {
    /// Whether it is known to have been sent; does not wait.
    pub fn is_over(&mut self) -> bool {
        match self {
            Self::Gpus(pending) => pending.is_over(),
            Self::Bytes(_) => false,
        }
    }

    /// Waits until its memory is free again. On a GPU the device waits before what comes next, else this thread waits.
    ///
    /// # Panics
    /// With a [`Failure`](super::Failure) if the other rank does not come.
    pub fn wait(self) {
        match self {
            Self::Gpus(pending) => drop(pending.wait()),
            Self::Bytes(ticket) => ticket.wait(),
        }
    }
}

impl Arriving {
    /// The tensor; `None` on a rank that gets none. On a GPU the device waits before what comes next, else this thread waits.
    ///
    /// # Panics
    /// With a [`Failure`](super::Failure) if another rank does not come.
    pub fn wait(self) -> Option<Tensor<1>> {
        let is_ours = self.is_ours;
        match self.way {
            Way::Gpus(pending) => Some(pending.wait()).filter(|_| is_ours),
            // The memory of the other parts is freed.
            Way::OwnPart(pending, own) => Some(tensor(copied(&buffer(pending.wait()), own))),
            Way::Parts(ticket, dtype, device) => {
                let parts = ticket.wait();
                let count = parts.iter().map(Vec::len).sum::<usize>() / dtype.size();
                // Aligned like the elements: otherwise Burn copies the bytes once more.
                let bytes = match dtype.size() {
                    4 => joined::<u32>(&parts, count),
                    _ => joined::<u16>(&parts, count),
                };
                Some(Tensor::from_data(TensorData::from_bytes(bytes, [count], dtype), (&device, dtype)))
            }
            Way::Sums(ticket, device) => {
                // The other ranks get no numbers.
                let sums = Some(ticket.wait()).filter(|_| is_ours)?;
                let count = sums.len();
                Some(Tensor::from_data(TensorData::new(sums, [count]), (&device, DType::F32)))
            }
            Way::Bytes(ticket, dtype, device) => {
                let bytes = ticket.wait();
                let count = bytes.len() / dtype.size();
                Some(Tensor::from_data(TensorData::from_bytes_vec(bytes, [count], dtype), (&device, dtype)))
            }
            Way::Own(ticket, own) => {
                ticket.wait();
                Some(*own)
            }
        }
    }
}

/// Joins parts that have so many elements in all.
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

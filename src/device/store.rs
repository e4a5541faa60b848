//! [`BlockStore`]: the flat buffers of equally large blocks on the host, and the slots on the device
//! through which they pass.
//!
//! A block has two buffers on the host, one for its weights and one for its gradients; or one for both, where gradients
//! take the place of the weights until these are written again; or none. Copies are issued and not waited for. A store
//! keeps each copy behind what it depends on: a slot is refilled after the computations that
//! [`used`](BlockStore::used) has marked and after its own content was sent, and a buffer is read after what is still
//! on its way to it.

mod cpu;

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Tensor};

use self::cpu::CpuStore;
use super::cuda;
use super::host::{HostMemory, Loan};
use super::trace::Mark;
use crate::common::DeviceId;

/// Which of a block's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Weights,
    Gradients,
}

/// The buffers of a block on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// The block stays on the device.
    None,
    /// Gradients take the place of the weights.
    One,
    /// Gradients have one of their own.
    Two,
}

/// What a store holds.
#[derive(Clone, Debug)]
pub struct StoreSize {
    /// The buffers of each block.
    pub buffers: Vec<Buffers>,
    /// Elements of a buffer of weights and of a slot for them.
    pub elements: usize,
    /// The same for gradients. They belong to a block's first weights, whose others are frozen, so they are no more.
    pub trainable: usize,
    pub dtype: DType,
    /// Slots on the device for weights, and after them those for gradients.
    pub slots: usize,
    pub gradient_slots: usize,
}

impl StoreSize {
    /// Elements of a slot.
    pub fn slot_elements(&self, slot: usize) -> usize {
        if slot < self.slots { self.elements } else { self.trainable }
    }

    /// Bytes of a block's buffer; `None` where it has none.
    pub fn bytes(&self, side: Side, block: usize) -> Option<usize> {
        let elements = match (side, self.buffers[block]) {
            (_, Buffers::None) => return None,
            (Side::Gradients, Buffers::Two) => self.trainable,
            (Side::Weights | Side::Gradients, _) => self.elements,
        };
        Some(elements * self.dtype.size())
    }

    /// Makes the buffers of all blocks by `make`, which gets the bytes of one: those for weights, and those that
    /// gradients have to themselves.
    ///
    /// # Errors
    /// Those that `make` returns.
    pub fn make<B>(&self, make: impl Fn(usize) -> Result<B, String>) -> Result<[Vec<Option<B>>; 2], String> {
        let of = |side: Side, block: usize| {
            let own = side == Side::Weights || self.buffers[block] == Buffers::Two;
            self.bytes(side, block).filter(|_| own).map(&make).transpose()
        };
        let all = |side| (0..self.buffers.len()).map(|block| of(side, block)).collect::<Result<_, _>>();
        Ok([all(Side::Weights)?, all(Side::Gradients)?])
    }

    /// Where a block's weights or gradients lie.
    pub fn buffer<'a, B>(
        &self,
        [weights, gradients]: [&'a mut [B]; 2],
        side: Side,
        block: usize,
    ) -> &'a mut B {
        match (side, self.buffers[block]) {
            (Side::Gradients, Buffers::Two) => &mut gradients[block],
            _ => &mut weights[block],
        }
    }
}

/// Buffers and slots; see the module. Used by one thread at a time, always the same.
pub trait BlockStore: Send {
    /// A buffer on the host; waits until the copies to and from it are done.
    fn host(&mut self, side: Side, block: usize) -> &mut [u8];

    /// Hands a buffer out.
    fn lend(&mut self, side: Side, block: usize) -> Loan;

    /// Takes a lent buffer back. It begins with so many of the block's first weights. Where these are all its weights,
    /// the buffer keeps them, and what held them before takes its place; else they are copied.
    fn give_back(&mut self, block: usize, memory: Box<dyn HostMemory>, elements: usize);

    /// Copies the first elements of a buffer into a slot.
    fn fill(&mut self, slot: usize, side: Side, block: usize, elements: usize);

    /// Computations issued from here on wait until the slot is filled.
    fn filled(&mut self, slot: usize);

    /// The computations issued so far read the slot: it is refilled only after them.
    fn used(&mut self, slot: usize);

    /// Elements of a slot as a row-major tensor outside of autodiff: what it holds when it is read.
    fn view(&self, slot: usize, first: usize, shape: &[usize]) -> DispatchTensor;

    /// Writes computed values to a slot, each from the element beside it on.
    fn write(&mut self, slot: usize, parts: Vec<(usize, DispatchTensor)>);

    /// Adds computed values to what a slot holds, as [`write`](Self::write) would put them there.
    fn add(&mut self, slot: usize, parts: Vec<(usize, DispatchTensor)>) {
        // The rank of a tensor is a mark on its type alone.
        let sum = |(first, values): (usize, DispatchTensor)| {
            let values = Tensor::<1>::from_dispatch(values);
            let before = Tensor::from_dispatch(self.view(slot, first, &values.shape()));
            (first, (before + values).into_dispatch())
        };
        let sums = parts.into_iter().map(sum).collect();
        self.write(slot, sums);
    }

    /// Copies the first elements of a slot into a buffer; the slot's content is lost where memory is scarce.
    fn send(&mut self, slot: usize, side: Side, block: usize, elements: usize);

    /// The slot's content is no longer needed.
    fn clear(&mut self, slot: usize);

    /// Computations issued from here on run after all copies issued so far.
    fn settle(&mut self);

    /// Begins what may be recorded as a graph, once all copies are [settled](Self::settle): copies issued from here on
    /// run after the computations issued so far, and wait for nothing else that was before.
    fn fork(&mut self) {}

    /// What is issued from here on runs after the computations issued so far, a replayed graph with its copies among them.
    fn join(&mut self) {}

    /// Waits until everything issued so far is done.
    fn wait(&mut self);

    /// Notes a place among the computations in a recording, where the device keeps one.
    fn mark(&mut self, _mark: Mark) {}
}

impl DeviceId {
    /// Buffers of zeros and slots.
    ///
    /// # Errors
    /// When the host or the device has not so much memory; says how much was asked for.
    pub fn block_store(self, size: StoreSize) -> Result<Box<dyn BlockStore>, String> {
        Ok(match self {
            Self::Cpu => Box::new(CpuStore::new(size)?),
            Self::Cuda(ordinal) => Box::new(cuda::CudaStore::new(cuda::Gpu::open(ordinal), size)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(buffers: Vec<Buffers>, elements: usize) -> StoreSize {
        let slots = buffers.len();
        StoreSize { buffers, elements, trainable: elements, dtype: DType::F32, slots, gradient_slots: 0 }
    }

    #[test]
    fn what_is_written_to_a_slot_arrives_on_the_host_and_comes_back() {
        let mut store = DeviceId::Cpu.block_store(size(vec![Buffers::Two; 2], 6)).unwrap();
        let values = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], &DeviceId::Cpu.burn());
        store.write(0, vec![(2, values.into_dispatch())]);
        store.send(0, Side::Gradients, 1, 6);
        let host: &[f32] = bytemuck::cast_slice(store.host(Side::Gradients, 1));
        assert_eq!(host, [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
        store.fill(1, Side::Gradients, 1, 6);
        let view = Tensor::<2>::from_dispatch(store.view(1, 2, &[2, 2]));
        assert_eq!(view.into_data().try_to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_buffer_of_gradients_comes_back_as_the_weights() {
        for buffers in [Buffers::Two, Buffers::One] {
            let mut store = DeviceId::Cpu.block_store(size(vec![buffers], 2)).unwrap();
            let mut weights = || store.host(Side::Weights, 0).as_ptr();
            let first = weights();
            let mut loan = store.lend(Side::Gradients, 0);
            loan.memory.bytes_mut().fill(1);
            store.give_back(0, loan.memory, 2);
            assert_eq!(store.host(Side::Weights, 0)[..], [1; 8]);
            // The next gradients get what held the weights: the other buffer, or the only one.
            assert_eq!(store.host(Side::Gradients, 0).as_ptr(), first);
            assert_eq!(store.host(Side::Weights, 0).as_ptr() == first, buffers == Buffers::One);
        }
    }
}

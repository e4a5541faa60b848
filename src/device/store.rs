//! [`BlockStore`]: the flat buffers of equally large blocks on the host, and the slots on the device
//! through which they pass.
//!
//! A block has two buffers on the host, one for its weights and one for its gradients; or one for both, where gradients
//! take the place of the weights until these are written again; or none. Copies are issued and not waited for. A store
//! keeps each copy behind what it depends on: a slot is refilled after the computations that
//! [`used`](BlockStore::used) has marked and after its own content was sent, and a buffer is read after what is still
//! on its way to it.

use burn::backend::DispatchTensor;
use burn::tensor::{Bytes, DType, Tensor, TensorData};

use super::cuda;
use super::host::{HostMemory, Loan};
use super::trace::Mark;
use crate::common::DeviceId;
use crate::measure::alloc::Uncounted;

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

/// The same on the CPU, where a copy is done when it is issued. A slot takes memory only while it
/// holds something, and only slots count as the device's memory.
struct CpuStore {
    size: StoreSize,
    device: burn::tensor::Device,
    /// Each block's memory; `None` while it is lent and where the block has none.
    weights: Vec<Option<Box<dyn HostMemory>>>,
    gradients: Vec<Option<Box<dyn HostMemory>>>,
    slots: Vec<Option<Tensor<1>>>,
}

impl CpuStore {
    fn new(size: StoreSize) -> Result<Self, String> {
        let [weights, gradients] =
            size.make(|bytes| Ok(Box::new(Uncounted::new(bytes)?) as Box<dyn HostMemory>))?;
        let slots = vec![None; size.slots + size.gradient_slots];
        Ok(Self { size, device: DeviceId::Cpu.burn(), weights, gradients, slots })
    }

    fn buffer(&mut self, side: Side, block: usize) -> &mut Option<Box<dyn HostMemory>> {
        self.size.buffer([&mut self.weights, &mut self.gradients], side, block)
    }
}

impl BlockStore for CpuStore {
    fn host(&mut self, side: Side, block: usize) -> &mut [u8] {
        self.buffer(side, block).as_mut().expect("the buffer is here").bytes_mut()
    }

    fn lend(&mut self, side: Side, block: usize) -> Loan {
        let memory = self.buffer(side, block).take().expect("the buffer is here");
        Loan { memory, arrival: Box::new(|| Ok(())) }
    }

    fn give_back(&mut self, block: usize, memory: Box<dyn HostMemory>, elements: usize) {
        if let (Some(weights), true) = (&mut self.weights[block], elements < self.size.elements) {
            let bytes = elements * self.size.dtype.size();
            weights.bytes_mut()[..bytes].copy_from_slice(&memory.bytes()[..bytes]);
            self.gradients[block] = Some(memory);
        } else if let Some(before) = self.weights[block].replace(memory) {
            self.gradients[block] = Some(before);
        }
    }

    fn fill(&mut self, slot: usize, side: Side, block: usize, elements: usize) {
        // Frees what the slot held first.
        self.slots[slot] = None;
        let dtype = self.size.dtype;
        let bytes = &self.host(side, block)[..elements * dtype.size()];
        // Of the elements' alignment: Burn copies bytes of less once more.
        let content = if dtype.size() == 4 {
            Bytes::from_elems(copied::<u32>(bytes))
        } else {
            Bytes::from_elems(copied::<u16>(bytes))
        };
        let data = TensorData::from_bytes(content, [elements], dtype);
        self.slots[slot] = Some(Tensor::from_data(data, (&self.device, dtype)));
    }

    fn filled(&mut self, slot: usize) {
        assert!(self.slots[slot].is_some(), "slot {slot} is read before it is filled");
    }

    fn used(&mut self, _slot: usize) {}

    fn view(&self, slot: usize, first: usize, shape: &[usize]) -> DispatchTensor {
        let content = self.slots[slot].clone().expect("a slot that is read holds something");
        let elements = shape.iter().product();
        let part = content.narrow(0, first, elements);
        // The rank of a tensor is a mark on its type alone; the shape is the backend's.
        match *shape {
            [_] => part.into_dispatch(),
            [rows, columns] => part.reshape([rows, columns]).into_dispatch(),
            _ => unreachable!("parameters are vectors and matrices"),
        }
    }

    fn write(&mut self, slot: usize, parts: Vec<(usize, DispatchTensor)>) {
        let (elements, dtype) = (self.size.slot_elements(slot), self.size.dtype);
        let before = self.slots[slot].take();
        let before = before.unwrap_or_else(|| Tensor::zeros([elements], (&self.device, dtype)));
        let content = parts.into_iter().fold(before, |content, (first, values)| {
            let values = Tensor::<1>::from_dispatch(values);
            let count = values.shape().num_elements();
            content.slice_assign(first..first + count, values.reshape([count]))
        });
        self.slots[slot] = Some(content);
    }

    fn send(&mut self, slot: usize, side: Side, block: usize, elements: usize) {
        let content = self.slots[slot].take().expect("a slot that is sent holds something").into_data();
        let bytes = elements * self.size.dtype.size();
        self.host(side, block)[..bytes].copy_from_slice(&content.as_bytes()[..bytes]);
    }

    fn clear(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    fn settle(&mut self) {}

    fn wait(&mut self) {}
}

fn copied<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    let mut elements = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    bytemuck::cast_slice_mut(&mut elements).copy_from_slice(bytes);
    elements
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

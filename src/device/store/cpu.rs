//! [`CpuStore`]: buffers and slots in the memory of the CPU.

use burn::backend::DispatchTensor;
use burn::tensor::{Bytes, Device, Tensor, TensorData};

use super::{BlockStore, Side, StoreSize};
use crate::common::DeviceId;
use crate::device::host::{HostMemory, Loan};
use crate::measure::alloc::Uncounted;

/// A store on the CPU, where a copy is done when it is issued. A slot takes memory only while it
/// holds something, and only slots count as the device's memory.
pub(super) struct CpuStore {
    size: StoreSize,
    device: Device,
    /// Each block's memory; `None` while it is lent and where the block has none.
    weights: Vec<Option<Box<dyn HostMemory>>>,
    gradients: Vec<Option<Box<dyn HostMemory>>>,
    slots: Vec<Option<Tensor<1>>>,
}

impl CpuStore {
    pub fn new(size: StoreSize) -> Result<Self, String> {
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

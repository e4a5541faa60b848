//! [`CudaStore`]: buffers in page-locked memory, slots on the GPU, and two streams of copies, in and
//! out, ordered with the kernels by events.
//!
//! CubeCL's thread issues the copies and records the events in order, between the kernels. The computing thread waits for
//! it only before it reads a buffer. Were it to wait for each copy, it would wait for all queued kernels, and CubeCL's
//! thread would have none while the next are prepared.

mod hold;
mod place;

use std::slice;

use burn::backend::DispatchTensor;
use burn::tensor::{Shape, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::DriverError;
use cudarc::driver::result::{memcpy_dtoh_async, memcpy_htod_async, memset_d8_async};
use cudarc::driver::sys::CUstream;

pub use hold::Hold;
use hold::hold;
use place::{Buffer, Place};

use super::mirror::arrival;
use super::stream::Raw;
use super::{CopyStream, Event, Gpu, Later, PinnedArena, Slot, add, buffer, copy, tensor};
use crate::device::trace::Mark;
use crate::device::{BlockStore, HostMemory, Loan, Side, StoreSize};

/// Buffers and slots of one GPU, for the thread that made it.
pub struct CudaStore {
    gpu: &'static Gpu,
    size: StoreSize,
    left_out: Option<Hold>,
    weights: Vec<Buffer>,
    gradients: Vec<Buffer>,
    places: Vec<Place>,
    fills: CopyStream,
    sends: CopyStream,
}

impl CudaStore {
    /// # Errors
    /// When the host cannot lock, or the device does not have, so much memory.
    pub fn new(gpu: &'static Gpu, size: StoreSize) -> Result<Self, String> {
        // A block of its own for each buffer, of exactly its size.
        let buffer = |bytes| {
            let memory = PinnedArena::new(gpu, bytes)?.take(bytes).expect("an arena of one buffer");
            Ok(Buffer { memory: Some(Box::new(memory)), ..Buffer::default() })
        };
        let filled =
            |buffers: Vec<Option<Buffer>>| buffers.into_iter().map(Option::unwrap_or_default).collect();
        let [weights, gradients] = size.make(buffer)?.map(filled);
        let place = |slot| {
            let slot = Slot::new(gpu, size.slot_elements(slot) * size.dtype.size())?;
            let (start, length) = (slot.pointer, slot.bytes);
            // Optimizers also compute with the gaps between the parameters, so these must be numbers.
            // SAFETY: the slot holds `length` bytes.
            gpu.stream()
                .submit(move |stream| unsafe { memset_d8_async(start, 0, length, stream) })
                .map_err(|e| format!("the device refused to clear a slot: {e}"))?;
            Ok(Place { slot, filled: None, used: Some(Event::record(gpu).into()), sent: None })
        };
        Ok(Self {
            weights,
            gradients,
            places: (0..size.slots + size.gradient_slots).map(place).collect::<Result<Vec<_>, String>>()?,
            fills: CopyStream::new(gpu, false)?,
            sends: CopyStream::new(gpu, false)?,
            gpu,
            size,
            left_out: None,
        })
    }

    /// The same store without one of its holds: its values are wrong.
    #[doc(hidden)]
    #[must_use]
    pub fn without(mut self, hold: Hold) -> Self {
        self.left_out = Some(hold);
        self
    }

    fn buffer(&mut self, side: Side, block: usize) -> &mut Buffer {
        self.size.buffer([&mut self.weights, &mut self.gradients], side, block)
    }

    /// Kernels issued from here on run after the event.
    fn hold_compute(&self, later: Option<Later>) {
        if let Some(later) = later {
            self.gpu.stream().issue(move |stream| hold(stream, &later));
        }
    }

    /// Each of these tensors, and its place in a slot.
    fn pairs(&self, slot: usize, parts: Vec<(usize, DispatchTensor)>) -> Vec<[CubeTensor; 2]> {
        let (slot, dtype) = (&self.places[slot].slot, self.size.dtype);
        let pair = |(first, values)| {
            let values = into_contiguous(buffer(Tensor::<1>::from_dispatch(values)));
            let to = slot.part(first * dtype.size(), values.meta.shape().clone(), dtype);
            [values, to]
        };
        parts.into_iter().map(pair).collect()
    }

    /// Forgets what touched buffers and slots; `since` comes behind all of it.
    fn forget(&mut self, since: Option<&Later>) {
        for buffer in self.weights.iter_mut().chain(&mut self.gradients) {
            (buffer.read, buffer.written) = (since.cloned(), since.cloned());
        }
        for place in &mut self.places {
            (place.filled, place.used, place.sent) = (None, since.cloned(), None);
        }
    }

    /// Issues a copy of so many bytes on a stream of copies, behind the events whose holds are not left out.
    fn copy<F>(&self, copies: Raw, events: [(Hold, &Option<Later>); 3], bytes: usize, issue: F) -> Later
    where
        F: FnOnce(CUstream) -> Result<(), DriverError> + Send + 'static,
    {
        let kept = events.into_iter().filter(|(hold, _)| Some(*hold) != self.left_out);
        let holds: Vec<Later> = kept.filter_map(|(_, event)| event.clone()).collect();
        let done = Later::default();
        let recorded = done.clone();
        self.gpu.stream().enqueue(None, move |_, _| {
            holds.iter().for_each(|later| hold(copies.stream(), later));
            issue(copies.stream()).map_err(|e| format!("the device refused a copy of {bytes} bytes: {e}"))?;
            recorded.record_on(copies.stream());
            Ok(())
        });
        done
    }
}

const HERE: &str = "the buffer is here";

impl BlockStore for CudaStore {
    fn host(&mut self, side: Side, block: usize) -> &mut [u8] {
        let gpu = self.gpu;
        let buffer = self.buffer(side, block);
        let copies: Vec<Later> = [buffer.read.take(), buffer.written.take()].into_iter().flatten().collect();
        if !copies.is_empty() {
            gpu.stream().submit(|_| ());
            copies.iter().filter_map(Later::event).for_each(Event::wait);
        }
        buffer.memory.as_mut().expect(HERE).bytes_mut()
    }

    fn lend(&mut self, side: Side, block: usize) -> Loan {
        let gpu = self.gpu;
        let buffer = self.buffer(side, block);
        let memory = buffer.memory.take().expect(HERE);
        let copies = [buffer.read.take(), buffer.written.take()].into_iter().flatten();
        gpu.stream().flush();
        Loan { memory, arrival: arrival(gpu, copies) }
    }

    fn give_back(&mut self, block: usize, memory: Box<dyn HostMemory>, elements: usize) {
        let lent = Buffer { memory: Some(memory), ..Buffer::default() };
        if elements < self.size.elements && self.weights[block].memory.is_some() {
            let bytes = elements * self.size.dtype.size();
            let from = lent.memory.as_ref().expect(HERE).bytes();
            self.host(Side::Weights, block)[..bytes].copy_from_slice(&from[..bytes]);
            self.gradients[block] = lent;
            return;
        }
        let before = std::mem::replace(&mut self.weights[block], lent);
        if before.memory.is_some() {
            self.gradients[block] = before;
        }
    }

    fn fill(&mut self, slot: usize, side: Side, block: usize, elements: usize) {
        let bytes = elements * self.size.dtype.size();
        let Buffer { memory, written, .. } = self.buffer(side, block);
        // As a number, since the copy is issued by CubeCL's thread.
        let from = memory.as_ref().expect(HERE).bytes()[..bytes].as_ptr() as usize;
        let written = written.clone();
        let place = &self.places[slot];
        let events = [
            (Hold::FillForKernels, &place.used),
            (Hold::FillForSend, &place.sent),
            (Hold::FillForBuffer, &written),
        ];
        let to = place.slot.pointer;
        let done = self.copy(self.fills.raw(), events, bytes, move |stream| {
            // SAFETY: slot and buffer hold no fewer bytes, and live as long as the store, which waits for its copies
            // before it ends; `host` waits for this copy before anyone changes the buffer.
            unsafe { memcpy_htod_async(to, slice::from_raw_parts(from as *const u8, bytes), stream) }
        });
        self.buffer(side, block).read = Some(done.clone());
        self.places[slot].filled = Some(done);
    }

    fn filled(&mut self, slot: usize) {
        let filled = self.places[slot].filled.clone();
        self.hold_compute(filled.filter(|_| self.left_out != Some(Hold::KernelsForFill)));
    }

    fn used(&mut self, slot: usize) {
        self.places[slot].used = Some(Later::behind(self.gpu));
    }

    fn view(&self, slot: usize, first: usize, shape: &[usize]) -> DispatchTensor {
        let StoreSize { dtype, .. } = self.size;
        let part = self.places[slot].slot.part(first * dtype.size(), Shape::from(shape.to_vec()), dtype);
        // The rank of a tensor is a mark on its type alone.
        tensor::<1>(part).into_dispatch()
    }

    /// In one launch: a copy for each tensor would have the device wait between them.
    fn write(&mut self, slot: usize, parts: Vec<(usize, DispatchTensor)>) {
        let sent = self.places[slot].sent.take().filter(|_| self.left_out != Some(Hold::KernelsForSend));
        self.hold_compute(sent);
        copy(&self.pairs(slot, parts));
    }

    /// In one launch: the copy that last filled the slot comes behind the one that last sent it.
    fn add(&mut self, slot: usize, parts: Vec<(usize, DispatchTensor)>) {
        add(&self.pairs(slot, parts));
    }

    fn send(&mut self, slot: usize, side: Side, block: usize, elements: usize) {
        self.used(slot);
        let bytes = elements * self.size.dtype.size();
        let Buffer { memory, read, .. } = self.buffer(side, block);
        let to = memory.as_mut().expect(HERE).bytes_mut()[..bytes].as_mut_ptr() as usize;
        let read = read.clone();
        let place = &self.places[slot];
        let events = [
            (Hold::SendForKernels, &place.used),
            (Hold::SendForFill, &place.filled),
            (Hold::SendForBuffer, &read),
        ];
        let from = place.slot.pointer;
        let done = self.copy(self.sends.raw(), events, bytes, move |stream| {
            // SAFETY: as in `fill`; `host` waits for this copy before anyone reads the buffer.
            unsafe { memcpy_dtoh_async(slice::from_raw_parts_mut(to as *mut u8, bytes), from, stream) }
        });
        self.buffer(side, block).written = Some(done.clone());
        self.places[slot].sent = Some(done);
    }

    fn clear(&mut self, _slot: usize) {}

    fn settle(&mut self) {
        for copies in [self.fills.raw(), self.sends.raw()] {
            self.gpu.stream().issue(move |stream| Event::record_on(copies.stream()).hold(stream));
        }
    }

    /// A graph that is being recorded can wait for no event from before, and takes in a stream that waits for one of its own.
    fn fork(&mut self) {
        self.forget(None);
        for copies in [self.fills.raw(), self.sends.raw()] {
            self.gpu.stream().issue(move |stream| Event::record_on(stream).hold(copies.stream()));
        }
    }

    fn join(&mut self) {
        self.forget(Some(&Later::behind(self.gpu)));
    }

    fn mark(&mut self, mark: Mark) {
        self.gpu.mark(mark);
    }

    fn wait(&mut self) {
        self.gpu.synchronize();
        self.gpu.context.bind();
        for copies in [self.fills.raw(), self.sends.raw()] {
            Event::record_on(copies.stream()).wait();
        }
    }
}

impl Drop for CudaStore {
    fn drop(&mut self) {
        // No call that is queued reads a buffer that is gone.
        self.gpu.stream().flush();
        let buffers = self.weights.iter().chain(&self.gradients);
        let copies = buffers.flat_map(|buffer| [&buffer.read, &buffer.written]).flatten();
        for event in copies.filter_map(Later::event) {
            // A device that no longer answers no longer copies either.
            let _ = event.try_wait();
        }
    }
}

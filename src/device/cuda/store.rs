//! [`CudaStore`]: buffers in page-locked memory, slots on the GPU, and two streams of copies, in and
//! out, ordered with the kernels by events.

use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::tensor::{Shape, Tensor};
use burn_cubecl::kernel::into_contiguous;
use cudarc::driver::result::{memcpy_dtod_async, memcpy_dtoh_async, memcpy_htod_async, memset_d8_async};
use cudarc::driver::sys::CUstream;

use super::mirror::arrival;
use super::{CopyStream, Event, Gpu, PinnedArena, Slot, buffer, tensor};
use crate::device::trace::Mark;
use crate::device::{BlockStore, HostMemory, Loan, Side, StoreSize};

/// A buffer on the host and its last copies in each direction.
#[derive(Default)]
struct Buffer {
    /// `None` while it is lent, and of a block that has none.
    memory: Option<Box<dyn HostMemory>>,
    /// The copy that last read it.
    read: Option<Arc<Event>>,
    /// The copy that last wrote it.
    written: Option<Arc<Event>>,
}

/// A slot and what last touched it.
struct Place {
    slot: Slot,
    filled: Option<Arc<Event>>,
    /// Kernels that read or wrote it.
    used: Option<Arc<Event>>,
    sent: Option<Arc<Event>>,
}

/// What a copy or a kernel waits for on the device. A store keeps all of these holds; a test leaves one out and
/// sees that the values are wrong.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A fill waits for the kernels that read or wrote its slot,
    FillForKernels,
    /// for the copy that sends what the slot holds,
    FillForSend,
    /// and for the copy that writes its buffer.
    FillForBuffer,
    /// Kernels that read a slot wait for its fill,
    KernelsForFill,
    /// and those that write it for the copy that sends what it holds.
    KernelsForSend,
    /// A send waits for the kernels that wrote its slot,
    SendForKernels,
    /// for the copy that fills the slot,
    SendForFill,
    /// and for the copy that reads its buffer.
    SendForBuffer,
}

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
            Ok(Place { slot, filled: None, used: Some(Arc::new(Event::record(gpu))), sent: None })
        };
        Ok(Self {
            weights,
            gradients,
            places: (0..size.slots + size.gradient_slots).map(place).collect::<Result<Vec<_>, String>>()?,
            fills: CopyStream::new(gpu)?,
            sends: CopyStream::new(gpu)?,
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
    fn hold_compute(&self, event: Option<Arc<Event>>) {
        if let Some(event) = event {
            self.gpu.stream().enqueue(None, move |_, stream| {
                event.hold(stream);
                Ok(())
            });
        }
    }
}

const HERE: &str = "the buffer is here";

/// Copies issued to a stream from here on run after these events.
fn hold(stream: CUstream, left_out: Option<Hold>, events: [(Hold, &Option<Arc<Event>>); 3]) {
    let kept = events.into_iter().filter(|(hold, _)| Some(*hold) != left_out);
    kept.filter_map(|(_, event)| event.as_ref()).for_each(|event| event.hold(stream));
}

impl BlockStore for CudaStore {
    fn host(&mut self, side: Side, block: usize) -> &mut [u8] {
        let buffer = self.buffer(side, block);
        for event in [buffer.read.take(), buffer.written.take()].into_iter().flatten() {
            event.wait();
        }
        buffer.memory.as_mut().expect(HERE).bytes_mut()
    }

    fn lend(&mut self, side: Side, block: usize) -> Loan {
        let gpu = self.gpu;
        let buffer = self.buffer(side, block);
        let memory = buffer.memory.take().expect(HERE);
        Loan {
            memory,
            arrival: arrival(gpu, [buffer.read.take(), buffer.written.take()].into_iter().flatten()),
        }
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
        self.gpu.context.bind();
        let Self { size, left_out, weights, gradients, places, fills, .. } = self;
        let buffer = size.buffer([weights, gradients], side, block);
        let memory = &buffer.memory.as_ref().expect(HERE).bytes()[..elements * size.dtype.size()];
        let place = &mut places[slot];
        let stream = fills.stream();
        let events = [
            (Hold::FillForKernels, &place.used),
            (Hold::FillForSend, &place.sent),
            (Hold::FillForBuffer, &buffer.written),
        ];
        hold(stream, *left_out, events);
        // SAFETY: the slot holds no fewer bytes, and both sides live as long as the store, which waits
        // for its copies before it ends; `host` waits for this copy before anyone changes the buffer.
        unsafe { memcpy_htod_async(place.slot.pointer, memory, stream) }
            .unwrap_or_else(|e| panic!("the device refused a copy of {} bytes: {e}", memory.len()));
        let done = Arc::new(Event::record_on(stream));
        buffer.read = Some(done.clone());
        place.filled = Some(done);
    }

    fn filled(&mut self, slot: usize) {
        let filled = self.places[slot].filled.clone();
        self.hold_compute(filled.filter(|_| self.left_out != Some(Hold::KernelsForFill)));
    }

    fn used(&mut self, slot: usize) {
        self.places[slot].used = Some(Arc::new(Event::record(self.gpu)));
    }

    fn view(&self, slot: usize, first: usize, shape: &[usize]) -> DispatchTensor {
        let StoreSize { dtype, .. } = self.size;
        let part = self.places[slot].slot.part(first * dtype.size(), Shape::from(shape.to_vec()), dtype);
        // The rank of a tensor is a mark on its type alone.
        tensor::<1>(part).into_dispatch()
    }

    fn write(&mut self, slot: usize, parts: Vec<(usize, DispatchTensor)>) {
        let sent = self.places[slot].sent.take();
        self.hold_compute(sent.filter(|_| self.left_out != Some(Hold::KernelsForSend)));
        let (slot, dtype) = (&self.places[slot].slot, self.size.dtype);
        let copy = |(first, values)| {
            let values = into_contiguous(buffer(Tensor::<1>::from_dispatch(values)));
            let (start, bytes) = (first * dtype.size(), values.meta.shape().num_elements() * dtype.size());
            assert!(values.dtype == dtype && start + bytes <= slot.bytes);
            (slot.pointer + start as u64, values.handle.binding(), bytes)
        };
        let copies: Vec<_> = parts.into_iter().map(copy).collect();
        let slot = slot.binding();
        // One call for all of them: each is a message to CubeCL's thread.
        self.gpu.stream().enqueue(Some(slot.clone()), move |buffers, stream| {
            let _to = buffers.locate(slot)?;
            for (to, from, bytes) in copies {
                let from = buffers.locate(from)?;
                // SAFETY: both sides hold `bytes` bytes, checked above; memory that either gives back is used
                // again only behind this copy, on the same stream.
                unsafe { memcpy_dtod_async(to, from.pointer, bytes, stream) }.map_err(|e| e.to_string())?;
            }
            Ok(())
        });
    }

    fn send(&mut self, slot: usize, side: Side, block: usize, elements: usize) {
        self.used(slot);
        self.gpu.context.bind();
        let Self { size, left_out, weights, gradients, places, sends, .. } = self;
        let buffer = size.buffer([weights, gradients], side, block);
        let memory = &mut buffer.memory.as_mut().expect(HERE).bytes_mut()[..elements * size.dtype.size()];
        let place = &mut places[slot];
        let stream = sends.stream();
        let events = [
            (Hold::SendForKernels, &place.used),
            (Hold::SendForFill, &place.filled),
            (Hold::SendForBuffer, &buffer.read),
        ];
        hold(stream, *left_out, events);
        // SAFETY: as in `fill`; `host` waits for this copy before anyone reads the buffer.
        unsafe { memcpy_dtoh_async(memory, place.slot.pointer, stream) }
            .unwrap_or_else(|e| panic!("the device refused a copy of {} bytes: {e}", memory.len()));
        let done = Arc::new(Event::record_on(stream));
        buffer.written = Some(done.clone());
        place.sent = Some(done);
    }

    fn clear(&mut self, _slot: usize) {}

    fn settle(&mut self) {
        self.gpu.context.bind();
        for stream in [&self.fills, &self.sends] {
            self.hold_compute(Some(Arc::new(Event::record_on(stream.stream()))));
        }
    }

    fn mark(&mut self, mark: Mark) {
        self.gpu.mark(mark);
    }

    fn wait(&mut self) {
        self.gpu.synchronize();
        for stream in [&self.fills, &self.sends] {
            self.gpu.context.bind();
            Event::record_on(stream.stream()).wait();
        }
    }
}

impl Drop for CudaStore {
    fn drop(&mut self) {
        let buffers = self.weights.iter().chain(&self.gradients);
        for event in buffers.flat_map(|buffer| [&buffer.read, &buffer.written]).flatten() {
            // A device that no longer answers no longer copies either.
            let _ = event.try_wait();
        }
    }
}

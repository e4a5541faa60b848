//! Tensors that are filled from host memory piece by piece. What is read from a file goes through two small
//! page-locked buffers, so a network's weights never exist a second time on the host.

use std::collections::VecDeque;
use std::ops::Range;

use burn::tensor::{DType, Shape};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::DriverError;
use cudarc::driver::result::memcpy_htod_async;

use super::{Event, Gpu, PinnedArena, PinnedSlice, address};
use crate::device::HostMemory;

/// Fills tensors, two pieces on their way at a time.
pub struct Uploader {
    gpu: &'static Gpu,
    /// Bytes of a buffer.
    piece: usize,
    free: Vec<PinnedSlice>,
    under_way: VecDeque<(PinnedSlice, Event)>,
}

impl Uploader {
    /// With two buffers of `piece` bytes.
    ///
    /// # Errors
    /// When the host cannot lock them.
    pub fn new(gpu: &'static Gpu, piece: usize) -> Result<Self, String> {
        let mut arena = PinnedArena::new(gpu, 2 * piece)?;
        let free = std::iter::from_fn(|| arena.take(piece)).collect();
        Ok(Self { gpu, piece, free, under_way: VecDeque::new() })
    }

    /// A new row-major tensor. `fill` writes the bytes of a range of its elements.
    ///
    /// # Errors
    /// When the device is out of memory or refuses a copy.
    pub fn tensor(
        &mut self,
        shape: Shape,
        dtype: DType,
        fill: &dyn Fn(Range<usize>, &mut [u8]),
    ) -> Result<CubeTensor, String> {
        let gpu = self.gpu;
        let elements = shape.num_elements();
        let empty = || empty_device_contiguous_dtype(gpu.client(), gpu.device.clone(), shape, dtype);
        let tensor = gpu.in_own_memory(elements * dtype.size(), empty);
        let at = address(&tensor.client, &tensor.handle)?;
        for first in (0..elements).step_by(self.piece / dtype.size()) {
            let range = first..elements.min(first + self.piece / dtype.size());
            let mut piece = self.piece();
            let bytes = range.len() * dtype.size();
            fill(range, &mut piece.bytes_mut()[..bytes]);
            let to = at.pointer + (first * dtype.size()) as u64;
            gpu.context.bind();
            let issued = gpu.stream().submit(|stream| {
                // SAFETY: the tensor holds these bytes; the piece stays unchanged until the event after
                // the copy has been waited for.
                unsafe { memcpy_htod_async(to, &piece.bytes()[..bytes], stream) }?;
                Ok::<_, DriverError>(Event::record_on(stream))
            });
            let copied = issued.map_err(|e| format!("the device refused a copy of {bytes} bytes: {e}"))?;
            self.under_way.push_back((piece, copied));
        }
        Ok(tensor)
    }

    /// A buffer that no copy reads.
    fn piece(&mut self) -> PinnedSlice {
        self.free.pop().unwrap_or_else(|| {
            let (piece, done) = self.under_way.pop_front().expect("two buffers are free or under way");
            done.wait();
            piece
        })
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        // The buffers are freed only when nothing reads them.
        for (_, done) in &self.under_way {
            let _ = done.try_wait();
        }
    }
}

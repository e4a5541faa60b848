//! [`CudaMirror`]: a tensor's page-locked buffer. Its copies run on the stream of the kernels: no computation
//! is left to hide them behind, and on that stream they are in order without events.

use burn::backend::DispatchTensor;
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::DriverError;
use cudarc::driver::result::{memcpy_dtoh_async, memcpy_htod_async};
use cudarc::driver::sys::CUstream;

use super::{Event, Gpu, Later, PinnedArena, address, buffer};
use crate::device::host::{Arrival, HostMemory, Loan};
use crate::device::mirror::Mirror;

pub struct CudaMirror {
    gpu: &'static Gpu,
    /// `None` while it is lent.
    memory: Option<Box<dyn HostMemory>>,
    /// The last copy to or from it.
    copied: Option<Later>,
}

impl CudaMirror {
    /// # Errors
    /// When the host cannot lock so much memory.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self, String> {
        let memory = PinnedArena::new(gpu, bytes)?.take(bytes).expect("an arena of one buffer");
        Ok(Self { gpu, memory: Some(Box::new(memory)), copied: None })
    }

    /// Before the host reads or writes the buffer, or gives it back to the system.
    fn wait(&mut self) {
        if let Some(event) = self.copied.take().as_ref().and_then(Later::event) {
            // A device that no longer answers no longer copies either.
            let _ = event.try_wait();
        }
    }

    /// Issues a copy between the buffer and the tensor, of as many bytes: from what the tensor holds, or to it.
    fn copy(
        &mut self,
        tensor: &CubeTensor,
        issue: impl FnOnce(&mut [u8], u64, CUstream) -> Result<(), DriverError> + Send,
    ) {
        let memory = self.memory.as_mut().expect("the buffer is here").bytes_mut();
        assert_eq!(
            tensor.meta.num_elements() * tensor.dtype.size(),
            memory.len(),
            "a tensor of the mirror's size"
        );
        let copied = self.gpu.stream().submit(|stream| {
            let at = address(&tensor.client, &tensor.handle)?;
            issue(memory, at.pointer, stream).map_err(|e| e.to_string())?;
            Ok::<_, String>(Event::record_on(stream))
        });
        self.copied = Some(copied.unwrap_or_else(|e| panic!("{e}")).into());
    }
}

impl Mirror for CudaMirror {
    fn send(&mut self, tensor: DispatchTensor) {
        // SAFETY: both sides hold as many bytes, which `copy` checks. Memory that the tensor gives back is
        // used again only behind this copy, on the same stream; the buffer is touched after its event.
        self.copy(&into_contiguous(primitive(tensor)), |memory, from, stream| unsafe {
            memcpy_dtoh_async(memory, from, stream)
        });
    }

    fn lend(&mut self) -> Loan {
        let memory = self.memory.take().expect("the buffer is here");
        Loan { memory, arrival: arrival(self.gpu, self.copied.take()) }
    }

    fn give_back(&mut self, memory: Box<dyn HostMemory>) {
        self.memory = Some(memory);
    }

    fn fetch(&mut self, tensor: DispatchTensor) -> DispatchTensor {
        self.wait();
        let tensor = into_contiguous(primitive(tensor));
        // SAFETY: both sides hold as many bytes, which `copy` checks; kernels that read the old values are
        // before this copy on the same stream; the buffer is touched after its event.
        self.copy(&tensor, |memory, to, stream| unsafe { memcpy_htod_async(to, memory, stream) });
        // The rank of a tensor is a mark on its type alone.
        super::tensor::<1>(tensor).into_dispatch()
    }
}

impl Drop for CudaMirror {
    fn drop(&mut self) {
        self.wait();
    }
}

fn primitive(tensor: DispatchTensor) -> CubeTensor {
    buffer(Tensor::<1>::from_dispatch(tensor))
}

/// Waits for these events, on any thread; CubeCL's thread has recorded them.
pub(super) fn arrival(gpu: &'static Gpu, events: impl IntoIterator<Item = Later>) -> Arrival {
    let events: Vec<Later> = events.into_iter().collect();
    Box::new(move || {
        gpu.context.bind();
        let arrived = |later: &Later| later.event().ok_or("a copy was not issued")?.arrived();
        events.iter().try_for_each(arrived)
    })
}

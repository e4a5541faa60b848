//! [`Mirror`]: one tensor of the device with a buffer of its own on the host, for what is updated there.

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Tensor, TensorData};

use super::cuda;
use super::host::{HostMemory, Loan};
use crate::common::DeviceId;
use crate::measure::alloc::Uncounted;

/// Used by one thread, always the same. The buffer is on the host, or lent.
pub trait Mirror: Send {
    /// Copies a tensor of the mirror's size to the host, after all computations issued so far.
    fn send(&mut self, tensor: DispatchTensor);

    /// Hands the buffer out.
    fn lend(&mut self) -> Loan;

    /// Takes the buffer back.
    fn give_back(&mut self, memory: Box<dyn HostMemory>);

    /// The flat tensor with the buffer's content, in its own memory where the device can; computations issued
    /// from here on see it. Nobody else may hold the tensor.
    fn fetch(&mut self, tensor: DispatchTensor) -> DispatchTensor;
}

impl DeviceId {
    /// A mirror of zeros.
    ///
    /// # Errors
    /// When the host has not so much memory; says how much was asked for.
    pub fn mirror(self, elements: usize, dtype: DType) -> Result<Box<dyn Mirror>, String> {
        Ok(match self {
            Self::Cpu => {
                Box::new(CpuMirror { memory: Some(Box::new(Uncounted::new(elements * dtype.size())?)) })
            }
            Self::Cuda(ordinal) => {
                Box::new(cuda::CudaMirror::new(cuda::Gpu::open(ordinal), elements * dtype.size())?)
            }
        })
    }
}

/// The same on the CPU, where a copy is done when it is issued.
struct CpuMirror {
    memory: Option<Box<dyn HostMemory>>,
}

impl Mirror for CpuMirror {
    fn send(&mut self, tensor: DispatchTensor) {
        let data = Tensor::<1>::from_dispatch(tensor).into_data();
        self.memory.as_mut().expect("the buffer is here").bytes_mut().copy_from_slice(data.as_bytes());
    }

    fn lend(&mut self) -> Loan {
        Loan { memory: self.memory.take().expect("the buffer is here"), arrival: Box::new(|| Ok(())) }
    }

    fn give_back(&mut self, memory: Box<dyn HostMemory>) {
        self.memory = Some(memory);
    }

    fn fetch(&mut self, tensor: DispatchTensor) -> DispatchTensor {
        let tensor = Tensor::<1>::from_dispatch(tensor);
        let (device, dtype, shape) = (tensor.device(), tensor.dtype(), tensor.shape());
        // Frees the memory of the old values first.
        drop(tensor);
        let bytes = self.memory.as_ref().expect("the buffer is here").bytes().to_vec();
        let data = TensorData::from_bytes_vec(bytes, shape, dtype);
        Tensor::<1>::from_data(data, (&device, dtype)).into_dispatch()
    }
}

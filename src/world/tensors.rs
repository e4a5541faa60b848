//! Tensors that ranks sum or copy: by NCCL where each rank has a GPU of its own, else through the host's memory and the
//! ranks' sockets. Both ways sum in fp32; by sockets in the order of ranks, by NCCL in an order that it chooses.

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::group::{Group, Ticket};

use crate::device::cuda::nccl::Collective;
use crate::device::cuda::{Collectives, Pending};
use crate::words::DeviceId;

/// A flat tensor on its way.
#[must_use]
pub struct Arriving {
    way: Way,
    /// Whether this rank gets it.
    is_ours: bool,
}

enum Way {
    Gpus(Pending),
    /// Sums in fp32.
    Sums(Ticket<Vec<f32>>, Device),
    /// A copy of this type and device.
    Bytes(Ticket<Vec<u8>>, DType, Device),
    /// What this rank gave the others.
    Own(Ticket<Vec<u8>>, Tensor<1>),
}

impl Group {
    /// Begins to sum tensors in fp32, of the same length on every rank.
    pub fn sum(&self, name: impl Into<String>, values: Tensor<1>) -> Arriving {
        let (name, device) = (name.into(), values.device());
        let way = match &self.gpus {
            Some(gpus) => self.by(gpus, &name, Collective::AllReduce, values),
            None => Way::Sums(self.all_reduce(name, numbers(values)), device),
        };
        Arriving { way, is_ours: true }
    }

    /// The same; only `root` gets the sums.
    pub fn sum_at(&self, name: impl Into<String>, root: usize, values: Tensor<1>) -> Arriving {
        let (name, device) = (name.into(), values.device());
        let way = match &self.gpus {
            Some(gpus) => self.by(gpus, &name, Collective::Reduce { root }, values),
            None => Way::Sums(self.reduce(name, root, numbers(values)), device),
        };
        Arriving { way, is_ours: self.rank() == root }
    }

    /// Begins to copy the tensor of `root` to every rank; the others give one of the same length, type and device.
    pub fn copy_of(&self, name: impl Into<String>, root: usize, own: Tensor<1>) -> Arriving {
        let (name, is_own) = (name.into(), self.rank() == root);
        let (dtype, device) = (own.dtype(), own.device());
        let way = match &self.gpus {
            Some(gpus) => {
                // Its own values may be somebody else's too.
                let values = if is_own { own } else { Tensor::empty(own.shape(), (&device, dtype)) };
                self.by(gpus, &name, Collective::Broadcast { root }, values)
            }
            None if is_own => {
                let bytes = own.clone().into_data().as_bytes().to_vec();
                Way::Own(self.broadcast(name, root, bytes), own)
            }
            None => Way::Bytes(self.broadcast(name, root, Vec::new()), dtype, device),
        };
        Arriving { way, is_ours: true }
    }

    /// Takes the tensor, so that what nobody else holds is summed in its place.
    fn by(&self, gpus: &Collectives, name: &str, collective: Collective, values: Tensor<1>) -> Way {
        let pending = gpus.begin(name, collective, values);
        self.come(pending.number());
        Way::Gpus(pending)
    }

    /// A first sum: what connects GPUs that are used together for the first time is not a step's.
    ///
    /// # Errors
    /// When the sum is wrong.
    pub(super) fn try_gpus(&self, ordinal: usize) -> Result<(), String> {
        const COUNT: usize = 1 << 20;
        let device = DeviceId::Cuda(ordinal).burn();
        let ones = Tensor::ones([COUNT], (&device, DType::F32));
        let sums = self.sum("a one of each rank", ones).wait().expect("every rank gets it");
        let last: f32 = sums.narrow(0, COUNT - 1, 1).into_scalar();
        if last == self.size() as f32 {
            return Ok(());
        }
        Err(format!(
            "NCCL sums a one of each of {} ranks to {last}: set parallel.engine = \"sockets\", and report this with the \
             output of NCCL_DEBUG=INFO",
            self.size()
        ))
    }
}

impl Arriving {
    /// The tensor; `None` on a rank that gets none. On a GPU what is computed from here on waits for it, else this thread
    /// does.
    ///
    /// # Panics
    /// With a [`Failure`](super::Failure) where another rank does not come.
    pub fn wait(self) -> Option<Tensor<1>> {
        let is_ours = self.is_ours;
        match self.way {
            Way::Gpus(pending) => Some(pending.wait()).filter(|_| is_ours),
            Way::Sums(ticket, device) => {
                // Others get no numbers.
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
                Some(own)
            }
        }
    }
}

fn numbers(values: Tensor<1>) -> Vec<f32> {
    values.into_data().try_into_vec().expect("fp32")
}

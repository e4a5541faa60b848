//! Tensors that ranks sum or copy: by NCCL if each rank has its own GPU, else through the host's memory and sockets. Both
//! sum in fp32: sockets in the order of ranks, NCCL in an order that it chooses.

mod arriving;

use burn::tensor::{DType, Device, Tensor};
use itertools::Itertools;

use self::arriving::Way;
pub use self::arriving::{Arriving, Leaving};
use super::group::ProcessGroup;
use crate::common::DeviceId;
use crate::device::cuda::nccl::Collective;
use crate::device::cuda::{Collectives, Mark, Pending, buffer, put, tensor};

impl ProcessGroup {
    /// Whether each rank has its own GPU and the GPUs are connected.
    pub fn has_gpus(&self) -> bool {
        self.gpus.is_some()
    }

    /// Whether a [`sum`](Self::sum) of two-byte numbers has the rounding of one in fp32: a sum of two ranks by NCCL is
    /// rounded once.
    pub fn sums_narrow(&self) -> bool {
        self.has_gpus() && self.size() == 2
    }

    /// Begins to sum tensors of the same length on every rank, in fp32 or as [`sums_narrow`](Self::sums_narrow) allows.
    pub fn sum(&self, name: impl Into<String>, values: Tensor<1>) -> Arriving {
        let (name, device) = (name.into(), values.device());
        let way = match &self.gpus {
            Some(gpus) => Way::Gpus(self.by(gpus, &name, Collective::AllReduce, values)),
            None => Way::Sums(self.all_reduce(name, numbers(values)), device),
        };
        Arriving { way, is_ours: true }
    }

    /// Begins to sum fp32 tensors over [GPUs](Self::has_gpus), each in memory of its own; all arrive together.
    pub fn sum_each(&self, name: impl Into<String>, values: Vec<Tensor<1>>) -> Pending {
        let pending = self.own_gpus().begin_each(&name.into(), Collective::AllReduce, values);
        self.come(pending.turn);
        pending
    }

    /// As [`sum_each`](Self::sum_each), in the memory of the tensors, whoever else holds them: once a graph that was
    /// launched has come to `full`, or behind what was issued so far.
    pub fn sum_in_place(
        &self,
        name: impl Into<String>,
        values: Vec<Tensor<1>>,
        full: Option<&Mark>,
    ) -> Pending {
        let pending = self.own_gpus().begin_in_place(&name.into(), Collective::AllReduce, values, full);
        self.come(pending.turn);
        pending
    }

    fn own_gpus(&self) -> &Collectives {
        self.gpus.as_ref().expect("each rank has a GPU")
    }

    /// Waits until the GPUs have done what was begun. Then no thread asks for an event before the next operation, which
    /// would spoil a graph that is being recorded.
    pub fn settle(&self) {
        self.gpus.iter().for_each(|gpus| _ = gpus.crossed());
    }

    /// As [`sum`](Self::sum), but only `root` gets the sums.
    pub fn sum_at(&self, name: impl Into<String>, root: usize, values: Tensor<1>) -> Arriving {
        let (name, device) = (name.into(), values.device());
        let way = match &self.gpus {
            Some(gpus) => Way::Gpus(self.by(gpus, &name, Collective::Reduce { root }, values)),
            None => Way::Sums(self.reduce(name, root, numbers(values)), device),
        };
        Arriving { way, is_ours: self.rank() == root }
    }

    /// Begins to copy the tensor of `root` to every rank; the others pass one of the same length, type and device.
    pub fn copy_of(&self, name: impl Into<String>, root: usize, own: Tensor<1>) -> Arriving {
        let (name, is_own) = (name.into(), self.rank() == root);
        let (dtype, device) = (own.dtype(), own.device());
        let way = match &self.gpus {
            Some(gpus) => {
                // NCCL writes into the tensor, and others may share its values.
                let values = if is_own { own } else { Tensor::empty(own.shape(), (&device, dtype)) };
                Way::Gpus(self.by(gpus, &name, Collective::Broadcast { root }, values))
            }
            None if is_own => {
                let bytes = own.clone().into_data().as_bytes().to_vec();
                Way::Own(self.broadcast(name, root, bytes), own.into())
            }
            None => Way::Bytes(self.broadcast(name, root, Vec::new()), dtype, device),
        };
        Arriving { way, is_ours: true }
    }

    /// Begins to sum tensors of the same length in fp32; each rank gets its part of the sums.
    pub fn sum_in_parts(&self, name: impl Into<String>, values: Tensor<1>) -> Arriving {
        let (name, device) = (name.into(), values.device());
        let way = match &self.gpus {
            Some(gpus) => {
                let (place, ranks) = (self.place(), self.size());
                let own = values.dims()[0] / ranks;
                let sums = self.by(gpus, &name, Collective::ReduceScatter { place, ranks }, values);
                Way::OwnPart(sums, place * own..(place + 1) * own)
            }
            None => Way::Sums(self.reduce_scatter(name, numbers(values)), device),
        };
        Arriving { way, is_ours: true }
    }

    /// Begins to join the tensors of all ranks, of one length and one type, in the order of ranks.
    pub fn put_together(&self, name: impl Into<String>, own: Tensor<1>) -> Arriving {
        let (name, dtype, device) = (name.into(), own.dtype(), own.device());
        let way = match &self.gpus {
            Some(gpus) => {
                let (place, ranks, count) = (self.place(), self.size(), own.dims()[0]);
                let all = buffer(Tensor::<1>::empty([ranks * count], (&device, dtype)));
                put(vec![(place * count, buffer(own))], &all);
                Way::Gpus(self.by(gpus, &name, Collective::AllGather { place, ranks }, tensor(all)))
            }
            None => {
                let bytes = own.into_data().as_bytes().to_vec();
                Way::Parts(self.collect(name, bytes), dtype, device)
            }
        };
        Arriving { way, is_ours: true }
    }

    /// Begins to send a flat tensor to one other rank.
    pub fn send_tensor(&self, name: impl Into<String>, to: usize, values: Tensor<1>) -> Leaving {
        let name = name.into();
        match &self.gpus {
            Some(gpus) => Leaving::Gpus(Box::new(self.by(gpus, &name, Collective::Send { to }, values))),
            None => Leaving::Bytes(self.send(name, to, values.into_data().as_bytes().to_vec())),
        }
    }

    /// Begins to receive a flat tensor of `count` elements from one other rank.
    pub fn receive_tensor(
        &self,
        name: impl Into<String>,
        from: usize,
        count: usize,
        (dtype, device): (DType, &Device),
    ) -> Arriving {
        let name = name.into();
        let way = match &self.gpus {
            Some(gpus) => {
                let room = Tensor::empty([count], (device, dtype));
                Way::Gpus(self.by(gpus, &name, Collective::Receive { from }, room))
            }
            None => Way::Bytes(self.receive(name, from, count * dtype.size()), dtype, device.clone()),
        };
        Arriving { way, is_ours: true }
    }

    /// Begins an operation by NCCL. It takes the tensor: NCCL sums in its place if nobody else holds it.
    fn by(&self, gpus: &Collectives, name: &str, collective: Collective, values: Tensor<1>) -> Pending {
        let pending = gpus.begin(name, collective, values);
        self.come(pending.turn);
        pending
    }

    /// Sends a first message both ways between every two ranks, for the same reason as the [first sum](Self::try_gpus).
    pub(super) fn try_messages(&self, ordinal: usize) {
        let device = DeviceId::Cuda(ordinal).burn();
        for (low, high) in self.ranks.iter().copied().tuple_combinations() {
            for (from, to) in [(low, high), (high, low)] {
                let name = "a first message";
                if self.rank == from {
                    self.send_tensor(name, to, Tensor::ones([1], (&device, DType::F32))).wait();
                } else if self.rank == to {
                    drop(self.receive_tensor(name, from, 1, (DType::F32, &device)).wait());
                }
            }
        }
    }

    /// Computes a first sum: connecting the GPUs on their first use is no part of a step.
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
            "NCCL sums the ones of {} ranks to {last}: set parallel.engine = \"sockets\", and report this with the \
             output of NCCL_DEBUG=INFO",
            self.size()
        ))
    }
}

fn numbers(values: Tensor<1>) -> Vec<f32> {
    values.into_data().try_into_vec().expect("fp32")
}

//! How an operation begins: its tensors are given to the thread that calls NCCL, behind the kernels that write them.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::pending::{Issuing, Pending};
use super::serve::{Job, Place};
use super::{Collectives, GRACE, Turn};
use crate::common::locked;
use crate::device::cuda::nccl::Collective;
use crate::device::cuda::{Event, Gpu, Later, Mark, buffer, writable};

impl Collectives {
    /// Begins an operation on a flat tensor of this device that is outside of autodiff's graph, once what is issued so far
    /// has been computed. Every rank begins the same operations in the same order. Messages between two ranks have one
    /// order among all ranks, and each rank begins its own in that order.
    ///
    /// # Panics
    /// When the tensor is on another device. When it is to be summed and not in fp32, unless two ranks both get the sum,
    /// which is rounded once in any type.
    pub fn begin(&self, name: &str, collective: Collective, values: Tensor<1>) -> Pending {
        self.begin_each(name, collective, vec![values])
    }

    /// As [`begin`](Self::begin), on several tensors of one type as one operation: each stays in memory of its own.
    pub fn begin_each(&self, name: &str, collective: Collective, values: Vec<Tensor<1>>) -> Pending {
        self.start(
            name,
            collective,
            values.into_iter().map(|values| self.usable(collective, values)).collect(),
            None,
        )
    }

    /// As [`begin_each`](Self::begin_each), in the memory of these tensors, whoever else holds them, and once a graph that
    /// was launched has come to `ready`, or behind what was issued so far. For a collective of all ranks.
    pub fn begin_in_place(
        &self,
        name: &str,
        collective: Collective,
        values: Vec<Tensor<1>>,
        ready: Option<&Mark>,
    ) -> Pending {
        self.start(
            name,
            collective,
            values.into_iter().map(|values| into_contiguous(buffer(values))).collect(),
            ready,
        )
    }

    fn start(
        &self,
        name: &str,
        collective: Collective,
        values: Vec<CubeTensor>,
        ready: Option<&Mark>,
    ) -> Pending {
        let dtype = self.require_summable(collective, &values);
        let elements: usize = values.iter().map(|values| values.meta.num_elements()).sum();
        let turn = {
            let mut state = locked(&self.shared.state);
            state.crossed.sent += self.sent(collective, (elements * dtype.size()) as u64);
            state.next(collective.peer())
        };
        let operation = self.describe(turn, collective, name, elements);
        let (to, issued) = channel();
        let reached = Later::default();
        let (jobs, seen, mark) = (self.jobs.clone(), reached.clone(), ready.cloned());
        let bindings: Vec<_> = values
            .iter()
            .map(|values| (values.handle.clone().binding(), values.meta.num_elements() * dtype.size()))
            .collect();
        let written = bindings[0].0.clone();
        self.gpu.stream().enqueue(Some(written), move |buffers, stream| {
            let place = |(binding, bytes)| {
                let at = buffers.locate(binding)?;
                Ok(Place { buffer: at.pointer, bytes, _kept: Box::new(at) })
            };
            let marked = mark.map(|mark| mark.0.get().cloned().ok_or("a recorded step has no such place"));
            let job = Job {
                turn,
                operation,
                collective,
                places: bindings.into_iter().map(place).collect::<Result<_, String>>()?,
                dtype,
                ready: marked.transpose()?.unwrap_or_else(|| Arc::new(Event::record_on(stream))),
                issued: to,
                reached: seen,
            };
            jobs.send(Some(job)).map_err(|_| "the thread that calls NCCL has ended".to_string())
        });
        // The others wait for it.
        self.gpu.stream().hurry();
        // Whoever watches over the limit comes first, and knows which rank is missing. A message may be far behind what was
        // issued, so only the watch knows for how long its device has waited.
        let is_received = matches!(collective, Collective::Receive { .. });
        let limit = if is_received { Duration::MAX } else { self.limit.saturating_add(2 * GRACE) };
        Pending { gpu: self.gpu, turn, values, issued: Some(Issuing::Coming(issued)), reached, limit }
    }

    /// The type of all these tensors, of which the collective can be made.
    fn require_summable(&self, collective: Collective, values: &[CubeTensor]) -> DType {
        let dtype = values.first().expect("an operation on something").dtype;
        let once = collective == Collective::AllReduce && self.ranks <= 2;
        assert!(!collective.sums() || once || dtype == DType::F32, "sums are in fp32");
        let here = |values: &CubeTensor| Gpu::of(values).is_some_and(|gpu| std::ptr::eq(gpu, self.gpu));
        assert!(values.iter().all(here), "a tensor of this rank's device");
        assert!(values.iter().all(|values| values.dtype == dtype), "tensors of one type");
        dtype
    }

    /// What a failure calls the operation.
    fn describe(&self, turn: Turn, collective: Collective, name: &str, elements: usize) -> String {
        let what = match collective {
            Collective::AllReduce => "sum",
            Collective::Reduce { .. } => "sum at one rank",
            Collective::Broadcast { .. } => "copy",
            Collective::ReduceScatter { .. } => "sum in parts",
            Collective::AllGather { .. } => "copy of all parts",
            Collective::Send { .. } | Collective::Receive { .. } => "message",
        };
        let ranks = turn.peer.map_or_else(
            || "the GPUs".into(),
            |peer| format!("ranks {} and {}", peer.min(self.rank), peer.max(self.rank)),
        );
        format!("operation {} of {ranks}, {what} of \"{name}\" of {elements} elements", turn.number)
    }

    /// The tensor in memory that the operation may use.
    fn usable(&self, collective: Collective, values: Tensor<1>) -> CubeTensor {
        match collective {
            Collective::AllReduce
            | Collective::ReduceScatter { .. }
            | Collective::AllGather { .. }
            | Collective::Receive { .. } => writable(buffer(values)),
            Collective::Reduce { root } if root == self.rank => writable(buffer(values)),
            Collective::Broadcast { root } if root != self.rank => writable(buffer(values)),
            Collective::Reduce { .. } | Collective::Broadcast { .. } | Collective::Send { .. } => {
                into_contiguous(buffer(values))
            }
        }
    }

    /// Bytes that this rank gives the others: of a sum as around a ring.
    fn sent(&self, collective: Collective, bytes: u64) -> u64 {
        let others = self.ranks as u64 - 1;
        match collective {
            Collective::AllReduce => 2 * bytes * others / self.ranks as u64,
            Collective::ReduceScatter { .. } | Collective::AllGather { .. } => {
                bytes * others / self.ranks as u64
            }
            Collective::Reduce { root } => bytes * u64::from(root != self.rank),
            Collective::Broadcast { root } => bytes * others * u64::from(root == self.rank),
            Collective::Send { .. } => bytes,
            Collective::Receive { .. } => 0,
        }
    }
}

//! [`Pending`]: the result of an operation that has begun.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::panicking;
use std::time::Duration;

use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;

use super::super::{Gpu, Later, tensor};
use super::Turn;
use super::serve::Issued;

/// The result of an operation that has begun.
#[must_use]
pub struct Pending {
    pub(super) gpu: &'static Gpu,
    /// [`UnderWay::turn`](super::UnderWay::turn)
    pub turn: Turn,
    pub(super) values: Vec<CubeTensor>,
    /// `None` once CubeCL's stream waits for the result.
    pub(super) issued: Option<Issuing>,
    pub(super) reached: Later,
    /// For NCCL to take the operation.
    pub(super) limit: Duration,
}

/// An operation that NCCL takes or has taken.
pub(super) enum Issuing {
    Coming(Receiver<Result<Issued, String>>),
    Here(Result<Issued, String>),
}

impl Pending {
    /// Whether it has ended; does not wait.
    pub fn is_over(&mut self) -> bool {
        self.gpu.context.bind();
        if let Some(Issuing::Coming(coming)) = &self.issued {
            let Ok(result) = coming.try_recv() else { return false };
            self.issued = Some(Issuing::Here(result));
        }
        match &self.issued {
            // Whoever computes on the device learns of its failure.
            Some(Issuing::Here(Ok(issued))) => issued.ended.reached().unwrap_or(true),
            _ => true,
        }
    }

    /// The tensor with what the operation left in it. This thread goes on at once; computations that it issues from here
    /// on wait for the result.
    ///
    /// # Panics
    /// When the operation is on several tensors.
    pub fn wait(self) -> Tensor<1> {
        let [values] = self.wait_each().try_into().expect("an operation on one tensor");
        values
    }

    /// As [`wait`](Self::wait), for all tensors of the operation.
    pub fn wait_each(mut self) -> Vec<Tensor<1>> {
        self.hold();
        std::mem::take(&mut self.values).into_iter().map(tensor).collect()
    }

    /// Has CubeCL's stream wait for the end of the operation. CubeCL's thread waits until NCCL has taken it: an event that
    /// is not recorded yet cannot be waited for.
    fn hold(&mut self) {
        let Some(issued) = self.issued.take() else { return };
        let (reached, limit) = (self.reached.clone(), self.limit);
        // The memory is used for nothing else before this call has been made: until then its binding is held.
        let bindings: Vec<_> = self.values.iter().map(|values| values.handle.clone().binding()).collect();
        self.gpu.stream().enqueue(Some(bindings[0].clone()), move |_, stream| {
            let _held = bindings;
            reached.record_on(stream);
            let late = |e| match e {
                RecvTimeoutError::Timeout => {
                    "NCCL did not take an operation: another rank may not have come to it"
                }
                RecvTimeoutError::Disconnected => "an operation of NCCL did not begin",
            };
            let Issued { ended, places } = match issued {
                Issuing::Coming(coming) => coming.recv_timeout(limit).map_err(|e| late(e).to_string())??,
                Issuing::Here(result) => result?,
            };
            ended.hold(stream);
            drop(places);
            Ok(())
        });
    }
}

impl Drop for Pending {
    /// NCCL may still write into the memory that is given back here, so CubeCL's stream waits for it first. A rank that ends
    /// by a panic needs its memory no more.
    fn drop(&mut self) {
        if !panicking() {
            self.hold();
        }
    }
}

//! What the operators of a step must do at the least, of all its micro-batches and its update.

use super::{Operators, Workload};
use crate::ops::cost::{Passes, Work, Works};
use crate::ops::name::OperatorName;
use crate::optim::OptimizerConfig;
use crate::residence::Memory;

impl Operators {
    /// Of a step without padding.
    pub fn works(&self, workload: &Workload) -> Works {
        self.whole(workload).works * workload.accumulation_steps as f64 + self.update(workload)
    }

    /// On the device it reads weights, gradients and state, and writes weights and state. That of the host is none of
    /// the device's work.
    fn update(&self, workload: &Workload) -> Works {
        let Workload { optimizer, precision, offload, .. } = *workload;
        let parameters = self.parameters();
        let none = matches!(optimizer, OptimizerConfig::None(_)) || offload.optimizer == Memory::Host;
        let bytes = 3 * parameters * precision.stored_bytes() + 2 * optimizer.state_bytes(parameters);
        let bytes = if none { 0.0 } else { bytes as f64 };
        let optimizer = Work { operations: 0.0, bytes };
        Works::new(OperatorName::Update, Passes { optimizer, ..Passes::default() })
    }
}

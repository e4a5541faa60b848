//! The least work of a step: of the operators of all its micro-batches, and of its update.

use super::Workload;
use crate::ops::cost::Operators;
use crate::ops::cost::{Passes, Work, Works};
use crate::ops::name::OperatorName;
use crate::optim::OptimizerConfig;
use crate::residence::Memory;

impl Operators {
    /// Of a step without padding.
    pub fn works(&self, workload: &Workload) -> Works {
        self.whole(workload).works * workload.accumulation_steps as f64 + self.update(workload)
    }

    /// An update on the device reads weights, gradients and state, and writes weights and state. An update on the host is
    /// no work of the device.
    fn update(&self, workload: &Workload) -> Works {
        let Workload { optimizer, precision, offload, .. } = *workload;
        // Replicas that divide parameters or their state update a part each.
        let part = workload.shard.map_or(1, |shard| shard.ranks);
        let parameters = self.trained() / part;
        let none = matches!(optimizer, OptimizerConfig::None(_)) || offload.optimizer == Memory::Host;
        let bytes = 3 * parameters * precision.stored_bytes() + 2 * self.state_bytes(workload);
        let bytes = if none { 0.0 } else { bytes as f64 };
        let tensors = self.trained_tensors(offload.moves()).count;
        let launches = if none { 0.0 } else { optimizer.launches(tensors) as f64 };
        let optimizer = Work { operations: 0.0, bytes, launches };
        Works::new(OperatorName::Update, Passes { optimizer, ..Passes::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Recipe, Source};

    fn works(text: &str) -> Works {
        let text = format!(
            "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"swiglu\"\nhidden_size = 8\nintermediate_size = 16\n\
             num_hidden_layers = 3\n[train]\nbatch_size = 2\nseq_len = 5\n{text}"
        );
        let source = Source { path: "r.toml".into(), text };
        Recipe::parse(&source).expect("a recipe").cells.remove(0).works()
    }

    #[test]
    fn an_update_of_adamw_moves_28_bytes_a_parameter() {
        let update = |optimizer: &str| {
            works(&format!("optimizer = {{ kind = \"{optimizer}\" }}"))[OperatorName::Update].optimizer.bytes
        };
        let parameters = 3.0 * 3.0 * 8.0 * 16.0;
        // Weight, gradient and two moments are read, weight and moments written.
        assert_eq!(update("adamw"), 28.0 * parameters);
        assert_eq!(update("none"), 0.0);
    }

    /// The update of a replica is that of one process, since each updates everything.
    #[test]
    fn a_replica_works_on_its_share_of_the_batch() {
        let of = |more: &str| works(&format!("optimizer = {{ kind = \"adamw\" }}\n{more}"));
        let (one, two) = (of(""), of("[parallel]\ndata = 2"));
        let operations = |works: &Works| works[OperatorName::Swiglu].backward.operations;
        assert_eq!(operations(&one), 2.0 * operations(&two));
        assert_eq!(one[OperatorName::Update].optimizer, two[OperatorName::Update].optimizer);
    }

    #[test]
    fn micro_batches_and_segments_add_their_work() {
        let one = works("")[OperatorName::Swiglu];
        // 10 tokens through three layers of three matrices of 8 by 16.
        assert_eq!(one.forward.operations, 2.0 * 10.0 * 9.0 * 128.0);
        assert_eq!(one.backward.operations, 2.0 * one.forward.operations);
        let twice = works("accumulation_steps = 2")[OperatorName::Swiglu];
        assert_eq!(twice.backward.operations, 2.0 * one.backward.operations);
        let again = works("[checkpoint]\nblocks = 1")[OperatorName::Swiglu];
        assert_eq!(again.backward.operations, one.backward.operations + one.forward.operations);
        assert!(again.forward.bytes < one.forward.bytes, "nothing is kept but the layers' inputs");
    }
}

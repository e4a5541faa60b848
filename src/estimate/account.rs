//! [`Account`]: what holds a step's memory at its highest moment, part by part. The estimate is its sum by class.

use super::Workload;
use crate::common::DeviceId;
use crate::measure::{Estimate, Phase};
use crate::ops::cost::Moment;
use crate::ops::cost::Operators;
use crate::residence::{HostBytes, Memory, Shard, SlotBytes};

/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Account {
    /// Weights on the device as they are stored, apart from those in slots.
    pub parameters: u64,
    /// Their casts that serve all micro-batches.
    pub casts: u64,
    /// State of the optimizer on the device.
    pub state: u64,
    /// The rest at the highest moment of a step, which is in this phase.
    pub highest: Moment,
    pub phase: Option<Phase>,
    /// Of the workspace: what is there all the time.
    pub standing: Standing,
    /// The most that is kept from forward to backward, by whom, and the gradients of earlier micro-batches at that moment.
    pub kept: Moment,
    /// What is there instead of on the device.
    pub host: HostBytes,
}

/// What is on the device during a whole step besides weights and state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Batches of a step and of an evaluation, and tables that no step changes.
    pub batches: u64,
    pub tables: u64,
    /// Through which blocks move.
    pub slots: SlotBytes,
}

impl Standing {
    pub fn total(&self) -> u64 {
        self.batches + self.tables + self.slots.total()
    }
}

impl Account {
    /// The sum by class.
    pub fn estimate(&self) -> Estimate {
        Estimate {
            weights: self.parameters + self.casts,
            gradients: self.highest.gradients,
            optimizer: self.state,
            activations: self.highest.kept,
            workspace: self.highest.workspace,
            host: self.host.total(),
            kept: self.kept.kept,
        }
    }

    /// Bytes of what the operators and the update make for a moment.
    pub fn temporaries(&self) -> u64 {
        self.highest.workspace.saturating_sub(self.standing.total())
    }

    /// Bytes between forward and backward.
    pub fn after_forward(&self) -> u64 {
        self.parameters + self.casts + self.state + self.standing.total() + self.kept.total()
    }
}

impl Operators {
    /// At the highest moment of a step: of its last micro-batch, or of its update.
    pub fn account(&self, workload: &Workload) -> Account {
        let Workload { offload, device, .. } = *workload;
        let whole = self.whole(workload);
        let moved = self.moved(workload);
        let standing = self.standing(workload);
        let slots = Moment::gradients(offload.kept_gradients(&moved, device));
        let always = Moment::workspace(standing.total()) + slots;
        let parts = self.waiting_gradients(workload, whole.gradients);
        let micro_batches = workload.accumulation_steps as u64;
        let waiting = match workload.shard.is_some_and(|sizes| sizes.waits_whole(micro_batches)) {
            true => self.trained() * moved.stored,
            false => parts,
        };
        // Of earlier micro-batches, to which more are added, and whose backward is still to come.
        let earlier = Moment::gradients(if moved.accumulates { waiting } else { 0 });
        let graphs = workload.live_graphs as u64;
        let inputs = moved.input * workload.waiting_inputs as u64;
        let kept = |graphs| Moment {
            kept: whole.kept * graphs + inputs,
            by: whole.kept_by * graphs,
            ..Moment::default()
        };
        let there = always + earlier + kept(graphs.saturating_sub(1));
        // In fp32.
        let gathered = Moment::workspace(4 * workload.gathered as u64 * self.trained());
        // Parts of blocks are updated in place, before those of the others: then their gradients are gone.
        let blocks_first = workload.shard.filter(|sizes| sizes.shard == Shard::Weights);
        let last = blocks_first.map_or(parts, |sizes| 4 * sizes.others);
        let update = always + Moment::gradients(last) + self.update_workspace(workload, whole.largest);
        let mut moments = vec![
            (Phase::Forward, there + whole.forward),
            (Phase::Backward, there + whole.backward + gathered),
            (Phase::Optimizer, update + gathered),
        ];
        moments.extend(blocks_first.filter(|_| !offload.moves()).map(|sizes| {
            let stored = workload.precision.stored_bytes();
            let own = workload.optimizer.workspace_bytes(device, sizes.trained, stored, true);
            (Phase::Optimizer, always + Moment::gradients(parts) + Moment::workspace(own))
        }));
        // What is outside of blocks is summed when backward is over, while the sums of the last blocks are on their way.
        moments.extend(workload.shard.map(|sizes| {
            let flat = Moment::workspace(sizes.flat_others() + sizes.under_way(offload.moves()));
            (Phase::Backward, always + Moment::gradients(whole.gradients) + flat)
        }));
        let (phase, highest) =
            moments.into_iter().max_by_key(|(_, moment)| moment.total()).expect("there are three");
        Account {
            parameters: whole.weights,
            casts: whole.casts,
            state: match offload.optimizer {
                Memory::Host => 0,
                Memory::Device => self.state_bytes(workload),
            },
            highest,
            phase: Some(phase),
            standing,
            kept: kept(graphs) + earlier + slots,
            host: offload.host_bytes(&moved),
        }
    }

    /// What stands from the first step to the last.
    fn standing(&self, workload: &Workload) -> Standing {
        let Workload { offload, device, .. } = *workload;
        let moved = self.moved(workload);
        let batches = (workload.accumulation_steps + workload.eval_batches) as u64;
        Standing {
            batches: batches * self.batch,
            tables: self.tables * workload.positions as u64,
            slots: match workload.is_forward_alone() {
                true => offload.slot_bytes_of_a_forward(&moved, device).0,
                false => offload.slot_bytes(&moved, device),
            },
        }
    }

    /// Bytes of gradients that wait for the next micro-batch and for the update: parts, where ranks divide them. `whole`:
    /// those of a backward.
    fn waiting_gradients(&self, workload: &Workload, whole: u64) -> u64 {
        let moves = workload.offload.moves();
        match workload.shard {
            // Those of blocks wait on the host.
            Some(sizes) if moves => 4 * sizes.others,
            Some(sizes) => sizes.gradients(),
            None if workload.adds_by_block => self.trained() * self.moved(workload).stored,
            None => whole,
        }
    }

    /// What an update takes for a moment, the largest parameter having so many numbers.
    fn update_workspace(&self, workload: &Workload, largest: u64) -> Moment {
        let Workload { offload, optimizer, device, precision, .. } = *workload;
        if let Some(sizes) = workload.shard {
            let stored = precision.stored_bytes();
            let update = match offload.optimizer {
                Memory::Host => 0,
                Memory::Device => {
                    offload.slot_bytes_of_an_update(&self.moved(workload), device)
                        + optimizer.workspace_bytes(device, sizes.largest(), stored, false)
                }
            };
            let (own, gathered) = sizes.gathered_weights(stored);
            return Moment::workspace(match device {
                // An update is over, and its result sent, before the parts of other ranks come.
                DeviceId::Cpu => (update + own).max(gathered),
                DeviceId::Cuda(_) => update + own + gathered,
            });
        }
        // A block that moves is updated as a whole, in a copy of its slot.
        let (updated, in_place) = match offload.moves() {
            true => (self.block_trained(), false),
            false => (largest, true),
        };
        Moment::workspace(match offload.optimizer {
            Memory::Host => 0,
            Memory::Device => {
                offload.slot_bytes_of_an_update(&self.moved(workload), device)
                    + optimizer.workspace_bytes(device, updated, precision.stored_bytes(), in_place)
            }
        })
    }
}

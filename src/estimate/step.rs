//! A training step's memory and arithmetic: the fold of its operators' costs, and what else the device holds.

use super::Workload;
use crate::ops::cost::{Cost, Flops, Moment, Operators, each_once};
use crate::residence::{Copies, Moved, Updated};

impl Operators {
    /// Bytes that the optimizer keeps between steps, apart from master weights.
    pub fn state_bytes(&self, workload: &Workload) -> u64 {
        let moves = || self.trained_tensors(workload.offload.moves());
        workload.optimizer.state_bytes(workload.shard.map_or_else(moves, |sizes| sizes.tensors()))
    }

    /// Of one micro-batch.
    pub fn flops(&self, workload: &Workload) -> Flops {
        self.whole(workload).flops
    }

    /// Bytes that a rank sends in one micro-batch to those that layers are divided among.
    pub fn sent(&self, workload: &Workload) -> u64 {
        self.whole(workload).sent.total()
    }

    /// All of it, as forward and backward of one micro-batch go through it.
    pub(super) fn whole(&self, workload: &Workload) -> Cost {
        let blocks = || each_once(&self.blocks, |block| Cost::sequence(block));
        let mut parts = self.first.clone();
        if workload.is_forward_alone() {
            let places = workload.offload.resident_blocks.places(self.layers());
            let slot = workload.offload.slot_bytes_of_a_forward(&self.moved(workload), workload.device).1;
            let in_slot = Moment::workspace(slot);
            let moving = |block: Cost| Cost {
                weights: 0,
                forward: block.forward + in_slot,
                passing: block.passing + in_slot,
                ..block
            };
            let stays = |resident: bool| resident || !workload.offload.moves();
            let placed = blocks().into_iter().zip(places);
            parts.extend(placed.map(|(block, place)| if stays(place) { block } else { moving(block) }));
            parts.extend(&self.last);
            return Cost::sequence(&parts).forward_alone();
        }
        if workload.offload.moves() && workload.shard.is_none() {
            let Workload { offload, device, .. } = *workload;
            let moved = self.moved(workload);
            let moving = |block: Cost| offload.moving_block(block.recomputed(), device);
            let resident = |block: Cost| {
                let block = if moved.recomputes { block.recomputed() } else { block };
                offload.resident_block(block, &moved, device)
            };
            let places = offload.resident_blocks.places(self.layers());
            let placed = blocks().into_iter().zip(places);
            parts.extend(placed.map(|(block, stays)| if stays { resident(block) } else { moving(block) }));
        } else if workload.shard.is_some() || workload.adds_by_block || workload.checkpoint.blocks > 0 {
            // Backward is done with a block, or with a segment of them, before the next.
            let recomputes = workload.checkpoint.blocks > 0 && !workload.gathers();
            let (stored, steps) = (workload.precision.stored_bytes(), workload.accumulation_steps as u64);
            parts.extend(blocks().chunks(workload.checkpoint.blocks.max(1)).map(|segment| {
                let cost = Cost::sequence(segment);
                let cost = if recomputes { cost.recomputed() } else { cost };
                match workload.shard {
                    Some(sizes) if workload.offload.moves() => {
                        sizes.moving_block(cost, stored, workload.offload, workload.device)
                    }
                    Some(sizes) => sizes.blocks(cost, segment.len() as u64, stored, steps),
                    None if workload.adds_by_block => Cost { gradients: 0, ..cost },
                    None => cost,
                }
            }));
        } else {
            parts.extend(self.blocks.iter().flat_map(|block| block.iter()));
        }
        parts.extend(&self.last);
        Cost::sequence(&parts)
    }

    /// Bytes of a block's weights and of its gradients, as they cross the bus: of this rank's parts if ranks divide them.
    pub fn crossing(&self, workload: &Workload) -> [u64; 2] {
        let Moved { weights, trained, stored, .. } = self.moved(workload);
        [weights, trained * stored]
    }

    /// Sizes of what moves between the host and the device.
    pub(super) fn moved(&self, workload: &Workload) -> Moved {
        let (blocks, stored) = (self.layers() as u64, workload.precision.stored_bytes());
        let (weights, trained, others) = match workload.shard {
            Some(sizes) => (stored * (sizes.trained + sizes.frozen), sizes.trained, sizes.others),
            None => (self.block_weights(), self.block_trained(), self.trained() - self.trained_in_blocks()),
        };
        Moved {
            blocks,
            resident: workload.offload.resident_blocks.count(self.layers()) as u64,
            weights,
            trained,
            others,
            input: self.block_input(),
            stored,
            accumulates: workload.accumulates,
            updates: workload.optimizer.rule().is_some(),
            state: self.state_bytes(workload),
            recomputes: workload.checkpoint.blocks > 0,
        }
    }

    /// What an update changes of a block.
    pub fn updated(&self, workload: &Workload) -> Updated {
        match workload.optimizer.rule().map_or(0, |_| self.trained_in_blocks()) {
            0 => Updated::Nothing,
            trained if trained < self.parameters_of_blocks() => Updated::Part,
            _ => Updated::Whole,
        }
    }

    /// The fewest copies of blocks in a step.
    pub fn fewest_copies(&self, workload: &Workload) -> Copies {
        let updated = self.updated(workload);
        workload.offload.fewest_copies(self.layers(), workload.accumulation_steps, updated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::DeviceId;
    use crate::ops::cost::Trained;
    use crate::ops::testing::operator_cost;
    use crate::ops::{Checkpoint, Ops};
    use crate::optim::OptimizerConfig;
    use crate::precision::Precision;
    use crate::recipe::{Recipe, Source};
    use crate::residence::Offload;

    /// Four blocks of one operator each, in segments of so many.
    fn of_four_blocks<T>(blocks: usize, live_graphs: usize, f: impl FnOnce(&Operators, &Workload) -> T) -> T {
        let operators = Operators { blocks: vec![[operator_cost()].into(); 4], ..Operators::default() };
        let (precision, optimizer) = (Precision::default(), OptimizerConfig::default());
        let workload = Workload {
            device: DeviceId::Cpu,
            capability: None,
            precision: &precision,
            checkpoint: Checkpoint { blocks, ..Checkpoint::default() },
            ops: Ops::default(),
            offload: Offload::default(),
            optimizer: &optimizer,
            batch_size: 1,
            seq_len: 1,
            positions: 1,
            packed: false,
            accumulation_steps: live_graphs,
            accumulates: live_graphs > 1,
            adds_by_block: false,
            live_graphs,
            waiting_inputs: 0,
            eval_batches: 0,
            trained: Trained::ALL,
            packs: false,
            tensor: 1,
            shard: None,
            gathered: 0,
        };
        f(&operators, &workload)
    }

    fn kept_and_moments(blocks: usize) -> [u64; 3] {
        let whole = of_four_blocks(blocks, 1, Operators::whole);
        [whole.kept, whole.forward.total(), whole.backward.total()]
    }

    #[test]
    fn every_graph_that_lives_keeps_its_activations() {
        let estimate =
            |live| of_four_blocks(0, live, |operators, workload| operators.account(workload).estimate());
        // Of each graph 430 are kept: 400 and three inputs. The backward of the last is 480 with its own.
        assert_eq!([1, 2, 3].map(|live| estimate(live).total()), [480, 910, 1340]);
        assert_eq!([1, 2, 3].map(|live| estimate(live).kept), [430, 860, 1290]);
    }

    #[test]
    fn segments_keep_their_inputs_and_backward_has_one_of_them() {
        // All is kept: 4 · 100 and three inputs; in forward 3 · 100, two inputs kept and one read, and 130; in
        // backward 3 · 100, three inputs and 150.
        assert_eq!(kept_and_moments(0), [430, 460, 480]);
        // Three inputs; in forward two, one more that is read, and 130; in backward three and 150.
        assert_eq!(kept_and_moments(1), [30, 160, 180]);
        // The input of the second segment; in forward that, one inside of the segment, and 130; in backward that
        // and the highest moment of two blocks: 100 of the first, an input, and 150.
        assert_eq!(kept_and_moments(2), [10, 150, 270]);
        // Nothing besides the network's input; backward has all blocks again, as without segments.
        assert_eq!(kept_and_moments(4), [0, 140, 480]);
    }

    /// The operators have all of a network's parameters.
    #[test]
    fn operators_have_the_parameters_of_the_configuration() {
        let gpt2 = "kind = \"gpt2\"\npreset = \"gpt2\"\n";
        let models = [
            "kind = \"qwen2\"\npreset = \"qwen2.5-0.5b\"\n".to_string(),
            "kind = \"qwen2\"\npreset = \"qwen2.5-7b\"\n".to_string(),
            gpt2.to_string(),
            format!("{gpt2}positions = \"sinusoidal\"\ntie_word_embeddings = false\n"),
            "kind = \"gptj\"\npreset = \"gpt-j-6b\"\n".to_string(),
            "kind = \"swiglu\"\nhidden_size = 7\nintermediate_size = 13\nnum_hidden_layers = 2\n".to_string(),
        ];
        for model in models {
            let text = format!(
                "title = \"t\"\ndevice = \"cpu\"\n[model]\n{model}[train]\nbatch_size = 1\nseq_len = 8\n"
            );
            let source = Source { path: "r.toml".into(), text };
            let cell = Recipe::parse(&source).expect("a recipe").cells.remove(0);
            assert_eq!(cell.operators().parameters(), cell.model.parameters(), "{model}");
        }
    }
}

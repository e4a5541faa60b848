//! [`ShardSizes`]: the memory and traffic of a rank that has a part of a divided model.

use super::config::Shard;
use super::module::{UNDER_WAY, block_of};
use super::regions::Regions;
use crate::common::DeviceId;
use crate::ops::cost::{Cost, Moment, Tensors};
use crate::params::table::Table;
use crate::residence::config::{Memory, Offload};
use crate::residence::layout::Layout;

/// Blocks gathered at once: the one whose turn it is, and the next.
const GATHERED: u64 = 2;

/// The parts of a rank, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSizes {
    pub shard: Shard,
    pub ranks: u64,
    /// Number of blocks, and parts of the trained and of the frozen parameters of one.
    pub blocks: u64,
    pub trained: u64,
    pub frozen: u64,
    /// Part of the trained parameters outside of blocks.
    pub others: u64,
}

impl ShardSizes {
    /// The sizes for the parameters of a language model.
    pub fn of(shard: Shard, ranks: usize, table: &Table) -> Self {
        let within = |block: Option<usize>| {
            let entries = table.entries.iter().filter(move |entry| block_of(&entry.name) == block);
            Regions::of(&Layout::over(entries.map(|entry| (entry, entry.name.as_str()))), ranks)
        };
        let (block, others) = (within(Some(0)), within(None));
        let blocks = table.entries.iter().filter_map(|entry| block_of(&entry.name)).max();
        Self {
            shard,
            ranks: ranks as u64,
            blocks: blocks.map_or(0, |last| last as u64 + 1),
            trained: block.trained.own as u64,
            frozen: block.frozen.own as u64,
            others: others.trained.own as u64,
        }
    }

    /// Part of all trained parameters.
    fn all_trained(&self) -> u64 {
        self.blocks * self.trained + self.others
    }

    /// The tensors that the optimizer updates: a vector for each bucket.
    pub fn tensors(&self) -> Tensors {
        Tensors::vectors(self.blocks, self.trained) + Tensors::vectors(1, self.others)
    }

    /// Bytes of a rank's parts of the gradients, in fp32.
    pub fn gradients(&self) -> u64 {
        4 * self.all_trained()
    }

    /// Bytes that a rank sends in a step of so many micro-batches, with weights of `stored` bytes each. Each part of gradients
    /// and weights goes to every other rank.
    pub fn sent(&self, stored: u64, micro_batches: u64) -> u64 {
        let sums = if self.shard == Shard::Optimizer { 1 } else { micro_batches };
        let gradients = sums * self.gradients();
        let weights = match self.shard {
            Shard::None => 0,
            Shard::Optimizer | Shard::Gradients => self.all_trained(),
            // In forward and in backward of each micro-batch.
            Shard::Weights => 2 * micro_batches * self.blocks * (self.trained + self.frozen) + self.others,
        };
        (self.ranks - 1) * (gradients + stored * weights)
    }

    /// Bytes of the flat copy in fp32 of gradients outside of blocks, of which each rank sums a part.
    pub fn flat_others(&self) -> u64 {
        4 * self.others * self.ranks
    }

    /// The same of one block.
    fn flat_block(&self) -> u64 {
        4 * self.trained * self.ranks
    }

    /// Bytes of it that other ranks sum.
    fn others_parts(&self) -> u64 {
        4 * self.trained * (self.ranks - 1)
    }

    /// Bytes of the flat copies that are on their way behind the last block: what they take more than the parts of them that
    /// stay, which count as gradients. `moves`: none stays.
    pub fn under_way(&self, moves: bool) -> u64 {
        UNDER_WAY.min(self.blocks) * if moves { self.flat_block() } else { self.others_parts() }
    }

    /// Whether gradients wait whole for the last of so many micro-batches.
    pub fn waits_whole(&self, micro_batches: u64) -> bool {
        self.shard == Shard::Optimizer && micro_batches > 1
    }

    /// So many blocks, whose gradients come together, of weights of `stored` bytes each.
    pub fn blocks(&self, cost: Cost, count: u64, stored: u64, micro_batches: u64) -> Cost {
        // Until their sums are needed, the flat copies of the gradients of blocks behind are there. Their parts are not yet.
        let under_way = |blocks: u64| Moment::workspace(blocks * count * self.others_parts());
        let own = Moment::gradients(cost.gradients) + Moment::workspace(count * self.flat_block());
        let sums = own + under_way(UNDER_WAY - 1);
        let backward = |backward: Moment| Moment::highest([backward + under_way(UNDER_WAY), sums]);
        let gradients = 4 * count * self.trained;
        match self.shard {
            // Between the first micro-batch and the last, whole gradients are added to whole ones.
            _ if self.waits_whole(micro_batches) && micro_batches > 2 => {
                Cost { backward: backward(cost.backward), ..cost }
            }
            Shard::Weights => {
                let own = stored * count * (self.trained + self.frozen);
                let gathered = Moment::workspace(GATHERED * own * self.ranks);
                let cost = cost.recomputed();
                Cost {
                    weights: own,
                    gradients,
                    forward: cost.forward + gathered,
                    passing: cost.passing + gathered,
                    backward: backward(cost.backward) + gathered,
                    ..cost
                }
            }
            Shard::None | Shard::Optimizer | Shard::Gradients => {
                Cost { gradients, backward: backward(cost.backward), ..cost }
            }
        }
    }

    /// A block whose parts are on the host: weights and gradients of a rank are in slots or there, but for the sums that are
    /// on their way.
    pub fn moving_block(&self, cost: Cost, stored: u64, offload: Offload, device: DeviceId) -> Cost {
        let sums = UNDER_WAY * 4 * self.trained;
        // A CPU's slot takes memory when sums are put into a copy of it.
        let slots = if device == DeviceId::Cpu { 2 * stored * self.trained } else { 0 };
        let cost = self.blocks(cost, 1, stored, 1);
        Cost {
            weights: 0,
            gradients: 0,
            holds_input: offload.activations == Memory::Device,
            backward: cost.backward + Moment::workspace(sums + slots),
            ..cost
        }
    }

    /// Bytes for a moment in an update, of weights of `stored` bytes each: this rank's part of the largest bucket, which is
    /// also the buffer of an update on the host; and the bucket's weights as they come from all ranks, and as they are put
    /// together, behind those of the next. Blocks that are gathered for their turns are not.
    pub fn gathered_weights(&self, stored: u64) -> (u64, u64) {
        let largest = match self.shard {
            Shard::Weights => self.others,
            Shard::None | Shard::Optimizer | Shard::Gradients => self.others.max(self.trained),
        };
        (stored * largest, stored * largest * 2 * self.ranks)
    }

    /// Elements of the largest part that is updated at once.
    pub fn largest(&self) -> u64 {
        self.others.max(self.trained)
    }
}

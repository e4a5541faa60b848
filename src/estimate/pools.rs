//! [`Load::driver_memory`]: bytes of a GPU that its driver counts for a step, beside the tensors that an estimate counts.
//!
//! A parameter of 32 MiB or more has memory of its own, as slots of blocks have and the sums to which a graph adds gradients.
//! All other tensors lie on pages of CubeCL's pool. A page has the size of the largest tensor that ever lay on one, and 1 MiB
//! (cubecl-server, `dynamic/arena.rs`); it is taken as a whole and kept. The driver gives memory in pieces of 2 MiB.

use cpu_kernels::nf4::Packing;

use super::{Account, Load};
use crate::common::DeviceId;
use crate::device::cuda::LARGE;
use crate::ops::cost::Tensors;
use crate::ops::cross_entropy::chunk;
use crate::params::table::Group;
use crate::recipe::Cell;
use crate::residence::Memory;

/// Bytes of the driver's context with the runner's kernels, on an H100.
const CONTEXT: u64 = 606_000_000;
/// Bytes of NCCL's buffers, where ranks exchange messages.
pub const NCCL: u64 = 905_000_000;
/// Bytes of the page of small tensors.
const SMALL_PAGE: u64 = 8 << 20;
/// What a page has besides its largest tensor, and to which multiple its size is rounded.
const SLACK: u64 = 1 << 20;
/// Pieces in which the driver gives memory.
const PIECE: u64 = 2 << 20;
/// Holes between tensors of several sizes, in hundredths of the pages: the medians of committed rows. Where launches add the
/// gradients of several micro-batches, these lie between what the next micro-batch needs.
const HOLES: u64 = 3;
const HOLES_OF_SUMS: u64 = 10;
/// The most that a step whose blocks move took beyond its median, in hundredths of what is not the context.
const MOVED_MOST: u64 = 10;
/// What ranks hold beside tensors, in hundredths of these: the median of committed rows.
const OF_RANKS: u64 = 5;

/// Sizes of the parameters of a network.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    sizes: Vec<Size>,
    /// The widest input or result of a block's linear layers, in numbers a token.
    widest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Size {
    numbers: u64,
    in_block: bool,
    /// Whether 4 bits of each are stored.
    packed: bool,
}

impl Size {
    fn bytes(self, stored: u64) -> u64 {
        match self.packed {
            true => Packing::of(self.numbers as usize).bytes() as u64,
            false => self.numbers * stored,
        }
    }
}

impl Parameters {
    fn new(cell: &Cell) -> Self {
        let table = cell.model.table(cell.precision.stored(), &cell.tuning());
        let entries = table.into_iter().flat_map(|table| table.entries);
        let sizes = entries.map(|entry| Size {
            numbers: entry.shape.iter().map(|size| *size as u64).product(),
            in_block: matches!(entry.group, Group::Block(_)),
            packed: entry.packed,
        });
        let columns = cell.model.linear_layers().into_iter().flat_map(|(_, sizes)| sizes);
        Self { sizes: sizes.collect(), widest: columns.max().unwrap_or(0) as u64 }
    }
}

/// The most bytes that the driver counted where so many are expected: a smaller limit may not be enough.
pub fn most(expected: u64, cell: &Cell) -> u64 {
    let moves = cell.offload.moves() && cell.device_id() != DeviceId::Cpu;
    if moves { expected + expected.saturating_sub(CONTEXT) / 100 * MOVED_MOST } else { expected }
}

impl Load<'_> {
    /// Bytes that the driver is expected to count for tensors with this account; on the CPU those of the tensors.
    pub fn driver_memory(&self, account: &Account) -> u64 {
        let tensors = account.estimate().total();
        if self.cell.device_id() == DeviceId::Cpu {
            return tensors;
        }
        if !self.cell.parallel.is_alone() {
            return tensors + tensors / 100 * OF_RANKS + CONTEXT + NCCL;
        }
        let own = self.own_memory(account);
        let page = self.page();
        let pages = tensors.saturating_sub(own).div_ceil(page) * page.next_multiple_of(PIECE);
        let adds = self.workload.accumulates && !self.workload.adds_by_block;
        let holes = pages / 100 * if adds { HOLES_OF_SUMS } else { HOLES };
        CONTEXT + own + SMALL_PAGE + pages + holes
    }

    /// Derived where they are first asked for.
    fn parameters(&self) -> &Parameters {
        self.parameters.get_or_init(|| Parameters::new(self.cell))
    }

    /// Bytes outside of pages, in pieces of the driver.
    fn own_memory(&self, account: &Account) -> u64 {
        let (workload, stored) = (&self.workload, self.cell.precision.stored_bytes());
        let moves = workload.offload.moves();
        // Of blocks that move the slots have it.
        let there = self.parameters().sizes.iter().filter(|size| !(moves && size.in_block));
        let large = there.map(|size| size.bytes(stored)).filter(|bytes| *bytes >= LARGE as u64);
        let parameters: u64 = large.map(|bytes| bytes.next_multiple_of(PIECE)).sum();
        let sums = if workload.adds_by_block { self.operators.trained() * stored } else { 0 };
        let blocks = if moves {
            let moved = self.operators.moved(workload);
            let kept = workload.offload.kept_gradients(&moved, workload.device);
            account.standing.slots.total() + moved.resident * moved.weights + kept
        } else {
            0
        };
        parameters + sums + blocks
    }

    /// Bytes of a page: the largest of activations, logits, and of what the largest parameters have besides themselves.
    fn page(&self) -> u64 {
        let (cell, workload) = (self.cell, &self.workload);
        let (stored, element) = (cell.precision.stored_bytes(), cell.precision.compute.bytes());
        let (tokens, moves) = (cell.train.tokens(), workload.offload.moves());
        let operators = self.operators.first.iter().chain(&self.operators.last);
        let in_blocks = self.operators.blocks.iter().filter(|_| !moves).flat_map(|block| block.iter());
        let trained = operators.chain(in_blocks).map(|cost| cost.largest).max().unwrap_or(0);
        let gradient = if cell.train.mode.trains() { trained * stored } else { 0 };
        // An optimizer has a block that moves as one vector. Moments are two tensors.
        let updated = if moves { trained.max(self.operators.block_trained()) } else { trained };
        let one = Tensors { count: 1, elements: updated, ..Tensors::default() };
        let moment = match workload.offload.optimizer {
            Memory::Device => workload.optimizer.state_bytes(one) / 2,
            Memory::Host => 0,
        };
        let numbers = |of: &dyn Fn(&Size) -> bool| {
            self.parameters().sizes.iter().filter(|size| of(size)).map(|size| size.numbers).max().unwrap_or(0)
        };
        let cast = if cell.precision.autocast { element * numbers(&|size| !size.packed) } else { 0 };
        let unpacked = element * numbers(&|size| size.packed);
        let activation = self.operators.block_input().max(tokens as u64 * self.parameters().widest * element);
        let logits = cell.model.decoder().map_or(0, |shape| {
            let columns = chunk(tokens, shape.vocab_size).min(shape.vocab_size);
            4 * (tokens * columns) as u64
        });
        let largest = [gradient, moment, cast, unpacked, activation, logits].into_iter().max().unwrap_or(0);
        (largest + SLACK).next_multiple_of(SLACK).max(PIECE)
    }
}

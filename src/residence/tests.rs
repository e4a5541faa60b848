//! Tests with a store that records all calls: the order in which blocks pass through slots, and what must not happen.

mod host_optimizer;
mod layout;
mod order;
mod resident_blocks;

use std::sync::{Arc, Mutex};

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Device, Tensor};

use super::config::{Memory, Offload, Placement};
use super::engine::{Engine, Pass, Slots};
use super::layout::Layout;
use super::names::BlockNames;
use super::strategy::{Checkpointed, Function, Naive, Overlap, Strategy};
use super::turns::{SlotState, Turns};
use super::{ParameterStore, ResidentBlocks};
use crate::common::DeviceId;
use crate::device::{BlockStore, Buffers, HostMemory, Loan, Side, StoreSize};
use crate::measure::alloc::{Room, Uncounted};
use crate::optim::host::{HostStep, Work};
use crate::optim::{AdamW, Optimizer, OptimizerConfig, StepSize};
use crate::params::table::{Entry, Group};

/// The layout of a block with two parameters of so many elements.
fn layout(elements: usize, dtype: DType) -> Layout {
    let entry = |name: &str| Entry {
        name: format!("blocks.0.{name}"),
        shape: vec![elements],
        dtype,
        trainable: true,
        group: Group::Block(0),
        packed: false,
        split: None,
    };
    Layout::of(&["weight", "bias"].map(entry), "blocks.0.")
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Fill { slot: usize, block: usize },
    Read(usize),
    Used(usize),
    Clear(usize),
    Wait,
    Send { side: Side, block: usize },
    Lend { side: Side, block: usize },
    GiveBack(usize),
}

/// Records all calls, and counts the elements that come to the device and leave it.
struct Recorder(Arc<Mutex<Vec<Act>>>, Arc<Mutex<[usize; 2]>>);

impl Recorder {
    fn note(&self, act: Act) {
        self.0.lock().unwrap().push(act);
    }
}

impl BlockStore for Recorder {
    fn host(&mut self, _: Side, _: usize) -> &mut [u8] {
        &mut []
    }

    fn lend(&mut self, side: Side, block: usize) -> Loan {
        self.note(Act::Lend { side, block });
        let bytes = 4 * layout(3, DType::F32).elements;
        Loan { memory: Box::new(Uncounted::new(bytes).unwrap()), arrival: Box::new(|| Ok(())) }
    }

    fn give_back(&mut self, block: usize, _: Box<dyn HostMemory>, _: usize) {
        self.note(Act::GiveBack(block));
    }

    fn fill(&mut self, slot: usize, _: Side, block: usize, elements: usize) {
        self.1.lock().unwrap()[0] += elements;
        self.note(Act::Fill { slot, block });
    }

    fn filled(&mut self, slot: usize) {
        self.note(Act::Read(slot));
    }

    fn used(&mut self, slot: usize) {
        self.note(Act::Used(slot));
    }

    fn view(&self, _: usize, _: usize, shape: &[usize]) -> DispatchTensor {
        Tensor::<1>::zeros([shape[0]], &Device::flex()).into_dispatch()
    }

    fn write(&mut self, _: usize, _: Vec<(usize, DispatchTensor)>) {}

    fn send(&mut self, _: usize, side: Side, block: usize, elements: usize) {
        self.1.lock().unwrap()[1] += elements;
        self.note(Act::Send { side, block });
    }

    fn clear(&mut self, slot: usize) {
        self.note(Act::Clear(slot));
    }

    fn settle(&mut self) {}

    fn wait(&mut self) {
        self.note(Act::Wait);
    }
}

/// An engine of so many blocks.
fn engine(acts: &Arc<Mutex<Vec<Act>>>, placement: Placement, blocks: usize) -> Engine {
    let Placement { offload, accumulates, updates, .. } = placement;
    let layout = layout(3, DType::F32);
    let resident = offload.resident_blocks.places(blocks);
    let keeps = offload.keeps_gradients(accumulates, updates);
    let mut slots = Slots::new(&resident, offload.buffers(), keeps, true);
    let buffers: Vec<_> = resident.iter().map(|stays| placement.buffers(*stays, true)).collect();
    // A block without a buffer on the host is in its slot from the beginning.
    for block in (0..blocks).filter(|block| buffers[*block] == Buffers::None) {
        slots.take(block, block, Pass::Forward);
    }
    let size = StoreSize {
        buffers,
        elements: layout.elements,
        trainable: layout.trainable_elements(),
        dtype: DType::F32,
        slots: slots.weights(),
        gradient_slots: slots.gradients(),
    };
    let movement = offload.strategy.movement().expect("blocks move");
    let store = Box::new(Recorder(acts.clone(), Arc::default()));
    Engine::new(
        store,
        vec![layout.into(); blocks],
        (size, slots),
        movement,
        Device::flex(),
        BlockNames::new([("blocks", blocks)]),
    )
}

/// Overlap with three slots.
fn overlap() -> Offload {
    Offload::of(Strategy::Overlap(Overlap::default()))
}

fn placed(offload: Offload) -> Placement {
    Placement { offload, device: DeviceId::Cpu, accumulates: true, updates: true, recomputes: false }
}

fn forward(engine: &mut Engine, count: usize) {
    for block in 0..count {
        engine.enter(block, Pass::Forward);
        engine.leave(block);
    }
}

/// The first place of `act`.
fn place(acts: &[Act], act: &Act) -> usize {
    acts.iter().position(|other| other == act).unwrap_or_else(|| panic!("{act:?} is not in {acts:?}"))
}

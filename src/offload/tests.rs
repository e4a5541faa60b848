//! The order in which blocks pass through slots, and what it must not do.

use std::sync::{Arc, Mutex};

use burn::backend::DispatchTensor;
use burn::module::{Module, Param, ParamId};
use burn::tensor::{DType, Device, Tensor};

use super::config::{Offload, Strategy};
use super::engine::{Engine, Pass};
use super::layout::Layout;
use crate::device::{BlockStore, HostMemory, Loan, Side};

#[derive(Module, Debug)]
struct One {
    weight: Param<Tensor<1>>,
    bias: Option<Param<Tensor<1>>>,
}

fn one(elements: usize) -> One {
    let parameter = || Param::initialized(ParamId::new(), Tensor::<1>::ones([elements], &Device::flex()));
    One { weight: parameter(), bias: Some(parameter()) }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Fill { slot: usize, block: usize },
    Read(usize),
    Used(usize),
    Clear(usize),
    Wait,
}

/// Writes down what is asked of it.
struct Recorder(Arc<Mutex<Vec<Act>>>);

impl Recorder {
    fn note(&self, act: Act) {
        self.0.lock().unwrap().push(act);
    }
}

impl BlockStore for Recorder {
    fn host(&mut self, _: Side, _: usize) -> &mut [u8] {
        &mut []
    }

    fn lend(&mut self, _: Side, _: usize) -> Loan {
        unreachable!("nothing is updated on the host")
    }

    fn give_back(&mut self, _: usize, _: Box<dyn HostMemory>) {}

    fn fill(&mut self, slot: usize, _: Side, block: usize) {
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

    fn write(&mut self, _: usize, _: usize, _: DispatchTensor) {}

    fn send(&mut self, _: usize, _: Side, _: usize) {}

    fn clear(&mut self, slot: usize) {
        self.note(Act::Clear(slot));
    }

    fn settle(&mut self) {}

    fn wait(&mut self) {
        self.note(Act::Wait);
    }
}

/// What forward and backward over `count` blocks ask of the store.
fn recorded(strategy: Strategy, buffers: usize, count: usize) -> Vec<Act> {
    let acts = Arc::new(Mutex::new(Vec::new()));
    let layout = Layout::of(&one(3), DType::F32);
    let offload = Offload { buffers, ..Offload::of(strategy) };
    let mut engine = Engine::new(Box::new(Recorder(acts.clone())), layout, count, DType::F32, offload, true);
    for block in 0..count {
        engine.enter(block, Pass::Forward);
        engine.leave(block);
    }
    for block in (0..count).rev() {
        engine.enter(block, Pass::Backward);
        engine.leave(block);
    }
    let acts = acts.lock().unwrap();
    acts.clone()
}

#[test]
fn parameters_begin_at_aligned_places_in_the_order_of_the_module() {
    let layout = Layout::of(&one(129), DType::BF16);
    let places: Vec<_> = layout.parts.iter().map(|part| (part.name.as_str(), part.first)).collect();
    assert_eq!(places, [("weight", 0), ("bias", 256)]);
    assert_eq!(layout.elements, 256 + 129);
}

/// Whenever a block is read, the last fill of its slot was its own, and no slot is refilled between the
/// moment a block's copy was issued and the end of the block's turn.
#[test]
fn a_slot_is_never_refilled_before_its_block_was_computed() {
    for buffers in 1..=4 {
        let count = 6;
        let acts = recorded(Strategy::Overlap, buffers, count);
        let mut holds = vec![None; buffers];
        let mut turns = (0..count).chain((0..count).rev());
        let mut waiting = vec![false; buffers];
        for act in &acts {
            match *act {
                Act::Fill { slot, block } => {
                    assert!(!waiting[slot], "{buffers} buffers: slot {slot} is refilled too early: {acts:?}");
                    (holds[slot], waiting[slot]) = (Some(block), true);
                }
                Act::Read(slot) => assert_eq!(holds[slot], turns.next(), "{buffers} buffers: {acts:?}"),
                Act::Used(slot) => waiting[slot] = false,
                Act::Clear(_) | Act::Wait => panic!("overlap neither clears nor waits: {acts:?}"),
            }
        }
        // Blocks that forward left in the slots are not copied again.
        let fills = acts.iter().filter(|act| matches!(act, Act::Fill { .. })).count();
        assert_eq!(fills, 2 * count - buffers, "{buffers} buffers");
    }
}

/// Three buffers: two copies are under way or done when a block is computed.
#[test]
fn blocks_are_copied_ahead_of_their_turn() {
    let acts = recorded(Strategy::Overlap, 3, 5);
    let filled_when_read: Vec<usize> = acts
        .iter()
        .scan(0, |fills, act| {
            *fills += usize::from(matches!(act, Act::Fill { .. }));
            Some((act, *fills))
        })
        .filter(|(act, _)| matches!(act, Act::Read(_)))
        .map(|(_, fills)| fills)
        .collect();
    assert_eq!(filled_when_read, [3, 4, 5, 5, 5, 5, 6, 7, 7, 7]);
}

#[test]
fn without_overlap_a_block_is_in_its_slot_during_its_turn_alone() {
    for (strategy, waits) in
        [(Strategy::Naive, true), (Strategy::Checkpointed, true), (Strategy::Function, false)]
    {
        let acts: Vec<Act> =
            recorded(strategy, 1, 3).into_iter().filter(|act| waits || *act != Act::Wait).collect();
        let turn = |block| {
            let mut turn = vec![Act::Fill { slot: 0, block }, Act::Read(0), Act::Used(0), Act::Clear(0)];
            if waits {
                turn.insert(1, Act::Wait);
                turn.insert(4, Act::Wait);
            }
            turn
        };
        let expected: Vec<Act> = (0..3).chain((0..3).rev()).flat_map(turn).collect();
        assert_eq!(acts, expected, "{strategy:?}");
    }
}

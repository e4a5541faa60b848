//! The order in which blocks pass through slots, and what it must not do.

use std::sync::{Arc, Mutex};

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Device, Tensor};

use super::engine::{Engine, GRADIENT_SLOTS, Pass};
use super::layout::Layout;
use super::strategy::{Checkpointed, Function, Naive, Overlap};
use super::{Movement, ParameterStore};
use crate::device::{BlockStore, DeviceId, HostMemory, Loan, Side, StoreSize};
use crate::measure::alloc::Uncounted;
use crate::optim::host::Work;
use crate::optim::{AdamW, Optimizer, OptimizerConfig, StepSize};
use crate::params::table::{Entry, Group};

/// Of a block with two parameters of so many elements.
fn layout(elements: usize, dtype: DType) -> Layout {
    let entry = |name: &str| Entry {
        name: format!("blocks.0.{name}"),
        shape: vec![elements],
        dtype,
        trainable: true,
        group: Group::Block(0),
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

/// Writes down what is asked of it, and counts the elements that come to the device and leave it.
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

    fn write(&mut self, _: usize, _: usize, _: DispatchTensor) {}

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

fn engine(acts: &Arc<Mutex<Vec<Act>>>, movement: Arc<dyn Movement>, count: usize, slots: usize) -> Engine {
    engine_with(acts, movement, count, slots, true)
}

/// `gradients`: whether they have buffers of their own.
fn engine_with(
    acts: &Arc<Mutex<Vec<Act>>>,
    movement: Arc<dyn Movement>,
    blocks: usize,
    slots: usize,
    gradients: bool,
) -> Engine {
    let layout = layout(3, DType::F32);
    let size = StoreSize {
        blocks,
        elements: layout.elements,
        trainable: layout.trainable_elements(),
        dtype: DType::F32,
        slots,
        gradient_slots: GRADIENT_SLOTS,
        gradients,
    };
    Engine::new(
        Box::new(Recorder(acts.clone(), Arc::default())),
        vec![layout; blocks],
        size,
        movement,
        Device::flex(),
        "blocks",
    )
}

/// What forward and backward over `count` blocks ask of the store.
fn recorded(movement: impl Movement + 'static, count: usize) -> Vec<Act> {
    let acts = Arc::new(Mutex::new(Vec::new()));
    let buffers = movement.buffers();
    let mut engine = engine(&acts, Arc::new(movement), count, buffers);
    forward(&mut engine, count);
    for block in (0..count).rev() {
        engine.enter(block, Pass::Backward);
        engine.leave(block);
    }
    let acts = acts.lock().unwrap();
    acts.clone()
}

fn forward(engine: &mut Engine, count: usize) {
    for block in 0..count {
        engine.enter(block, Pass::Forward);
        engine.leave(block);
    }
}

/// What a step with AdamW on the host and the forward after it ask of the store.
fn recorded_on_the_host(count: usize, update_on_arrival: bool, separate_gradients: bool) -> Vec<Act> {
    let acts = Arc::new(Mutex::new(Vec::new()));
    let movement = Arc::new(Overlap::default());
    let mut engine = engine_with(&acts, movement, count, 3, separate_gradients);
    let config = OptimizerConfig::AdamW(AdamW::default());
    engine.begin(&config, &Optimizer::new(&config, Some(DeviceId::Cpu)), false);
    forward(&mut engine, count);
    if update_on_arrival {
        engine.update_on_arrival(Work::Step { rate: 1.0, clip: 1.0 });
    }
    for block in (0..count).rev() {
        engine.enter(block, Pass::Backward);
        let gradient = || Tensor::<1>::ones([3], &Device::flex()).into_dispatch();
        engine.take_gradients(block, vec![gradient(), gradient()]);
        engine.leave(block);
    }
    engine.update(&StepSize::FULL);
    forward(&mut engine, count);
    let acts = acts.lock().unwrap();
    acts.clone()
}

/// Where `act` comes first.
fn place(acts: &[Act], act: &Act) -> usize {
    acts.iter().position(|other| other == act).unwrap_or_else(|| panic!("{act:?} is not in {acts:?}"))
}

/// A buffer that the optimizer on the host has is neither filled from nor sent to, every block is
/// updated once, and the weights of the next forward come after their update.
#[test]
fn a_buffer_is_copied_only_while_the_optimizer_does_not_have_it() {
    let count = 6;
    for (on_arrival, separate) in [(true, true), (true, false), (false, true), (false, false)] {
        let acts = recorded_on_the_host(count, on_arrival, separate);
        let mut lent = vec![false; count];
        let mut updates = vec![0; count];
        for act in &acts {
            match *act {
                Act::Lend { side, block } => {
                    assert!(!std::mem::replace(&mut lent[block], true));
                    updates[block] += usize::from(side == Side::Gradients);
                }
                Act::GiveBack(block) => lent[block] = false,
                Act::Send { block, .. } => assert!(!lent[block], "{acts:?}"),
                // Slots for gradients are filled for sums alone, which there are none of.
                Act::Fill { block, .. } => assert!(!lent[block], "{acts:?}"),
                Act::Read(_) | Act::Used(_) | Act::Clear(_) | Act::Wait => {}
            }
        }
        assert_eq!(updates, vec![1; count]);
        // All slots are stale after an update: every block is copied for the next forward.
        let updated = place(&acts, &Act::Lend { side: Side::Gradients, block: 0 });
        let fills = acts[updated..].iter().filter(|act| matches!(act, Act::Fill { .. })).count();
        assert_eq!(fills, count, "{acts:?}");
    }
}

/// Behind backward a block's update begins with its gradients' arrival; with a norm that is not known
/// before the last of them, after all.
#[test]
fn updates_begin_as_early_as_they_may() {
    let count = 4;
    for on_arrival in [true, false] {
        let acts = recorded_on_the_host(count, on_arrival, true);
        let sent = |block| place(&acts, &Act::Send { side: Side::Gradients, block });
        let begun = |block| place(&acts, &Act::Lend { side: Side::Gradients, block });
        for block in 0..count {
            // The last block of backward is 0.
            let since = if on_arrival { sent(block) } else { sent(0) };
            assert!(begun(block) > since, "{acts:?}");
            assert!(!on_arrival || begun(block) == since + 1, "{acts:?}");
        }
    }
}

#[test]
fn parameters_begin_at_aligned_places_in_the_order_of_the_table() {
    let layout = layout(129, DType::BF16);
    let places: Vec<_> = layout.parts.iter().map(|part| (part.name.as_str(), part.first)).collect();
    assert_eq!(places, [("weight", 0), ("bias", 256)]);
    assert_eq!(layout.elements, 256 + 129);
}

/// Frozen parameters lie behind the trainable ones, and gradients have no room for them.
#[test]
fn gradients_are_as_large_as_what_is_trained() {
    let mut entries = ["weight", "bias"].map(|name| Entry {
        name: format!("blocks.0.{name}"),
        shape: vec![200],
        dtype: DType::F32,
        trainable: name == "bias",
        group: Group::Block(0),
    });
    let layout = Layout::of(&entries, "blocks.0.");
    let places: Vec<_> = layout.parts.iter().map(|part| (part.name.as_str(), part.first)).collect();
    assert_eq!(places, [("bias", 0), ("weight", 256)]);
    assert_eq!((layout.trainable, layout.trainable_elements(), layout.elements), (1, 200, 456));
    entries[1].trainable = false;
    assert_eq!(Layout::of(&entries, "blocks.0.").trainable_elements(), 0);
}

/// Whenever a block is read, the last fill of its slot was its own, and no slot is refilled between the
/// moment a block's copy was issued and the end of the block's turn.
#[test]
fn a_slot_is_never_refilled_before_its_block_was_computed() {
    for buffers in 1..=4 {
        let count = 6;
        let acts = recorded(Overlap { buffers }, count);
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
                ref other => panic!("overlap does no {other:?} here: {acts:?}"),
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
    let acts = recorded(Overlap { buffers: 3 }, 5);
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
    for (acts, waits) in [
        (recorded(Naive {}, 3), true),
        (recorded(Checkpointed {}, 3), true),
        (recorded(Function {}, 3), false),
    ] {
        let acts: Vec<Act> = acts.into_iter().filter(|act| waits || *act != Act::Wait).collect();
        let turn = |block| {
            let mut turn = vec![Act::Fill { slot: 0, block }, Act::Read(0), Act::Used(0), Act::Clear(0)];
            if waits {
                for place in [0, 2, 5] {
                    turn.insert(place, Act::Wait);
                }
            }
            turn
        };
        let expected: Vec<Act> = (0..3).chain((0..3).rev()).flat_map(turn).collect();
        assert_eq!(acts, expected);
    }
}

/// Elements that forward and backward of six blocks bring to the device and take from it, of which each has a weight
/// of 1000 elements, trained or frozen, and a trained bias.
fn crossed(trained: bool) -> [usize; 2] {
    let entry = |name: &str, elements, trainable| Entry {
        name: format!("blocks.0.{name}"),
        shape: vec![elements],
        dtype: DType::F32,
        trainable,
        group: Group::Block(0),
    };
    let layout = Layout::of(&[entry("weight", 1000, trained), entry("bias", 3, true)], "blocks.0.");
    let size = StoreSize {
        blocks: 6,
        elements: layout.elements,
        trainable: layout.trainable_elements(),
        dtype: DType::F32,
        slots: 3,
        gradient_slots: GRADIENT_SLOTS,
        gradients: true,
    };
    let counted = Arc::new(Mutex::new([0; 2]));
    let store = Box::new(Recorder(Arc::default(), counted.clone()));
    let gradients: Vec<usize> =
        layout.parts[..layout.trainable].iter().map(super::layout::Part::elements).collect();
    let movement = Arc::new(Overlap::default());
    let mut engine = Engine::new(store, vec![layout; 6], size, movement, Device::flex(), "blocks");
    forward(&mut engine, 6);
    for block in (0..6).rev() {
        engine.enter(block, Pass::Backward);
        let of = |elements: &usize| Tensor::<1>::ones([*elements], &Device::flex()).into_dispatch();
        engine.take_gradients(block, gradients.iter().map(of).collect());
        engine.leave(block);
    }
    *counted.lock().unwrap()
}

/// Frozen weights are copied in and never out.
#[test]
fn frozen_blocks_are_only_copied_in() {
    let ([full_in, full_out], [frozen_in, frozen_out]) = (crossed(true), crossed(false));
    // Six blocks in forward, and in backward the three that left their slots; parameters begin at 128 elements.
    assert_eq!((full_in, frozen_in), (9 * (1024 + 3), 9 * (128 + 1000)));
    assert_eq!((full_out, frozen_out), (6 * (1024 + 3), 6 * 3));
}

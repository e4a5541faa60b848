//! The order of copies in forward and backward, by strategy.

use super::*;

/// The calls of forward and backward over `count` blocks.
fn recorded(strategy: Strategy, count: usize) -> Vec<Act> {
    let acts = Arc::new(Mutex::new(Vec::new()));
    let mut engine = engine(&acts, placed(Offload::of(strategy)), count);
    forward(&mut engine, count);
    for block in (0..count).rev() {
        engine.enter(block, Pass::Backward);
        engine.leave(block);
    }
    let acts = acts.lock().unwrap();
    acts.clone()
}

/// Whenever a block is read, the last fill of its slot was its own, and no slot is refilled between the
/// moment a block's copy was issued and the end of the block's turn.
#[test]
fn a_slot_is_never_refilled_before_its_block_was_computed() {
    for buffers in 1..=4 {
        let count = 6;
        let acts = recorded(Strategy::Overlap(Overlap { buffers }), count);
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
    let acts = recorded(Strategy::Overlap(Overlap { buffers: 3 }), 5);
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

/// Forward after forward of five blocks: the first of the next one are copied behind the last. Blocks with a slot each
/// stay.
#[test]
fn the_next_forward_is_copied_ahead_too() {
    for (buffers, resident, expected) in
        [(1, 0, [6, 7, 8, 9, 10]), (3, 0, [8, 9, 10, 11, 12]), (4, 0, [9, 10, 11, 12, 13]), (4, 1, [4; 5])]
    {
        let acts = Arc::new(Mutex::new(Vec::new()));
        let offload = Offload {
            resident_blocks: ResidentBlocks::Count(resident),
            ..Offload::of(Strategy::Overlap(Overlap { buffers }))
        };
        let mut engine = engine(&acts, placed(offload), 5);
        let mut fills_when_read = Vec::new();
        for block in (0..5).chain(0..5) {
            engine.enter(block, Pass::Inference);
            engine.leave(block);
            let fills = acts.lock().unwrap().iter().filter(|act| matches!(act, Act::Fill { .. })).count();
            fills_when_read.push(fills);
        }
        assert_eq!(fills_when_read[5..], expected, "{buffers} slots, {resident} resident blocks");
    }
}

/// A replayed pass copies what the recorded one did, and so begins with the same blocks in the same slots.
#[test]
fn a_recorded_pass_ends_where_the_next_one_begins() {
    for (buffers, count) in [(1, 5), (2, 5), (3, 6), (4, 6), (4, 3)] {
        let acts = Arc::new(Mutex::new(Vec::new()));
        let offload = Offload::of(Strategy::Overlap(Overlap { buffers }));
        let mut engine = engine(&acts, placed(offload), count);
        let pass = |engine: &mut Engine| {
            acts.lock().unwrap().clear();
            forward(engine, count);
            for block in (0..count).rev() {
                engine.enter(block, Pass::Backward);
                engine.leave(block);
            }
            acts.lock().unwrap().clone()
        };
        pass(&mut engine);
        let start = engine.slot_state();
        let first = pass(&mut engine);
        assert_eq!(engine.slot_state().held, start.held, "{buffers} slots, {count} blocks");
        // Something else in between, as an evaluation.
        forward(&mut engine, count);
        acts.lock().unwrap().clear();
        engine.return_to(&start);
        let fills = acts.lock().unwrap().iter().filter(|act| matches!(act, Act::Fill { .. })).count();
        assert_eq!(fills, buffers.min(count.saturating_sub(buffers)), "{buffers} slots, {count} blocks");
        assert_eq!(pass(&mut engine), first, "{buffers} slots, {count} blocks");
        // Empty slots are what it was begun with, too.
        let empty = SlotState { held: vec![None; start.held.len()], ..start.clone() };
        engine.return_to(&empty);
        assert_eq!(engine.slot_state().held, empty.held);
        engine.join(&start);
        assert_eq!(engine.slot_state().held, start.held, "where the graph has left them");
    }
}

#[test]
fn without_overlap_a_block_is_in_its_slot_during_its_turn_alone() {
    for (acts, waits) in [
        (recorded(Strategy::Naive(Naive {}), 3), true),
        (recorded(Strategy::Checkpointed(Checkpointed {}), 3), true),
        (recorded(Strategy::Function(Function {}), 3), false),
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

/// Six blocks, of which each has a weight of 1000 elements, trained or frozen, and a trained bias; and the elements that
/// come to the device and leave it.
fn six_blocks(strategy: Strategy, trained: bool) -> (Engine, Arc<Mutex<[usize; 2]>>) {
    let entry = |name: &str, elements, trainable| Entry {
        name: format!("blocks.0.{name}"),
        shape: vec![elements],
        dtype: DType::F32,
        trainable,
        group: Group::Block(0),
        packed: false,
        split: None,
    };
    let layout = Layout::of(&[entry("weight", 1000, trained), entry("bias", 3, true)], "blocks.0.");
    let offload = Offload::of(strategy);
    let placement = placed(offload);
    let resident = offload.resident_blocks.places(6);
    let slots = Slots::new(&resident, offload.buffers(), false, true);
    let size = StoreSize {
        buffers: resident.iter().map(|stays| placement.buffers(*stays, true)).collect(),
        elements: layout.elements,
        trainable: layout.trainable_elements(),
        dtype: DType::F32,
        slots: slots.weights(),
        gradient_slots: slots.gradients(),
    };
    let counted = Arc::new(Mutex::new([0; 2]));
    let store = Box::new(Recorder(Arc::default(), counted.clone()));
    let movement = strategy.movement().expect("blocks move");
    let engine = Engine::new(
        store,
        vec![layout.into(); 6],
        (size, slots),
        movement,
        Device::flex(),
        BlockNames::new([("blocks", 6)]),
    );
    (engine, counted)
}

/// Forward and backward, with gradients of ones.
fn both_passes(engine: &mut Engine) {
    forward(engine, 6);
    for block in (0..6).rev() {
        engine.enter(block, Pass::Backward);
        let layout = engine.layout(block).clone();
        let trained = layout.parts[..layout.trainable].iter();
        let ones = trained.map(|part| Tensor::<1>::ones([part.elements()], &Device::flex()).into_dispatch());
        engine.take_gradients(block, ones.collect());
        engine.leave(block);
    }
}

/// Frozen weights are copied in and never out.
#[test]
fn frozen_blocks_are_only_copied_in() {
    let crossed = |trained| {
        let (mut engine, counted) = six_blocks(overlap().strategy, trained);
        both_passes(&mut engine);
        *counted.lock().unwrap()
    };
    let ([full_in, full_out], [frozen_in, frozen_out]) = (crossed(true), crossed(false));
    // Six blocks in forward, and in backward the three that left their slots; parameters begin at 128 elements.
    assert_eq!((full_in, frozen_in), (9 * (1024 + 3), 9 * (128 + 1000)));
    assert_eq!((full_out, frozen_out), (6 * (1024 + 3), 6 * 3));
}

/// An update on the device brings trained weights with their gradients, and takes the weights back. Blocks that are frozen
/// in part stay in the slots where backward left them; those that are trained as a whole come again.
#[test]
fn an_update_moves_trained_parameters_alone() {
    for strategy in Strategy::all().filter(|strategy| strategy.movement().is_some()) {
        for (trained, updated) in [(true, 1024 + 3), (false, 3)] {
            let (mut engine, counted) = six_blocks(strategy, trained);
            let config = OptimizerConfig::AdamW(AdamW::default());
            engine.begin(&config, &Optimizer::new(&config, None));
            both_passes(&mut engine);
            let take = || std::mem::take(&mut *counted.lock().unwrap());
            take();
            engine.update(&StepSize::FULL);
            engine.finish();
            assert_eq!(take(), [6 * 2 * updated, 6 * updated], "{strategy:?} {trained}");
            forward(&mut engine, 6);
            let (whole, ahead) = (engine.layout(0).elements, matches!(strategy, Strategy::Overlap(_)));
            let held = if ahead && !trained { 3 } else { 0 };
            assert_eq!(take(), [(6 - held) * whole, 0], "{strategy:?} {trained}");
        }
    }
}

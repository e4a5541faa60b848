//! The order of copies in forward and backward, by strategy.

use super::*;

/// What forward and backward over `count` blocks ask of the store.
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

//! Blocks that stay on the device: what is copied for them, and what is not.

use super::*;

/// Overlap with three slots, and so many blocks resident.
fn with(resident: usize) -> Offload {
    Offload { resident_blocks: ResidentBlocks::Count(resident), ..overlap() }
}

/// Forward and backward over `count` blocks, with gradients.
fn micro_batch(engine: &mut Engine, count: usize, last: Option<Work>) {
    forward(engine, count);
    last.into_iter().for_each(|work| engine.update_on_arrival(work));
    for block in (0..count).rev() {
        engine.enter(block, Pass::Backward);
        let gradient = || Tensor::<1>::ones([3], &Device::flex()).into_dispatch();
        engine.take_gradients(block, vec![gradient(), gradient()]);
        engine.leave(block);
    }
}

/// The calls of the second of two steps of so many micro-batches.
fn second_step(placement: Placement, count: usize, micro_batches: usize) -> Vec<Act> {
    let acts = Arc::new(Mutex::new(Vec::new()));
    let mut engine = engine(&acts, placement, count);
    let config = OptimizerConfig::AdamW(AdamW::default());
    let on_host = placement.offload.optimizer == Memory::Host;
    let host = on_host.then_some((DeviceId::Cpu, Room::Memory));
    engine.begin(&config, &Optimizer::new(&config, host));
    for _ in 0..2 {
        acts.lock().unwrap().clear();
        for micro_batch_number in 1..=micro_batches {
            let last = on_host && micro_batch_number == micro_batches;
            micro_batch(&mut engine, count, last.then_some(Work::Step(HostStep::FULL)));
        }
        engine.update(&StepSize::FULL);
        engine.finish();
    }
    let acts = acts.lock().unwrap();
    acts.clone()
}

/// Fills and sends of one block.
fn crossings(acts: &[Act], of: usize) -> [usize; 2] {
    let count = |is: fn(&Act) -> Option<usize>| acts.iter().filter(|act| is(act) == Some(of)).count();
    [
        count(|act| if let Act::Fill { block, .. } = act { Some(*block) } else { None }),
        count(|act| if let Act::Send { block, .. } = act { Some(*block) } else { None }),
    ]
}

#[test]
fn resident_blocks_that_are_updated_on_the_device_are_not_copied() {
    for strategy in Strategy::all().filter(|strategy| *strategy != Strategy::default()) {
        for micro_batches in [1, 3] {
            let resident_blocks = ResidentBlocks::Count(2);
            let placement = Placement {
                accumulates: micro_batches > 1,
                ..placed(Offload { resident_blocks, ..Offload::of(strategy) })
            };
            let acts = second_step(placement, 6, micro_batches);
            // Of six blocks the first and the fourth.
            for block in [0, 3] {
                assert_eq!(crossings(&acts, block), [0, 0], "{strategy:?} {block}: {acts:?}");
            }
            // Gradients of each micro-batch, and the new weights.
            for block in [1, 2, 4, 5] {
                assert_eq!(crossings(&acts, block)[1], micro_batches + 1, "{strategy:?} {block}: {acts:?}");
            }
        }
    }
}

/// A resident block's gradients are added up where they are and cross once, and its weights once.
#[test]
fn resident_blocks_that_are_updated_on_the_host_cross_once() {
    for micro_batches in [1, 3] {
        let placement = Placement {
            accumulates: micro_batches > 1,
            ..placed(Offload { optimizer: Memory::Host, ..with(2) })
        };
        let acts = second_step(placement, 6, micro_batches);
        for block in [0, 3] {
            assert_eq!(crossings(&acts, block), [1, 1], "{block}: {acts:?}");
            let sent = place(&acts, &Act::Send { side: Side::Gradients, block });
            assert_eq!(acts[sent + 1], Act::Lend { side: Side::Gradients, block }, "{acts:?}");
        }
    }
}

/// A clipped update waits for the norm, and the gradients of resident blocks with it.
#[test]
fn gradients_that_wait_for_the_norm_cross_then() {
    let acts = Arc::new(Mutex::new(Vec::new()));
    let placement = placed(Offload { optimizer: Memory::Host, ..with(2) });
    let mut engine = engine(&acts, placement, 4);
    let config = OptimizerConfig::AdamW(AdamW::default());
    engine.begin(&config, &Optimizer::new(&config, Some((DeviceId::Cpu, Room::Memory))));
    engine.want_squares(true);
    micro_batch(&mut engine, 4, None);
    assert_eq!(crossings(&acts.lock().unwrap(), 0)[1], 0);
    assert_eq!(engine.squares().unwrap().into_scalar::<f32>(), 4.0 * 6.0);
    engine.update(&StepSize::FULL);
    let acts = acts.lock().unwrap();
    assert_eq!(crossings(&acts, 0)[1], 1);
    let lent: Vec<_> = acts
        .iter()
        .filter_map(|act| match act {
            Act::Lend { side: Side::Gradients, block } => Some(*block),
            _ => None,
        })
        .collect();
    assert_eq!(lent, [3, 2, 1, 0]);
}

/// Whatever is resident, a slot is never refilled between the copy of a block and the end of its turn, and only
/// what forward left in the slots is not copied again.
#[test]
fn the_others_move_as_if_they_were_all() {
    let count = 6;
    for resident in 0..=count {
        let acts = Arc::new(Mutex::new(Vec::new()));
        let mut engine = engine(&acts, placed(with(resident)), count);
        forward(&mut engine, count);
        for block in (0..count).rev() {
            engine.enter(block, Pass::Backward);
            engine.leave(block);
        }
        let acts = acts.lock().unwrap();
        let moving = count - resident;
        let (mut waiting, mut fills) = (vec![false; count], 0);
        for act in acts.iter() {
            match *act {
                Act::Fill { slot, .. } => {
                    assert!(!std::mem::replace(&mut waiting[slot], true), "{resident}: {acts:?}");
                    fills += 1;
                }
                Act::Used(slot) => waiting[slot] = false,
                _ => {}
            }
        }
        assert_eq!(fills, 2 * moving - moving.min(3), "{resident}: {acts:?}");
    }
}

/// While a resident block is computed, all slots are for those that come.
#[test]
fn all_slots_are_filled_behind_a_resident_block() {
    let acts = Arc::new(Mutex::new(Vec::new()));
    let mut engine = engine(&acts, placed(with(1)), 6);
    engine.enter(0, Pass::Forward);
    let fills: Vec<Act> = (1..=3).map(|block| Act::Fill { slot: 3 - block, block }).collect();
    assert_eq!(acts.lock().unwrap()[..3], fills);
}

//! The order of copies where the optimizer runs on the host.

use super::*;

/// The calls of a step with AdamW on the host and of the next forward.
fn recorded_on_the_host(count: usize, update_on_arrival: bool, separate_gradients: bool) -> Vec<Act> {
    recorded(count, (update_on_arrival, separate_gradients), &StepSize::FULL)
}

fn recorded(
    count: usize,
    (update_on_arrival, separate_gradients): (bool, bool),
    size: &StepSize,
) -> Vec<Act> {
    let acts = Arc::new(Mutex::new(Vec::new()));
    let offload = Offload { optimizer: Memory::Host, ..overlap() };
    let placement = Placement { accumulates: separate_gradients, ..placed(offload) };
    let mut engine = engine(&acts, placement, count);
    let config = OptimizerConfig::AdamW(AdamW::default());
    engine.begin(&config, &Optimizer::new(&config, Some((DeviceId::Cpu, Room::Memory))));
    forward(&mut engine, count);
    if update_on_arrival {
        engine.update_on_arrival(Work::Step(HostStep::FULL));
    }
    for block in (0..count).rev() {
        engine.enter(block, Pass::Backward);
        let gradient = || Tensor::<1>::ones([3], &Device::flex()).into_dispatch();
        engine.take_gradients(block, vec![gradient(), gradient()]);
        engine.leave(block);
    }
    engine.update(size);
    forward(&mut engine, count);
    let acts = acts.lock().unwrap();
    acts.clone()
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

/// A step that is not applied: each block's buffer goes to the optimizer for its weights, which gradients have replaced, and
/// no slot is stale.
#[test]
fn a_skipped_step_brings_weights_back() {
    let count = 6;
    for (separate, lent) in [(false, count), (true, 0)] {
        let acts = recorded(count, (false, separate), &StepSize { applied: number(0.0), ..StepSize::FULL });
        let behind = place(&acts, &Act::Send { side: Side::Gradients, block: 0 });
        let lends = |act: &&Act| matches!(act, Act::Lend { side: Side::Gradients, .. });
        assert_eq!(acts[behind..].iter().filter(lends).count(), lent, "{acts:?}");
        // Three blocks are still in their slots.
        let fills = acts[behind..].iter().filter(|act| matches!(act, Act::Fill { .. })).count();
        assert_eq!(fills, count - 3, "{acts:?}");
        let applied = StepSize { applied: number(1.0), ..StepSize::FULL };
        assert_eq!(
            recorded(count, (false, separate), &applied),
            recorded_on_the_host(count, false, separate)
        );
    }
}

fn number(value: f32) -> Option<Tensor<1>> {
    Some(Tensor::from_floats([value], &Device::flex()))
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

//! Costs of what is made of several operators, by hand.

use super::*;
use crate::common::{Compute, DeviceId};
use crate::ops::testing::operator_cost;
use crate::ops::{Level, Ops};

/// An operator with gradients of 7 bytes.
fn operator() -> Cost {
    Cost { gradients: 7, ..operator_cost() }
}

fn moments(cost: Cost) -> [u64; 4] {
    [cost.kept, cost.forward.total(), cost.passing.total(), cost.backward.total()]
}

#[test]
fn a_sequence_by_hand() {
    let two = Cost::sequence(&[operator(), operator()]);
    // Kept: 100 twice and the second one's input. Forward: the first one's 100, the second one's input and
    // 130. Nothing kept: that input and 130. Backward: 100 of the first, the second one's input and 150.
    assert_eq!(moments(two), [210, 240, 140, 260]);
    assert_eq!((two.gradients, two.input, two.output), (14, 10, 10));
    // The first one's backward is higher: 7 bytes of gradients, 10 of g in the place of the whole's, 450.
    let steep = Cost { backward: Moment::workspace(450), ..operator() };
    assert_eq!(Cost::sequence(&[steep, operator()]).backward.total(), 457);
}

#[test]
fn an_input_that_nobody_holds_is_free_for_the_next_operator() {
    let loose = Cost { holds_input: false, ..operator() };
    // 240 less the 10 of the whole's input, which the caller counts.
    assert_eq!(moments(Cost::sequence(&[loose, operator()])), [210, 230, 130, 260]);
    assert_eq!(moments(Cost::sequence(&[operator(), loose])), [200, 240, 140, 250]);
}

#[test]
fn a_residual_by_hand() {
    let of = |part: Cost| moments(Cost::residual(&[part], false));
    // After f: 100 kept, f(x) and the sum. Where the last product adds x, its result is the sum.
    let small = Cost { forward: Moment::workspace(110), ..operator() };
    assert_eq!((of(small)[1], moments(Cost::residual(&[small], true))[1]), (120, 110));
    assert_eq!(of(operator()), [100, 130, 130, 150]);
    // f(x) in half the bytes: its gradient is a cast of 5 bytes.
    assert_eq!(of(Cost { output: 5, ..operator() })[3], 155);
    // g stays while the first of two operators has its turn: 7 + 10 + 450.
    let steep = Cost { backward: Moment::workspace(450), ..operator() };
    assert_eq!(Cost::residual(&[steep, operator()], false).backward.total(), 467);
}

#[test]
fn a_fan_by_hand() {
    let fan = Cost::fan(&[operator(), operator(), operator()]);
    // Forward: 200 kept, two results, 130. Nothing kept: two results and 130. Backward begins with the last:
    // 200 of the others and 150; the input is there already.
    assert_eq!(moments(fan), [300, 350, 150, 350]);
    assert_eq!((fan.input, fan.output, fan.gradients), (10, 30, 21));
}

#[test]
fn branches_by_hand() {
    let both = Cost::branches(&[&[operator()], &[operator()]]);
    // Forward: 100 kept, the first one's result, 130. Nothing kept: that result and 130. Backward begins with the last:
    // 100 of the first and 150.
    assert_eq!(moments(both), [200, 240, 140, 250]);
    assert_eq!((both.input, both.output, both.gradients), (10, 10, 14));
    // The first one's backward is higher: 7 bytes of gradients, dx, 450.
    let steep = Cost { backward: Moment::workspace(450), ..operator() };
    assert_eq!(Cost::branches(&[&[steep], &[operator()]]).backward.total(), 467);
}

#[test]
fn what_is_kept_is_that_of_operators() {
    let setting = setting(Compute::Fp32, false);
    let of = |name| operator().named(name, &setting);
    let two = Cost::sequence(&[of(OperatorName::Norm), of(OperatorName::Linear)]);
    // The second one holds what the first one made.
    let kept: Vec<_> = two.kept_by.iter().collect();
    assert_eq!(kept, [(Some(OperatorName::Norm), 100), (Some(OperatorName::Linear), 110)]);
    assert_eq!(two.backward.by.total(), two.backward.kept);
    // Of two segments the second one's input waits, for nobody in particular.
    let segments = Cost::sequence(&[two.recomputed(), two.recomputed()]);
    assert_eq!(segments.kept_by.iter().collect::<Vec<_>>(), [(None, 10)]);
}

#[test]
fn what_is_computed_again_keeps_its_input_alone() {
    let two = Cost::sequence(&[operator(), operator()]).recomputed();
    assert!(two.holds_input);
    assert_eq!(moments(two), [0, 140, 140, 260]);
    let flops = Flops { forward: 3.0, backward: 6.0, recompute: 1.0 };
    assert_eq!(Cost { flops, ..operator() }.recomputed().flops.recompute, 4.0);
}

fn setting(compute: Compute, keeps_casts: bool) -> Setting {
    Setting {
        device: DeviceId::Cpu,
        capability: None,
        batch: 1,
        sequence: 1,
        squares: 1.0,
        compute,
        stored: 4,
        keeps_casts,
        ops: Ops::default(),
        level: Level::Keep,
        ample: true,
        trained: Trained::ALL,
        packs: false,
        tensor: 1,
    }
}

/// A product of x with 50 bytes of weights, its work as that of a linear layer, in fp32 or under autocast to bf16.
fn work(compute: Compute, keeps_casts: bool) -> Passes {
    let setting = setting(compute, keeps_casts);
    let flops = Flops { forward: 3.0, backward: 6.0, recompute: 1.0 };
    let casts = if keeps_casts { 25 } else { 0 };
    Cost { flops, weights: 50, casts, ..operator() }.named(OperatorName::Linear, &setting).works
        [OperatorName::Linear]
}

#[test]
fn the_work_of_an_operator_by_hand() {
    let bytes = |of: Passes| [of.forward, of.passing, of.backward].map(|work| work.bytes);
    // x, y and the weights, and what is kept; g, x, dx, what was kept, the weights and their gradients of 7.
    assert_eq!(bytes(work(Compute::Fp32, false)), [170.0, 70.0, 10.0 + 10.0 + 10.0 + 100.0 + 50.0 + 7.0]);
    // Backward reads the cast that is among what is kept; or the one that all micro-batches share.
    assert_eq!(bytes(work(Compute::Bf16, false)), [170.0, 70.0, 137.0]);
    assert_eq!(bytes(work(Compute::Bf16, true)), [145.0, 45.0, 162.0]);
    let operations = |of: Passes| [of.forward, of.passing, of.backward].map(|work| work.operations);
    assert_eq!(operations(work(Compute::Fp32, false)), [3.0, 3.0, 7.0]);
    // Rows of a table of 50 bytes: as many are read as are given, and backward reads none.
    let rows = Cost { input: 0, weights: 50, holds_input: false, kept: 0, ..operator() };
    let rows =
        rows.named(OperatorName::Embedding, &setting(Compute::Fp32, false)).works[OperatorName::Embedding];
    assert_eq!(bytes(rows), [20.0, 20.0, 17.0]);
}

#[test]
fn the_works_of_parts_add_up() {
    let of = |name| Works::new(name, work(Compute::Fp32, false));
    let (linear, norm) = (of(OperatorName::Linear), of(OperatorName::Norm));
    let part = |works| Cost { works, ..operator() };
    let two = Cost::sequence(&[part(linear), part(norm), part(linear)]);
    assert_eq!(two.works[OperatorName::Linear].backward.operations, 14.0);
    assert_eq!(two.works[OperatorName::Norm].forward.bytes, 170.0);
    // Forward keeps nothing; backward is both passes.
    let again = two.recomputed().works[OperatorName::Linear];
    assert_eq!((again.forward.bytes, again.backward.bytes), (140.0, 2.0 * (170.0 + 187.0)));
    assert_eq!(again.backward.operations, 20.0);
    // x + f(x) reads both and writes x; where their types differ the gradient is cast.
    let sum = |output| Cost::residual(&[Cost { output, ..operator() }], false).works[OperatorName::Residual];
    assert_eq!((sum(10).forward.bytes, sum(10).backward.bytes), (30.0, 0.0));
    assert_eq!((sum(5).forward.bytes, sum(5).backward.bytes), (25.0, 15.0));
}

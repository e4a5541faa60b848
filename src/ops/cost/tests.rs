//! Costs of what is made of several operators, by hand.

use super::*;
use crate::ops::testing::operator_cost;

/// With gradients of 7 bytes.
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
    let of = |part: Cost| moments(Cost::residual(&[part]));
    // After f: 100 kept, f(x) and the sum.
    assert_eq!(of(Cost { forward: Moment::workspace(110), ..operator() })[1], 120);
    assert_eq!(of(operator()), [100, 130, 130, 150]);
    // f(x) in half the bytes: its gradient is a cast of 5 bytes.
    assert_eq!(of(Cost { output: 5, ..operator() })[3], 155);
    // g stays while the first of two operators has its turn: 7 + 10 + 450.
    let steep = Cost { backward: Moment::workspace(450), ..operator() };
    assert_eq!(Cost::residual(&[steep, operator()]).backward.total(), 467);
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
fn what_is_computed_again_keeps_its_input_alone() {
    let two = Cost::sequence(&[operator(), operator()]).recomputed();
    assert!(two.holds_input);
    assert_eq!(moments(two), [0, 140, 140, 260]);
    let flops = Flops { forward: 3.0, backward: 6.0, recompute: 1.0 };
    assert_eq!(Cost { flops, ..operator() }.recomputed().flops.recompute, 4.0);
}

//! What a gated MLP costs; the walks follow `formula.rs` line by line. With A = tokens · intermediate_size
//! elements in the compute type:
//!
//! | level | kept besides x and casts of the weights |
//! |---|---|
//! | 0   | a, s, b: 3 A |
//! | 0.5 | a, b: 2 A |
//! | 1   | nothing |
//! | plain | what Burn's autodiff keeps of the activation, and s, b, h: one for each of Burn's operators that needs it |
//!
//! x is kept for the gradients of W and V, and to compute a and b again: not where these are frozen at levels 0 and 0.5.

use crate::ops::activation::{self, Activation};
use crate::ops::cost::{Cost, Flops, Moment, Setting, Tensors};
use crate::ops::dense::WeightLayout;
use crate::ops::name::OperatorName;
use crate::ops::{Level, Operator};

/// x [tokens, hidden] through matrices [hidden, inner], [hidden, inner] and [inner, hidden].
pub fn cost(
    setting: &Setting,
    activation: Activation,
    [hidden, inner]: [u64; 2],
    layout: WeightLayout,
) -> Cost {
    let [up, down] =
        [layout.shape(hidden, inner), layout.shape(inner, hidden)].map(|shape| setting.weight(shape));
    let (x, a) = (setting.activation(hidden), setting.activation(inner));
    let casts = 2 * up.cast + down.cast;
    let plain = setting.ops.swiglu == Operator::Plain;
    // What is kept, and what is there at once with h in forward.
    let (kept, live) = match setting.level {
        _ if plain => [kept_by_burn(setting, activation, inner) + 3 * a; 2].into(),
        Level::Keep => (3 * a, 4 * a),
        Level::Elementwise => (2 * a, 3 * a),
        Level::Full => (0, a),
    };
    let tokens = setting.tokens();
    let [out_x, out_a] = [hidden, inner].map(|columns| tokens * columns);
    let product = |lhs, rhs, out| setting.product(lhs, rhs, out, false);
    // The product that makes a or b, that from h to y, and a weight's gradient.
    let to_a = product(out_x, up.elements, out_a);
    let to_x = product(out_a, up.elements, out_x);
    let to_weight = setting.product(out_x, out_a, up.elements, setting.stored > setting.element());
    let forward = |live: u64| {
        Moment::highest([2 * a + to_a, live + x + to_x].map(|bytes| Moment::workspace(casts + bytes)))
    };
    // Without a backward the operator keeps nothing, whatever the level.
    let passing = forward(if plain { live } else { a });

    // a, b and s where they are kept, or a and b again, and dh; a, b and dh become da, db and h in place.
    let first = match (plain, setting.level) {
        (true, _) => kept + a,
        (_, Level::Keep) => 4 * a,
        (_, Level::Elementwise | Level::Full) => 3 * a,
    };
    let trained = setting.trained.weights;
    let gradient = if trained { down.gradient } else { 0 };
    let to_weight = if trained { to_weight } else { 0 };
    let moment = |weights, workspace| Moment::gradients(weights * gradient) + Moment::workspace(workspace);
    let backward = [
        moment(0, first + to_a + casts),
        moment(1, 3 * a + to_weight + 2 * up.cast),
        moment(2, 2 * a + to_weight + 2 * up.cast),
        moment(2, 2 * a + x + to_x + 2 * up.cast),
        moment(3, a + x + to_weight.max(to_x) + up.cast),
    ];
    let weights = 2 * up.bytes + down.bytes;
    let forward_flops = 2.0 * tokens as f64 * (3 * up.elements) as f64;
    let recompute = if setting.level == Level::Full { forward_flops * 2.0 / 3.0 } else { 0.0 };
    let flops = if trained { Flops::of_products(forward_flops) } else { Flops::of_frozen(forward_flops) };
    Cost {
        input: x,
        output: x,
        holds_input: trained || plain || setting.level == Level::Full,
        kept: kept + casts,
        parameters: 3 * up.elements,
        trained: Tensors::matrices(if trained { 3 } else { 0 }, [inner, hidden]),
        largest: if trained { up.elements } else { 0 },
        weights,
        gradients: 3 * gradient,
        casts: 2 * up.kept_cast + down.kept_cast,
        flops: Flops { recompute, ..flops },
        // Three products and the gate; in backward three more where weights are trained, and two again at level 1.
        launches: [
            if plain { 6 } else { 4 },
            if plain { 8 } else { 4 } + if trained { 3 } else { 0 } + if recompute > 0.0 { 2 } else { 0 },
        ],
        passing,
        ..Cost::new(forward(live), Moment::highest(backward))
    }
    .named(OperatorName::Swiglu, setting)
}

/// What Burn's autodiff keeps of the activation; all but SiLU are computed in fp32.
fn kept_by_burn(setting: &Setting, activation: Activation, inner: u64) -> u64 {
    let size = if activation == Activation::Silu { setting.activation(inner) } else { setting.wide(inner) };
    activation::kept_by_burn(activation) * size
}

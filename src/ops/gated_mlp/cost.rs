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
use crate::ops::cost::{Cost, Flops, Moment, Setting, Tensors, WeightCost};
use crate::ops::dense::WeightLayout;
use crate::ops::name::OperatorName;
use crate::ops::{Level, Operator};

/// x [tokens, hidden] through matrices [hidden, inner], [hidden, inner] and [inner, hidden].
pub fn cost(setting: &Setting, activation: Activation, sizes: [u64; 2], layout: WeightLayout) -> Cost {
    let bytes = Bytes::new(setting, sizes, layout);
    let Bytes { x, a, up, down, casts, .. } = bytes;
    let plain = setting.ops.swiglu == Operator::Plain;
    // What is kept, what is there at once with h in forward, and in backward before the first product: a, b and s where they
    // are kept, or a and b again, and dh.
    let [kept, live, first] = match setting.level {
        _ if plain => {
            let kept = kept_by_burn(setting, activation, sizes[1]) + 3 * a;
            [kept, kept, kept + a]
        }
        Level::Keep => [3 * a, 4 * a, 4 * a],
        Level::Elementwise => [2 * a, 3 * a, 3 * a],
        Level::Full => [0, a, 3 * a],
    };
    // Without a backward the operator keeps nothing, whatever the level.
    let passing = bytes.forward(if plain { live } else { a });
    let trained = setting.trained.weights;
    let gradient = if trained { down.gradient } else { 0 };
    let forward_flops = 2.0 * setting.tokens() as f64 * (3 * up.elements) as f64;
    let recompute = if setting.level == Level::Full { forward_flops * 2.0 / 3.0 } else { 0.0 };
    let flops = if trained { Flops::of_products(forward_flops) } else { Flops::of_frozen(forward_flops) };
    Cost {
        input: x,
        output: x,
        holds_input: trained || plain || setting.level == Level::Full,
        kept: kept + casts,
        parameters: 3 * up.elements,
        trained: Tensors::matrices(if trained { 3 } else { 0 }, [sizes[1], sizes[0]]),
        largest: if trained { up.elements } else { 0 },
        weights: 2 * up.bytes + down.bytes,
        gradients: 3 * gradient,
        casts: 2 * up.kept_cast + down.kept_cast,
        flops: Flops { recompute, ..flops },
        // Three products and the gate; in backward three more where weights are trained, and two again at level 1.
        launches: [
            if plain { 6 } else { 4 },
            if plain { 8 } else { 4 } + if trained { 3 } else { 0 } + if recompute > 0.0 { 2 } else { 0 },
        ],
        passing,
        ..Cost::new(bytes.forward(live), bytes.backward(first, gradient))
    }
    .named(OperatorName::Swiglu, setting)
}

/// Bytes of tensors, and of what products need beside their operands and results.
struct Bytes {
    x: u64,
    /// Of a, and of each tensor of its size.
    a: u64,
    up: WeightCost,
    down: WeightCost,
    casts: u64,
    /// Of the product that makes a or b, of that from h to y, and of a weight's gradient, where it is trained.
    to_a: u64,
    to_x: u64,
    to_weight: u64,
}

impl Bytes {
    fn new(setting: &Setting, [hidden, inner]: [u64; 2], layout: WeightLayout) -> Self {
        let [up, down] =
            [layout.shape(hidden, inner), layout.shape(inner, hidden)].map(|shape| setting.weight(shape));
        let [out_x, out_a] = [hidden, inner].map(|columns| setting.tokens() * columns);
        let product = |lhs, rhs, out| setting.product(lhs, rhs, out, false);
        let to_weight = setting.product(out_x, out_a, up.elements, setting.stored > setting.element());
        Self {
            x: setting.activation(hidden),
            a: setting.activation(inner),
            casts: 2 * up.cast + down.cast,
            to_a: product(out_x, up.elements, out_a),
            to_x: product(out_a, up.elements, out_x),
            to_weight: if setting.trained.weights { to_weight } else { 0 },
            up,
            down,
        }
    }

    /// With so many bytes `live` beside y.
    fn forward(&self, live: u64) -> Moment {
        let Self { x, a, casts, to_a, to_x, .. } = self;
        Moment::highest([2 * a + to_a, live + x + to_x].map(|bytes| Moment::workspace(casts + bytes)))
    }

    /// With so many bytes before the `first` product, after which a, b and dh become da, db and h in place.
    fn backward(&self, first: u64, gradient: u64) -> Moment {
        let Self { x, a, casts, to_a, to_x, to_weight, up, .. } = self;
        let moment = |weights, bytes| Moment::gradients(weights * gradient) + Moment::workspace(bytes);
        Moment::highest([
            moment(0, first + to_a + casts),
            moment(1, 3 * a + to_weight + 2 * up.cast),
            moment(2, 2 * a + to_weight + 2 * up.cast),
            moment(2, 2 * a + x + to_x + 2 * up.cast),
            moment(3, a + x + to_weight.max(to_x) + up.cast),
        ])
    }
}

/// What Burn's autodiff keeps of the activation; all but SiLU are computed in fp32.
fn kept_by_burn(setting: &Setting, activation: Activation, inner: u64) -> u64 {
    let size = if activation == Activation::Silu { setting.activation(inner) } else { setting.wide(inner) };
    activation::kept_by_burn(activation) * size
}

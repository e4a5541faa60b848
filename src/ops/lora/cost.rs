//! What a linear layer with a low-rank adapter costs.

use super::many_tokens::are_many;
use super::side_by_side::has_kernels;
use crate::ops::cost::{Cost, Flops, Moment, Setting, Tensors, WeightCost};
use crate::ops::dense::WeightLayout;
use crate::ops::name::OperatorName;

/// The adapter has this rank, and its input dropout where `dropout` says so. The walks follow the operator line by line.
pub fn cost(
    setting: &Setting,
    [inputs, outputs]: [u64; 2],
    bias: bool,
    layout: WeightLayout,
    rank: u64,
    dropout: bool,
) -> Cost {
    let walk = Walk::new(setting, [inputs, outputs], layout, rank, dropout);
    let Walk { weight, a, b, tokens, bytes: [x, y, h], casts, .. } = walk;
    let bias = if bias { outputs } else { 0 };
    let parameters = a.elements + b.elements;
    let products = |elements: u64| 2.0 * tokens as f64 * elements as f64;
    // The weight's product each way, and those with A and B; what is in codes is unpacked first, and x dropped, each way.
    let unpacks = u32::from(weight.unpacked > 0);
    let draws_in_place = walk.draws_in_place;
    // Kernels scale what they multiply.
    let scales = |columns: u64| {
        u32::from(!draws_in_place || are_many(tokens as usize, columns as usize, rank as usize))
    };
    let [forward_launches, backward_launches] = [3 + scales(inputs), 5 + scales(outputs)];
    let again = unpacks + u32::from(dropout && !draws_in_place);
    Cost {
        input: x,
        output: y,
        holds_input: true,
        kept: casts + h,
        parameters: weight.elements + bias + parameters,
        trained: Tensors::matrices(1, [rank, inputs]) + Tensors::matrices(1, [outputs, rank]),
        largest: a.elements.max(b.elements),
        weights: weight.bytes + bias * setting.stored + a.bytes + b.bytes,
        gradients: a.gradient + b.gradient,
        casts: weight.kept_cast + a.kept_cast + b.kept_cast,
        flops: Flops::of_frozen(products(weight.elements)) + Flops::of_products(products(parameters)),
        launches: [forward_launches + again, backward_launches + again],
        ..Cost::new(Moment::highest(walk.forward().map(Moment::workspace)), Moment::highest(walk.backward()))
    }
    .named(OperatorName::Linear, setting)
}

/// What a layer and its adapter read and write, each way.
struct Walk<'s> {
    setting: &'s Setting,
    weight: WeightCost,
    a: WeightCost,
    b: WeightCost,
    tokens: u64,
    /// Elements of x, y and h = x Aᵀ.
    elements: [u64; 3],
    /// Their bytes.
    bytes: [u64; 3],
    casts: u64,
    /// Whether kernels draw a mask where they multiply by it.
    draws_in_place: bool,
    /// Bytes of the dropped x.
    masked: u64,
}

impl<'s> Walk<'s> {
    fn new(
        setting: &'s Setting,
        [inputs, outputs]: [u64; 2],
        layout: WeightLayout,
        rank: u64,
        dropout: bool,
    ) -> Self {
        let weight = setting.linear_weight(layout.shape(inputs, outputs));
        let [a, b] = [[rank, inputs], [outputs, rank]].map(|shape| setting.weight(shape));
        let (tokens, columns) = (setting.tokens(), [inputs, outputs, rank]);
        let bytes = columns.map(|columns| setting.activation(columns));
        // What is drawn and dropped on the CPU is in fp32 first.
        let widened = if !setting.on_cuda() && setting.element() < 4 { setting.wide(inputs) } else { 0 };
        let draws_in_place = setting.on_cuda() && has_kernels(rank as usize);
        Self {
            setting,
            tokens,
            elements: columns.map(|columns| tokens * columns),
            bytes,
            casts: weight.cast + a.cast + b.cast,
            draws_in_place,
            masked: if dropout && !draws_in_place { bytes[0] + widened } else { 0 },
            weight,
            a,
            b,
        }
    }

    /// The CPU's products of few bits are made and then added; others add.
    fn added(&self, bytes: u64) -> u64 {
        if self.setting.on_cuda() || self.setting.element() == 4 { 0 } else { bytes }
    }

    fn forward(&self) -> [u64; 3] {
        let Self { weight, a, b, elements: [x, y, h], bytes: [_, y_bytes, h_bytes], casts, .. } = self;
        let product = |lhs: u64, rhs: u64, out: u64| self.setting.product(lhs, rhs, out, false);
        [
            casts + self.masked + h_bytes + product(*x, a.elements, *h),
            casts + h_bytes + weight.unpacked + y_bytes + product(*x, weight.elements, *y),
            casts + h_bytes + y_bytes + self.added(*y_bytes) + product(*h, b.elements, *y),
        ]
    }

    fn backward(&self) -> [Moment; 5] {
        let Self { setting, weight, a, b, elements, bytes: [x_bytes, _, h_bytes], casts, masked, .. } = *self;
        let ([x, y, h], wide) = (elements, setting.stored > setting.element());
        let product = |lhs, rhs, out| setting.product(lhs, rhs, out, false);
        let to_parameter = |lhs, rhs, out| setting.product(lhs, rhs, out, wide);
        let moment = |gradients, workspace| Moment::gradients(gradients) + Moment::workspace(workspace);
        let (of_b, of_both) = (b.gradient, a.gradient + b.gradient);
        let to_dx = if masked > 0 { masked } else { self.added(x_bytes) };
        [
            moment(of_b, casts + h_bytes + to_parameter(y, h, b.elements)),
            moment(of_b, casts + h_bytes + product(y, b.elements, h)),
            moment(of_both, casts + h_bytes + masked + to_parameter(h, x, a.elements)),
            moment(of_both, casts + h_bytes + weight.unpacked + x_bytes + product(y, weight.elements, x)),
            moment(of_both, casts + h_bytes + x_bytes + to_dx + product(h, a.elements, x)),
        ]
    }
}

//! What a linear layer with a low-rank adapter costs.

use super::side_by_side::has_kernels;
use crate::ops::cost::{Cost, Flops, Moment, Setting, Tensors};
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
    let weight = setting.linear_weight(layout.shape(inputs, outputs));
    let [a, b] = [[rank, inputs], [outputs, rank]].map(|shape| setting.weight(shape));
    let bias = if bias { outputs } else { 0 };
    let tokens = setting.tokens();
    let [x, y, h] = [inputs, outputs, rank].map(|columns| tokens * columns);
    let [x_bytes, y_bytes, h_bytes] = [inputs, outputs, rank].map(|columns| setting.activation(columns));
    let casts = weight.cast + a.cast + b.cast;
    let wide = setting.stored > setting.element();
    let product = |lhs, rhs, out| setting.product(lhs, rhs, out, false);
    let to_parameter = |lhs, rhs, out| setting.product(lhs, rhs, out, wide);
    // What is drawn and dropped on the CPU is in fp32 first.
    let widened = if !setting.on_cuda() && setting.element() < 4 { setting.wide(inputs) } else { 0 };
    // Kernels draw a mask where they multiply by it.
    let draws_in_place = setting.on_cuda() && has_kernels(rank as usize);
    let masked = if dropout && !draws_in_place { x_bytes + widened } else { 0 };
    // The CPU's products of few bits are made and then added; others add.
    let added = |bytes: u64| if setting.on_cuda() || setting.element() == 4 { 0 } else { bytes };
    let forward = [
        casts + masked + h_bytes + product(x, a.elements, h),
        casts + h_bytes + weight.unpacked + y_bytes + product(x, weight.elements, y),
        casts + h_bytes + y_bytes + added(y_bytes) + product(h, b.elements, y),
    ];
    let [a_gradient, b_gradient] = [a.gradient, b.gradient];
    let moment = |gradients, workspace| Moment::gradients(gradients) + Moment::workspace(workspace);
    let to_dx = if masked > 0 { masked } else { added(x_bytes) };
    let backward = [
        moment(b_gradient, casts + h_bytes + to_parameter(y, h, b.elements)),
        moment(b_gradient, casts + h_bytes + product(y, b.elements, h)),
        moment(a_gradient + b_gradient, casts + h_bytes + masked + to_parameter(h, x, a.elements)),
        moment(
            a_gradient + b_gradient,
            casts + h_bytes + weight.unpacked + x_bytes + product(y, weight.elements, x),
        ),
        moment(a_gradient + b_gradient, casts + h_bytes + x_bytes + to_dx + product(h, a.elements, x)),
    ];
    let parameters = a.elements + b.elements;
    let products = |elements: u64| 2.0 * tokens as f64 * elements as f64;
    // The weight's product each way, and those with A and B; what is in codes is unpacked first, and x dropped, each way.
    let unpacks = u32::from(weight.unpacked > 0);
    let [forward_launches, backward_launches] = if draws_in_place { [3, 5] } else { [4, 6] };
    let again = unpacks + u32::from(dropout && !draws_in_place);
    Cost {
        input: x_bytes,
        output: y_bytes,
        holds_input: true,
        kept: casts + h_bytes,
        parameters: weight.elements + bias + parameters,
        trained: Tensors::matrices(1, [rank, inputs]) + Tensors::matrices(1, [outputs, rank]),
        largest: a.elements.max(b.elements),
        weights: weight.bytes + bias * setting.stored + a.bytes + b.bytes,
        gradients: a_gradient + b_gradient,
        casts: weight.kept_cast + a.kept_cast + b.kept_cast,
        flops: Flops::of_frozen(products(weight.elements)) + Flops::of_products(products(parameters)),
        launches: [forward_launches + again, backward_launches + again],
        ..Cost::new(Moment::highest(forward.map(Moment::workspace)), Moment::highest(backward))
    }
    .named(OperatorName::Linear, setting)
}

//! What a linear layer costs.

use super::WeightLayout;
use crate::ops::cost::{Cost, Flops, Moment, Setting, Tensors, Trained};
use crate::ops::name::OperatorName;

/// Where the weight is trained, x [tokens, inputs] is kept, and under autocast the weight in the compute type too. Backward
/// makes dx, frees the cast, and makes dW. Two kernels sum a bias's gradient: one over blocks of tokens, one over the
/// blocks' sums.
pub fn cost(setting: &Setting, [inputs, outputs]: [u64; 2], bias: bool, layout: WeightLayout) -> Cost {
    let weight = setting.linear_weight(layout.shape(inputs, outputs));
    let bias = if bias { outputs } else { 0 };
    let Trained { weights, biases } = setting.trained;
    let trained_bias = if biases { bias } else { 0 };
    let trained_weight = if weights { weight.elements } else { 0 };
    let tokens = setting.tokens();
    let (x, y) = (tokens * inputs, tokens * outputs);
    let [x_bytes, y_bytes] = [inputs, outputs].map(|columns| setting.activation(columns));
    let gradients = if weights { weight.gradient } else { 0 } + trained_bias * setting.stored;
    let wide = setting.stored > setting.element();
    // The CPU adds up a bias's gradient in an fp32 copy of g.
    let sums = if trained_bias > 0 && !setting.on_cuda() && setting.element() < 4 { 4 * y } else { 0 };
    let forward = Moment::workspace(
        weight.cast + weight.unpacked + y_bytes + setting.product(x, weight.elements, y, false),
    );
    let dx = Moment::workspace(
        x_bytes + weight.cast + weight.unpacked + setting.product(y, weight.elements, x, false),
    );
    let to_weight = if weights { setting.product(x, y, weight.elements, wide) } else { 0 };
    let dweight = Moment::gradients(gradients) + Moment::workspace(x_bytes + to_weight.max(sums));
    let products = 2.0 * tokens as f64 * weight.elements as f64;
    let flops = if weights { Flops::of_products(products) } else { Flops::of_frozen(products) };
    Cost {
        input: x_bytes,
        output: y_bytes,
        holds_input: weights,
        kept: weight.cast,
        parameters: weight.elements + bias,
        trained: Tensors::matrices(u64::from(weights), [inputs, outputs]) + Tensors::vectors(1, trained_bias),
        largest: trained_weight.max(trained_bias),
        weights: weight.bytes + bias * setting.stored,
        gradients,
        casts: weight.kept_cast,
        flops,
        launches: [1, 1 + u32::from(weights) + 2 * u32::from(trained_bias > 0)],
        ..Cost::new(forward, Moment::highest([dx, dweight]))
    }
    .named(OperatorName::Linear, setting)
}

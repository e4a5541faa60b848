//! RMSNorm and LayerNorm.

use burn::backend::Flex;
use burn::tensor::Tensor;
use cpu_kernels::norm;

use super::{buffer, filled, numbers, tensor};
use crate::ops::backend::Computes;

/// y, and r [tokens].
pub fn rms_norm(x: &Tensor<2>, weight: &Tensor<1>, epsilon: f32) -> (Tensor<2>, Tensor<1>) {
    let shape = x.dims();
    let (x, weight) = (buffer(x.clone()), buffer(weight.clone()));
    let mut r = vec![0.0; shape[0]];
    // SAFETY: the kernel writes every element.
    let y = unsafe { filled(shape, |y| norm::rms_norm(numbers(&x), numbers(&weight), epsilon, y, &mut r)) };
    (y, tensor(r, [shape[0]]))
}

/// y, and the mean and r [tokens].
pub fn layer_norm(
    x: &Tensor<2>,
    weight: &Tensor<1>,
    bias: &Tensor<1>,
    epsilon: f32,
) -> (Tensor<2>, Tensor<1>, Tensor<1>) {
    let shape = x.dims();
    let (x, weight, bias) = (buffer(x.clone()), buffer(weight.clone()), buffer(bias.clone()));
    let parameters = [&weight, &bias].map(numbers);
    let (mut means, mut r) = (vec![0.0; shape[0]], vec![0.0; shape[0]]);
    let write = |y: &mut _| norm::layer_norm(numbers(&x), parameters, epsilon, y, [&mut means, &mut r]);
    // SAFETY: the kernel writes every element.
    let y = unsafe { filled(shape, write) };
    let [means, r] = [means, r].map(|numbers| tensor(numbers, [shape[0]]));
    (y, means, r)
}

/// dx, in the memory of g where nobody else holds it, and dw.
pub fn rms_norm_backward(
    x: Tensor<2>,
    weight: Tensor<1>,
    r: Tensor<1>,
    g: Tensor<2>,
) -> (Tensor<2>, Tensor<1>) {
    let [_, columns] = x.dims();
    let (x, weight, r, mut g) = (buffer(x), buffer(weight), buffer(r), buffer(g));
    let sums = norm::rms_norm_backward(numbers(&x), numbers(&weight), numbers(&r), g.storage_mut());
    (Flex::lift(g), tensor(sums, [columns]))
}

/// dx, in the memory of g where nobody else holds it, dw and db.
pub fn layer_norm_backward(
    x: Tensor<2>,
    weight: Tensor<1>,
    statistics: [Tensor<1>; 2],
    g: Tensor<2>,
) -> (Tensor<2>, Tensor<1>, Tensor<1>) {
    let [_, columns] = x.dims();
    let (x, weight, mut g) = (buffer(x), buffer(weight), buffer(g));
    let statistics = statistics.map(buffer);
    let of_rows = statistics.each_ref().map(numbers);
    let mut dweight = norm::layer_norm_backward(numbers(&x), numbers(&weight), of_rows, g.storage_mut());
    let dbias = dweight.split_off(columns);
    // What was split off leaves its room behind.
    dweight.shrink_to_fit();
    (Flex::lift(g), tensor(dweight, [columns]), tensor(dbias, [columns]))
}

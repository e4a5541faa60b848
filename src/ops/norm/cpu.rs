//! RMSNorm and LayerNorm.

use burn::tensor::Tensor;
use cpu_kernels::norm;

use super::{Terms, factor};
use crate::ops::backend::unflex;
use crate::ops::slices::{buffer, filled, numbers, tensor};

/// y; and of every row the mean, where there is a bias, and r, [tokens].
pub fn forward(
    x: &Tensor<2>,
    weight: &Tensor<1>,
    bias: Option<Tensor<1>>,
    Terms { epsilon, plus_one }: Terms,
) -> (Tensor<2>, Option<Tensor<1>>, Tensor<1>) {
    let (shape, epsilon) = (x.dims(), epsilon as f32);
    let (x, weight, bias) = (buffer(x.clone()), buffer(factor(weight.clone(), plus_one)), bias.map(buffer));
    let (x, weight) = (numbers(&x), numbers(&weight));
    let (mut mean, mut r) = (bias.as_ref().map(|_| vec![0.0; shape[0]]), vec![0.0; shape[0]]);
    // SAFETY: the kernels write every element.
    let y = unsafe {
        filled(shape, |y| match (&bias, &mut mean) {
            (Some(bias), Some(mean)) => {
                norm::layer_norm(x, [weight, numbers(bias)], epsilon, y, [mean, &mut r])
            }
            _ => norm::rms_norm(x, weight, epsilon, y, &mut r),
        })
    };
    let of_rows = |numbers| tensor(numbers, [shape[0]]);
    (y, mean.map(of_rows), of_rows(r))
}

/// dx, in the memory of g where nobody else holds it, dw, and db where there is a mean.
pub fn backward(
    x: Tensor<2>,
    (weight, plus_one): (Tensor<1>, bool),
    (mean, r): (Option<Tensor<1>>, Tensor<1>),
    g: Tensor<2>,
) -> (Tensor<2>, Tensor<1>, Option<Tensor<1>>) {
    let [_, columns] = x.dims();
    let (x, weight) = (buffer(x), buffer(factor(weight, plus_one)));
    let (mean, r, mut g) = (mean.map(buffer), buffer(r), buffer(g));
    let (x, weight, r) = (numbers(&x), numbers(&weight), numbers(&r));
    let Some(mean) = mean else {
        let dweight = norm::rms_norm_backward(x, weight, r, g.storage_mut());
        return (unflex(g), tensor(dweight, [columns]), None);
    };
    let mut dweight = norm::layer_norm_backward(x, weight, [numbers(&mean), r], g.storage_mut());
    let dbias = dweight.split_off(columns);
    // What was split off leaves its room behind.
    dweight.shrink_to_fit();
    (unflex(g), tensor(dweight, [columns]), Some(tensor(dbias, [columns])))
}

//! GELU on the CPU in fp32, by the tanh formula.

use burn::tensor::Tensor;
use cpu_kernels::elementwise;

use crate::ops::backend::unflex;
use crate::ops::slices::{buffer, filled, numbers};

/// GELU by the tanh formula.
pub fn gelu(x: Tensor<2>) -> Tensor<2> {
    let shape = x.dims();
    let x = buffer(x);
    // SAFETY: the kernel writes every element.
    unsafe { filled(shape, |y| elementwise::gelu(numbers(&x), y)) }
}

/// dx, in the memory of g where nobody else holds it.
pub fn gelu_backward(x: Tensor<2>, g: Tensor<2>) -> Tensor<2> {
    let (x, mut g) = (buffer(x), buffer(g));
    elementwise::gelu_backward(numbers(&x), g.storage_mut());
    unflex(g)
}

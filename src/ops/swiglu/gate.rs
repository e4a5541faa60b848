//! The element-wise parts of SwiGLU: h = SiLU(a) ⊙ b and its derivatives, in place where nobody else holds a tensor.
//! Names follow the derivation in the parent module. Every tensor is [tokens, intermediate].

use burn::tensor::Tensor;

use super::{gate_cpu, gate_cuda};
use crate::ops::backend::{cube, flex, on_cuda, uncube, unflex};

/// h = SiLU(a) ⊙ b
pub fn gate(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    match on_cuda(&a) {
        true => uncube(gate_cuda::forward(cube(a), cube(b))),
        false => unflex(gate_cpu::forward(flex(a), flex(b))),
    }
}

/// s and h.
pub fn silu_and_gate(a: Tensor<2>, b: Tensor<2>) -> [Tensor<2>; 2] {
    match on_cuda(&a) {
        true => gate_cuda::forward_with_silu(&cube(a), &cube(b)).map(uncube),
        false => gate_cpu::forward_with_silu(flex(a), flex(b)).map(unflex),
    }
}

/// da, db and h from dh. Making s again from a, which is read anyway, is cheaper than reading it.
pub fn gate_backward(a: Tensor<2>, b: Tensor<2>, dh: Tensor<2>) -> [Tensor<2>; 3] {
    match on_cuda(&a) {
        true => gate_cuda::backward(cube(a), cube(b), cube(dh)).map(uncube),
        false => gate_cpu::backward(flex(a), flex(b), flex(dh)).map(unflex),
    }
}

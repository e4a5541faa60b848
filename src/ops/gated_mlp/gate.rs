//! The element-wise parts of a gated MLP: h = f(a) ⊙ b and its derivatives, in place where nobody else holds a tensor.
//! Names follow the derivation in the parent module. Every tensor is [tokens, intermediate].

use burn::tensor::Tensor;

use super::{gate_cpu, gate_cuda};
use crate::ops::activation::Activation;
use crate::ops::backend::{cube, flex, on_cuda, uncube, unflex};

/// h = f(a) ⊙ b
pub fn gate(a: Tensor<2>, b: Tensor<2>, activation: Activation) -> Tensor<2> {
    match on_cuda(&a) {
        true => uncube(gate_cuda::forward(cube(a), cube(b), activation)),
        false => unflex(gate_cpu::forward(flex(a), flex(b), activation)),
    }
}

/// s and h.
pub fn activate_and_gate(a: Tensor<2>, b: Tensor<2>, activation: Activation) -> [Tensor<2>; 2] {
    match on_cuda(&a) {
        true => gate_cuda::forward_activated(&cube(a), &cube(b), activation).map(uncube),
        false => gate_cpu::forward_activated(flex(a), flex(b), activation).map(unflex),
    }
}

/// da, db and h from dh. Making s again from a, which is read anyway, is cheaper than reading it.
pub fn gate_backward(a: Tensor<2>, b: Tensor<2>, dh: Tensor<2>, activation: Activation) -> [Tensor<2>; 3] {
    match on_cuda(&a) {
        true => gate_cuda::backward(cube(a), cube(b), cube(dh), activation).map(uncube),
        false => gate_cpu::backward(flex(a), flex(b), flex(dh), activation).map(unflex),
    }
}

//! SwiGLU: gradients against the CPU, and the memory of a long loop.

use burn::tensor::{DType, Device, Tensor};
use runner::common::Compute;
use runner::device::cuda::Usage;
use runner::ops::activation::Activation;
use runner::ops::dense::{Arithmetic, WeightLayout};
use runner::ops::gated_mlp::GatedMlp;
use runner::ops::{Level, Operator};

use crate::on_gpu;
use crate::reference::{TYPES, distance, error, float, host, random, tolerance};
use crate::stack::Stack;

/// y, dx, dW, dV and dU of one operator for the loss Σ y ⊙ t.
fn gradients(
    device: &Device,
    [n, h, i]: [usize; 3],
    activation: Activation,
    level: Level,
    compute: Compute,
) -> [Vec<f64>; 5] {
    let device = device.clone().autodiff();
    let scaled = |shape: [usize; 2], seed| {
        let t = Tensor::<2>::from_data(random(shape, seed), (&device, DType::F32));
        (t / (shape[0] as f64).sqrt()).cast(float(compute)).require_grad()
    };
    let x =
        Tensor::<2>::from_data(random([n, h], 5), (&device, DType::F32)).cast(float(compute)).require_grad();
    let (w, v, u) = (scaled([h, i], 6), scaled([h, i], 7), scaled([i, h], 8));
    let target = Tensor::<2>::from_data(random([n, h], 9), (&device, DType::F32)).cast(float(compute));
    let mlp =
        GatedMlp { activation, ..GatedMlp::swiglu(WeightLayout::InOut, level, Arithmetic::of(compute)) };
    let y = mlp.forward(x.clone(), [w.clone(), v.clone(), u.clone()], Operator::Custom);
    let gradients = (y.clone() * target).sum().backward();
    let of = |t: &Tensor<2>| host(t.grad(&gradients).expect("a gradient"));
    [host(y.inner()), of(&x), of(&w), of(&v), of(&u)]
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gated_mlps_against_cpu() {
    on_gpu(|gpu, checks| {
        let shape = [1024, 768, 2304];
        for activation in Activation::ALL {
            let expected = gradients(&Device::flex(), shape, activation, Level::Keep, Compute::Fp32);
            for (compute, level) in
                TYPES.into_iter().flat_map(|compute| Level::ALL.map(|level| (compute, level)))
            {
                let got = gradients(&gpu.burn(), shape, activation, level, compute);
                for (name, (got, expected)) in
                    ["y", "dx", "dW", "dV", "dU"].iter().zip(got.iter().zip(&expected))
                {
                    let what = format!("{activation:?} {} level {level} {name}", compute.into_str());
                    // Three products deep, and the largest of millions of elements.
                    let limit = if compute == Compute::Fp32 { 5e-5 } else { 20.0 * tolerance(compute) };
                    // ReLU's slope has a step: a gate that rounding moves over zero has another gradient, so the types of
                    // fewer bits are compared over the whole tensor.
                    match activation {
                        Activation::Relu if compute != Compute::Fp32 => {
                            checks.below(&what, distance(got, expected), limit);
                        }
                        _ => checks.below(&what, error(got, expected), limit),
                    }
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_of_a_long_loop() {
    on_gpu(|gpu, checks| {
        let stack = Stack::new(gpu, [2048, 512, 2048, 2], Compute::Bf16);
        let step = || drop(stack.forward(Level::Full).sum().backward());
        (0..20).for_each(|_| step());
        gpu.synchronize();
        let early = Usage::now(gpu);
        (0..200).for_each(|_| step());
        gpu.synchronize();
        let late = Usage::now(gpu);
        let steady =
            late.live == early.live && late.reserved == early.reserved && late.driver == early.driver;
        checks.verdict("200 steps leave the memory as it was", steady, &format!("{early:?} then {late:?}"));
    });
}

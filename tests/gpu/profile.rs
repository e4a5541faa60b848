//! The operators that kernels are recorded with.

use burn::tensor::{DType, Distribution, Tensor};
use runner::device::cuda::Recording;
use runner::device::trace::ActivityKind;
use runner::ops::dense::{Arithmetic, WeightLayout, dense};
use runner::ops::mean_square::mean_square;
use runner::ops::norm::rms_norm;
use runner::ops::swiglu::swiglu;
use runner::ops::{Level, Operator};
use runner::words::Compute;

use crate::on_gpu;

/// A norm, a linear layer, SwiGLU and a loss: in the order of the device's time their kernels name the operators in
/// the order in which they were called, and backward in the opposite one.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn kernels_name_the_operators_that_issued_them() {
    on_gpu(|gpu, checks| {
        let device = gpu.burn().autodiff();
        let random = |shape: [usize; 2]| {
            let normal = Distribution::Normal(0.0, 0.05);
            Tensor::<2>::random(shape, normal, (&device, DType::BF16)).require_grad()
        };
        let (n, h, i) = (512, 256, 768);
        let (x, w) = (random([n, h]), random([h, h]));
        let [gate, up, down] = [[h, i], [h, i], [i, h]].map(random);
        let scale = Tensor::<1>::ones([h], (&device, DType::BF16)).require_grad();
        let target = random([n, h]).inner();
        let arithmetic = Arithmetic::of(Compute::Bf16);
        let layout = WeightLayout::InOut;
        let step = || {
            let y = rms_norm(x.clone(), scale.clone(), 1e-6, DType::BF16, Operator::Custom);
            let y = dense(y, w.clone(), None, layout, arithmetic);
            let (gate, up, down) = (gate.clone(), up.clone(), down.clone());
            let y = swiglu(y, gate, up, down, layout, Level::Full, Operator::Custom, arithmetic);
            drop(mean_square(y, target.clone()).backward());
        };
        // Kernels are compiled, and algorithms chosen, at their first launch.
        step();
        let recording = match Recording::start(gpu) {
            Ok(recording) => recording,
            Err(reason) => return checks.verdict("recording", false, &reason),
        };
        (0..3).for_each(|_| step());
        let activities = recording.stop();
        let kernels: Vec<_> = activities.iter().filter(|a| a.kind == ActivityKind::Kernel).collect();
        let mut operators: Vec<&str> = kernels.iter().filter_map(|a| a.operator.as_deref()).collect();
        operators.dedup();
        let once = ["norm", "linear", "swiglu", "loss", "swiglu", "linear", "norm"];
        // A step ends with the operator that the next one begins with.
        let mut expected = [once; 3].concat();
        expected.dedup();
        checks.verdict("operators in their order", operators == expected, &format!("{operators:?}"));
        let nameless: Vec<&str> =
            kernels.iter().filter(|a| a.operator.is_none()).map(|a| a.name.as_str()).collect();
        // Burn's own: the gradient that backward starts from.
        let figures = format!("{} of {}: {nameless:?}", nameless.len(), kernels.len());
        checks.verdict("kernels without an operator", nameless.len() <= 3, &figures);
    });
}

//! [`Stack`]: SwiGLU layers in a row.

use burn::tensor::{Distribution, Tensor};
use runner::common::Compute;
use runner::device::cuda::Gpu;
use runner::device::dtype;
use runner::ops::dense::{Arithmetic, WeightLayout};
use runner::ops::gated_mlp::GatedMlp;
use runner::ops::{Level, Operator};

/// A stack of SwiGLU layers with its own weights, as the study's.
pub struct Stack {
    x: Tensor<2>,
    layers: Vec<[Tensor<2>; 3]>,
    arithmetic: Arithmetic,
}

impl Stack {
    pub fn new(gpu: &Gpu, [tokens, h, i, layers]: [usize; 4], compute: Compute) -> Self {
        let device = gpu.burn().autodiff();
        let random = |rows: usize, columns: usize, spread: f64| {
            let normal = Distribution::Normal(0.0, spread);
            Tensor::<2>::random([rows, columns], normal, (&device, dtype(compute))).require_grad()
        };
        let matrix = |rows: usize, columns: usize| random(rows, columns, 1.0 / (rows as f64).sqrt());
        let layers = (0..layers).map(|_| [matrix(h, i), matrix(h, i), matrix(i, h)]).collect();
        Self { x: random(tokens, h, 1.0), layers, arithmetic: Arithmetic::of(compute) }
    }

    pub fn forward(&self, level: Level) -> Tensor<2> {
        self.layers.iter().fold(self.x.clone(), |x, [w, v, u]| {
            let mlp = GatedMlp::swiglu(WeightLayout::InOut, level, self.arithmetic);
            mlp.forward(x, [w.clone(), v.clone(), u.clone()], Operator::Custom)
        })
    }
}

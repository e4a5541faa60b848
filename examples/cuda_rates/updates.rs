//! Time of one AdamW update of 500 million parameters in matrices of 4096 x 4096, as tests/peers/torch_optimizers.py takes
//! PyTorch's and bitsandbytes': the best of 20 between two events. Gradients are random, so that codes differ as in training.

use burn::tensor::{DType, Distribution, Tensor};
use runner::common::DeviceId;
use runner::device::cuda::{Event, Gpu};
use runner::optim::{AdamW, AdamW8bit, AdamWBf16, Pending, Rule, StepSize};

/// Elements of a matrix.
const MATRIX: usize = 4096 * 4096;
const MILLIONS: usize = 500;
const WARMUP: usize = 3;
const STEPS: usize = 20;

pub fn rates(gpu: &'static Gpu) {
    let rules: [(&str, Box<dyn Rule>); 3] = [
        ("adamw", Box::new(AdamW::default())),
        ("adamw8bit", Box::new(AdamW8bit::default())),
        ("adamw_bf16", Box::new(AdamWBf16::default())),
    ];
    for dtype in [DType::F32, DType::BF16] {
        for (name, rule) in &rules {
            let count = MILLIONS * 1_000_000 / MATRIX;
            let elements = count * MATRIX;
            let seconds = update(gpu, &**rule, dtype, count);
            // Parameters are read and written, gradients read, and state read and written.
            let state = rule.state_bytes(runner::ops::cost::Tensors::vectors(count as u64, MATRIX as u64));
            let bytes = 3 * elements * dtype.size() + 2 * state as usize;
            println!(
                "update {name} {dtype:?}: {:.2} ms of {:.0} million, {:.0} GB/s",
                seconds * 1e3,
                elements as f64 / 1e6,
                bytes as f64 / seconds / 1e9
            );
            gpu.release_memory();
        }
    }
}

/// Seconds of the fastest step.
fn update(gpu: &'static Gpu, rule: &dyn Rule, dtype: DType, count: usize) -> f64 {
    let device = DeviceId::Cuda(0).burn();
    let random = |spread: f64| {
        let values = Tensor::<1>::random([MATRIX], Distribution::Normal(0.0, spread), (&device, DType::F32));
        values.cast(burn::tensor::FloatDType::from(dtype))
    };
    let mut parameters: Vec<_> =
        (0..count).map(|_| (random(1.0), random(1e-3), rule.state(&[MATRIX], &device))).collect();
    let mut best = f64::INFINITY;
    for step in 0..WARMUP + STEPS {
        gpu.synchronize();
        let start = Event::record(gpu);
        let mut pending = Pending::default();
        parameters = parameters
            .into_iter()
            .map(|(p, g, mut state)| (state.update(p, g.clone(), &StepSize::FULL, &mut pending), g, state))
            .collect();
        drop(pending);
        let seconds = Event::record(gpu).seconds_since(&start);
        best = if step < WARMUP { best } else { best.min(seconds) };
    }
    best
}

//! SwiGLU: gradients against the CPU, times and memory of the study's shapes, a long loop.

use std::time::Instant;

use burn::tensor::{DType, Device, Distribution, Tensor};
use runner::device::cuda::{Event, Gpu, PeakObservation, Usage};
use runner::device::dtype;
use runner::ops::dense::{Arithmetic, WeightLayout};
use runner::ops::swiglu::swiglu;
use runner::ops::{Level, Operator};
use runner::recipe::Compute;

use crate::reference::{error, float, host, median, random, tolerance};
use crate::{Checks, TYPES};

/// y, dx, dW, dV and dU of one operator for the loss Σ y ⊙ t.
fn gradients(device: &Device, [n, h, i]: [usize; 3], level: Level, compute: Compute) -> [Vec<f64>; 5] {
    let device = device.clone().autodiff();
    let scaled = |shape: [usize; 2], seed| {
        let t = Tensor::<2>::from_data(random(shape, seed), (&device, DType::F32));
        (t / (shape[0] as f64).sqrt()).cast(float(compute)).require_grad()
    };
    let x =
        Tensor::<2>::from_data(random([n, h], 5), (&device, DType::F32)).cast(float(compute)).require_grad();
    let (w, v, u) = (scaled([h, i], 6), scaled([h, i], 7), scaled([i, h], 8));
    let target = Tensor::<2>::from_data(random([n, h], 9), (&device, DType::F32)).cast(float(compute));
    let arithmetic = Arithmetic::of(compute);
    let (x_in, w_in, v_in, u_in) = (x.clone(), w.clone(), v.clone(), u.clone());
    let y = swiglu(x_in, w_in, v_in, u_in, WeightLayout::InOut, level, Operator::Custom, arithmetic);
    let gradients = (y.clone() * target).sum().backward();
    let of = |t: &Tensor<2>| host(t.grad(&gradients).expect("a gradient"));
    [host(y.inner()), of(&x), of(&w), of(&v), of(&u)]
}

pub fn swiglu_against_cpu(gpu: &Gpu, checks: &mut Checks) {
    let shape = [1024, 768, 2304];
    let expected = gradients(&Device::flex(), shape, Level::Keep, Compute::Fp32);
    for compute in TYPES {
        for level in Level::ALL {
            let got = gradients(&gpu.burn(), shape, level, compute);
            for (name, (got, expected)) in ["y", "dx", "dW", "dV", "dU"].iter().zip(got.iter().zip(&expected))
            {
                let what = format!("swiglu {} level {level} {name}", compute.name());
                // Three products deep, and the largest of millions of elements.
                let limit = if compute == Compute::Fp32 { 5e-5 } else { 20.0 * tolerance(compute) };
                checks.below(&what, error(got, expected), limit);
            }
        }
    }
}

/// A stack of SwiGLU layers with its own weights, as the study's.
struct Stack {
    x: Tensor<2>,
    layers: Vec<[Tensor<2>; 3]>,
    arithmetic: Arithmetic,
}

impl Stack {
    fn new(gpu: &Gpu, [tokens, h, i, layers]: [usize; 4], compute: Compute) -> Self {
        let device = gpu.burn().autodiff();
        let random = |rows: usize, columns: usize, spread: f64| {
            let normal = Distribution::Normal(0.0, spread);
            Tensor::<2>::random([rows, columns], normal, (&device, dtype(compute))).require_grad()
        };
        let matrix = |rows: usize, columns: usize| random(rows, columns, 1.0 / (rows as f64).sqrt());
        let layers = (0..layers).map(|_| [matrix(h, i), matrix(h, i), matrix(i, h)]).collect();
        Self { x: random(tokens, h, 1.0), layers, arithmetic: Arithmetic::of(compute) }
    }

    fn forward(&self, level: Level) -> Tensor<2> {
        self.layers.iter().fold(self.x.clone(), |x, [w, v, u]| {
            let (w, v, u) = (w.clone(), v.clone(), u.clone());
            swiglu(x, w, v, u, WeightLayout::InOut, level, Operator::Custom, self.arithmetic)
        })
    }
}

/// The study's shapes: tokens, hidden size, intermediate size, layers.
const SHAPES: [(&str, [usize; 4]); 5] = [
    ("16x128 512 2048 2", [16 * 128, 512, 2048, 2]),
    ("32x128 512 2048 2", [32 * 128, 512, 2048, 2]),
    ("8x512 1024 4096 3", [8 * 512, 1024, 4096, 3]),
    ("16x512 1024 4096 3", [16 * 512, 1024, 4096, 3]),
    ("4x1024 4096 16384 5", [4 * 1024, 4096, 16384, 5]),
];

/// Forward and backward of each shape by device events, then one step under observation for the
/// peaks. The gradients live until the step ends, as in training.
pub fn shapes(gpu: &'static Gpu, asked: &[String], opened: Instant) {
    let only = |place: usize, value: &str| asked.get(place).is_none_or(|asked| asked == value);
    for compute in [Compute::Fp32, Compute::Tf32, Compute::Bf16] {
        for (number, (name, shape)) in SHAPES.into_iter().enumerate() {
            for level in Level::ALL {
                let chosen =
                    only(1, compute.name()) && only(2, &number.to_string()) && only(3, &level.to_string());
                if !chosen {
                    continue;
                }
                gpu.release_memory();
                let before = Usage::now(gpu);
                let stack = Stack::new(gpu, shape, compute);
                let mut first_step = 0.0;
                let (mut forward, mut backward, mut wall) = (Vec::new(), Vec::new(), Vec::new());
                for step in 0..12 {
                    let clock = Instant::now();
                    let start = Event::record(gpu);
                    let y = stack.forward(level);
                    let middle = Event::record(gpu);
                    let gradients = y.sum().backward();
                    let end = Event::record(gpu);
                    let times = (middle.seconds_since(&start), end.seconds_since(&middle));
                    drop(gradients);
                    if step == 0 {
                        first_step = opened.elapsed().as_secs_f64();
                    }
                    if step >= 4 {
                        forward.push(times.0 * 1e3);
                        backward.push(times.1 * 1e3);
                        wall.push(clock.elapsed().as_secs_f64() * 1e3);
                    }
                }
                let reserved = Usage::now(gpu).reserved;
                let observation = PeakObservation::start(gpu);
                drop(stack.forward(level).sum().backward());
                let (live, _) = observation.take_peaks();
                drop(observation);
                println!(
                    "shape {name} {} level {level}: forward {:.3} ms, backward {:.3} ms, host {:.3} ms, live peak {:.3} GiB \
                     ({:.3} before), reserved {:.3} GiB, first step done {:.1} s after the start",
                    compute.name(),
                    median(forward),
                    median(backward),
                    median(wall),
                    gib(live),
                    gib(before.live),
                    gib(reserved),
                    first_step,
                );
            }
        }
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

pub fn memory_of_a_long_loop(gpu: &'static Gpu, checks: &mut Checks) {
    let stack = Stack::new(gpu, [2048, 512, 2048, 2], Compute::Bf16);
    let step = || drop(stack.forward(Level::Full).sum().backward());
    (0..20).for_each(|_| step());
    gpu.synchronize();
    let early = Usage::now(gpu);
    (0..200).for_each(|_| step());
    gpu.synchronize();
    let late = Usage::now(gpu);
    let steady = late.live == early.live && late.reserved == early.reserved && late.driver == early.driver;
    checks.verdict("200 steps leave the memory as it was", steady, &format!("{early:?} then {late:?}"));
}

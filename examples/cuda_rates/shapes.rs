//! Times and memory of the SwiGLU study's shapes.

use std::time::Instant;

use runner::common::Compute;
use runner::device::cuda::{Event, Gpu, PeakObservation, Usage};
use runner::ops::Level;

use crate::reference::median;
use crate::stack::Stack;

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
                let chosen = only(1, compute.into_str())
                    && only(2, &number.to_string())
                    && only(3, &level.to_string());
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
                    compute.into_str(),
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

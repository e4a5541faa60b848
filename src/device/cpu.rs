//! The CPU through Burn's `flex` backend.

use std::time::Instant;

use burn::tensor::{Device, Distribution, Tensor};
use cpu_kernels::{Matrix, Target};
use sysinfo::System;

use super::{Ceilings, DeviceInfo, drawing, dtype};
use crate::common::Compute;

pub fn info() -> DeviceInfo {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Without a readable system the name and the sizes stay empty; a cell still runs.
    let (name, total, available) = System::new().map(describe).unwrap_or_default();
    DeviceInfo {
        id: "cpu".into(),
        name: if name.is_empty() { std::env::consts::ARCH.into() } else { name },
        memory_total: total,
        memory_available: available,
        cores: System::physical_core_count().unwrap_or(threads).min(threads),
        threads,
        ..DeviceInfo::default()
    }
}

/// Name, total and available memory.
fn describe(mut system: System) -> (String, u64, u64) {
    system.refresh_memory();
    system.refresh_cpu_all();
    let name = system.cpus().first().map(|cpu| cpu.brand().trim().to_string()).unwrap_or_default();
    let (total, available) = (system.total_memory(), system.available_memory());
    // In a container the group's limit counts, not the machine's memory. The files that the group has cached
    // give way to allocations.
    match system.cgroup_limits() {
        Some(group) => {
            let free = group.total_memory.saturating_sub(group.rss);
            (name, group.total_memory.min(total), free.min(available))
        }
        None => (name, total, available),
    }
}

/// Side of the square matrices whose product is timed: 2·1024³ = 2.1 GFLOP, about 10 ms on eight
/// cores, and 3 x 4 MiB, beyond the L2 cache of one core.
const MATMUL_SIZE: usize = 1024;
/// Rows of a product that `flex` does not spread over threads.
const SMALL: usize = 64;
/// Elements copied: 64 MiB of fp32, beyond the last-level cache of a desktop.
const COPY_ELEMENTS: usize = 16 << 20;
/// The fastest of this many is the ceiling: noise only ever slows.
const REPEATS: usize = 4;

/// Runs an fp32 product of [`MATMUL_SIZE`].
fn multiply_fp32() -> impl FnMut() {
    let [a, b] = [0.5, 0.25].map(|x| vec![x; MATMUL_SIZE * MATMUL_SIZE]);
    let mut c = vec![0.0; MATMUL_SIZE * MATMUL_SIZE];
    move || {
        let [a, b] = [&a, &b].map(|x| Matrix::new(x, MATMUL_SIZE, MATMUL_SIZE));
        cpu_kernels::product(a, b, Target::over(&mut c, MATMUL_SIZE));
    }
}

/// Two random square matrices of [`MATMUL_SIZE`].
fn matrices(compute: Compute) -> [Tensor<2>; 2] {
    let shape = [MATMUL_SIZE, MATMUL_SIZE];
    let _drawing = drawing();
    [(); 2].map(|()| Tensor::random(shape, Distribution::Normal(0.0, 1.0), (&Device::flex(), dtype(compute))))
}

/// One product large enough that every thread allocates its packing buffers, and one small enough
/// to stay on this thread, which allocates its own.
pub fn warm_up(compute: Compute) {
    multiply_fp32()();
    if matches!(compute, Compute::Fp32 | Compute::Tf32) {
        return;
    }
    let [a, b] = matrices(compute);
    drop(a.clone().matmul(b.clone()));
    drop(a.slice([0..SMALL, 0..MATMUL_SIZE]).matmul(b.slice([0..MATMUL_SIZE, 0..SMALL])));
}

pub fn ceilings(types: &[Compute]) -> Ceilings {
    let mut ceilings = Ceilings::default();
    let rate = |seconds: f64| Some(2.0 * (MATMUL_SIZE as f64).powi(3) / seconds);
    let of_few_bits = |compute| {
        let [a, b] = matrices(compute);
        rate(fastest(|| drop(a.clone().matmul(b.clone()))))
    };
    for compute in types {
        match compute {
            Compute::Fp32 => ceilings.matmul_fp32 = rate(fastest(multiply_fp32())),
            // The CPU has none; no cell asks for it.
            Compute::Tf32 => {}
            Compute::Bf16 => ceilings.matmul_bf16 = of_few_bits(Compute::Bf16),
            Compute::Fp16 => ceilings.matmul_fp16 = of_few_bits(Compute::Fp16),
        }
    }
    let from = vec![1.0f32; COPY_ELEMENTS];
    let mut to = vec![0.0f32; COPY_ELEMENTS];
    let seconds = fastest(|| to.copy_from_slice(std::hint::black_box(&from)));
    std::hint::black_box(&to);
    ceilings.copy = Some(2.0 * (4 * COPY_ELEMENTS) as f64 / seconds);
    ceilings
}

fn fastest(mut run: impl FnMut()) -> f64 {
    run();
    (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

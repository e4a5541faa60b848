//! The CPU through Burn's `flex` backend.

use std::time::Instant;

use burn::tensor::{Device, Distribution, Tensor};
use sysinfo::System;

use super::{Ceilings, DeviceInfo, dtype};
use crate::recipe::Compute;

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
        driver: None,
        cuda: None,
        compute_capability: None,
    }
}

/// Name, total and available memory.
fn describe(mut system: System) -> (String, u64, u64) {
    system.refresh_memory();
    system.refresh_cpu_all();
    let name = system.cpus().first().map(|cpu| cpu.brand().trim().to_string()).unwrap_or_default();
    let (total, available) = (system.total_memory(), system.available_memory());
    // In a container the group's limit counts, not the machine's memory.
    match system.cgroup_limits() {
        Some(group) => (name, group.total_memory.min(total), group.free_memory.min(available)),
        None => (name, total, available),
    }
}

/// Side of the square matrices whose product is timed: 2·1024³ = 2.1 GFLOP, about 10 ms on eight
/// cores, and 3 x 4 MiB, beyond the L2 cache of one core.
const MATMUL_SIZE: usize = 1024;
/// Elements copied: 64 MiB of fp32, beyond the last-level cache of a desktop.
const COPY_ELEMENTS: usize = 16 << 20;
/// The fastest of this many is the ceiling: noise only ever slows.
const REPEATS: usize = 4;

pub fn ceilings(types: &[Compute]) -> Ceilings {
    let device = Device::flex();
    let mut ceilings = Ceilings::default();
    for compute in types {
        let n = MATMUL_SIZE;
        let make = || Tensor::<2>::random([n, n], Distribution::Normal(0.0, 1.0), (&device, dtype(*compute)));
        let (a, b) = (make(), make());
        let seconds = fastest(|| drop(a.clone().matmul(b.clone())));
        let rate = Some(2.0 * (n as f64).powi(3) / seconds);
        match compute {
            Compute::Fp32 => ceilings.matmul_fp32 = rate,
            // The CPU has none; no cell asks for it.
            Compute::Tf32 => {}
            Compute::Bf16 => ceilings.matmul_bf16 = rate,
            Compute::Fp16 => ceilings.matmul_fp16 = rate,
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

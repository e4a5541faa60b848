//! Checks of the CUDA path on a machine with an NVIDIA GPU, one printed line each, and the rates
//! and memory of the SwiGLU study's shapes.
//!
//! ```text
//! cargo run --release --example cuda_check -- [device] [matmul] [tuning] [streams] [slots] [offload] [swiglu] [kernels] [loading] [loss] [precision] [rates] [loop] [memory]
//! ```
//! Without arguments everything runs. `shapes` alone measures all shapes in one process, whose
//! memory pools one shape leaves to the next; `shapes fp32 4 1` measures one of them (compute type,
//! number, level) as a cell would. The exit code is 1 when a check fails, 0 without a GPU.

mod host_optimizer;
mod kernels;
mod limits;
mod loading;
mod loss;
mod offload;
mod operator;
mod precision;
mod products;
mod rates;
mod reference;
mod slots;
mod views;

use std::time::Instant;

use runner::device::DeviceId;
use runner::device::cuda::{self, Gpu};
use runner::recipe::Compute;

const TYPES: [Compute; 4] = [Compute::Fp32, Compute::Tf32, Compute::Bf16, Compute::Fp16];

fn main() {
    if cuda::count() == 0 {
        println!("skipped: no NVIDIA driver with a device was found");
        return;
    }
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |section: &str| asked.is_empty() || asked.iter().any(|name| name == section);
    let start = Instant::now();
    let gpu = Gpu::open(0);
    println!("opened in {:.2} s", start.elapsed().as_secs_f64());
    println!("stream: {:?}; cuBLASLt: {:?}", gpu.stream_path(), gpu.blas_version());
    let mut checks = Checks { failed: 0 };
    if wanted("device") {
        println!("{:#?}", DeviceId::Cuda(0).info());
    }
    if wanted("matmul") {
        products::matmul_against_f64(gpu, &mut checks);
        products::burn_matmul_is_tf32(gpu, &mut checks);
        views::views_against_f64(gpu, &mut checks);
    }
    if wanted("tuning") {
        views::tuning_changes_no_result(gpu, &mut checks);
    }
    if wanted("streams") {
        limits::order_on_every_path(gpu, &mut checks);
        limits::trace_holds_every_product(gpu, &mut checks);
    }
    if wanted("slots") {
        slots::refills_beside_kernels(gpu, &mut checks);
    }
    if wanted("offload") {
        offload::order_of_slots(&mut checks);
        host_optimizer::fifty_steps(&mut checks);
        host_optimizer::against_references(&mut checks);
    }
    if wanted("swiglu") {
        operator::swiglu_against_cpu(gpu, &mut checks);
    }
    if wanted("kernels") {
        kernels::all(gpu, &mut checks);
    }
    if wanted("loading") {
        loading::staging(gpu, &mut checks);
        loading::packed_attention(gpu, &mut checks);
    }
    if wanted("loss") {
        loss::memory_and_time(gpu, &mut checks);
        loss::gradients_against_f64(gpu, &mut checks);
    }
    if wanted("precision") {
        precision::autocast_regions(&mut checks);
        precision::golden_scales(&mut checks);
        precision::skipped_steps(&mut checks);
        precision::nothing_waits(gpu, &mut checks);
    }
    if wanted("rates") {
        rates::rates(gpu);
    }
    if wanted("shapes") {
        operator::shapes(gpu, &asked, start);
    }
    if wanted("loop") {
        operator::memory_of_a_long_loop(gpu, &mut checks);
    }
    if wanted("memory") {
        limits::out_of_memory_is_reported(gpu, &mut checks);
    }
    println!("{} checks failed; {:.1} s in all", checks.failed, start.elapsed().as_secs_f64());
    std::process::exit(i32::from(checks.failed > 0));
}

struct Checks {
    failed: usize,
}

impl Checks {
    fn verdict(&mut self, name: &str, holds: bool, figures: &str) {
        self.failed += usize::from(!holds);
        println!("{} {name}: {figures}", if holds { "pass" } else { "FAIL" });
    }

    fn below(&mut self, name: &str, value: f64, tolerance: f64) {
        self.verdict(name, value <= tolerance, &format!("{value:.2e}, tolerance {tolerance:.0e}"));
    }
}

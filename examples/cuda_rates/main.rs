//! Rates on an NVIDIA GPU: matrix products, the language-model kernels' bandwidth, updates of 500 million parameters, and
//! times and memory of the SwiGLU study's shapes.
//!
//! ```text
//! cargo run --release --example cuda_rates -- [products] [kernels] [updates] [shapes]
//! ```
//! Without arguments everything is measured, all shapes in one process, whose memory pools one shape leaves
//! to the next; `shapes fp32 4 1` measures one of them (compute type, number, level) as a cell would.

mod kernels;
mod products;
mod shapes;
mod updates;

#[path = "../../tests/gpu/kernels/data.rs"]
#[expect(dead_code, reason = "tests/gpu uses the rest")]
mod data;
#[path = "../../tests/gpu/reference.rs"]
#[expect(dead_code, reason = "tests/gpu uses the rest")]
mod reference;
#[path = "../../tests/gpu/stack.rs"]
mod stack;

use std::process::ExitCode;
use std::time::Instant;

use runner::device::cuda::{self, Gpu};

fn main() -> ExitCode {
    cuda::libraries::arrange(false);
    if cuda::count() == 0 {
        eprintln!("the NVIDIA driver reports no device");
        return ExitCode::FAILURE;
    }
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |section: &str| asked.is_empty() || asked.iter().any(|name| name == section);
    let start = Instant::now();
    let gpu = Gpu::open(0);
    println!("stream: {:?}; cuBLASLt: {:?}", gpu.stream_path(), gpu.blas_version());
    if wanted("products") {
        products::rates(gpu);
    }
    if wanted("kernels") {
        kernels::rates(gpu);
    }
    if wanted("updates") {
        updates::rates(gpu);
    }
    if wanted("shapes") {
        shapes::shapes(gpu, &asked, start);
    }
    ExitCode::SUCCESS
}

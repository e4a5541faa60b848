//! The library on an NVIDIA GPU, against references in f64: products, kernels, copies and their order,
//! memory, mixed precision.
//!
//! ```text
//! cargo test --release --test gpu -- --ignored --test-threads 1
//! ```

mod attention;
mod collectives;
mod compact;
mod dora;
mod host_optimizer;
mod kernels;
mod layers;
mod limits;
mod loading;
mod lora;
mod loss;
mod offload;
mod operator;
mod packed;
mod precision;
mod products;
mod profile;
mod reference;
mod stack;
mod store;
mod views;

use std::sync::{Mutex, PoisonError};

use runner::device::Feature;
use runner::device::cuda::{self, Gpu};

/// Runs checks on the first GPU, one test at a time: they fill its memory and time what they do.
///
/// # Panics
/// Where there is no GPU, and when a check fails.
fn on_gpu(run: impl FnOnce(&'static Gpu, &mut Checks)) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(cuda::count() > 0, "this test needs an NVIDIA GPU, and the driver reports none");
    let gpu = Gpu::open(0);
    // Each test has a thread, and each thread a stream, whose handle is learned before Burn uses it.
    gpu.stream_path();
    let _memory = GivenBack(gpu);
    let mut checks = Checks::default();
    run(gpu, &mut checks);
    let failed = checks.failed;
    assert!(failed.is_empty(), "{} of {} checks failed:\n{}", failed.len(), checks.made, failed.join("\n"));
}

/// Whether the first GPU, or what `RUNNER_CAPABILITY` takes it for, lacks something, which is said.
fn lacks(feature: Feature) -> bool {
    let own = cuda::capability(0);
    let lacks = !own.has(feature);
    if lacks {
        println!("skipped, or in other types: {feature}, and the GPU is taken for {own}");
    }
    lacks
}

/// What the thread's pools still hold when a test ends is for the next one.
struct GivenBack(&'static Gpu);

impl Drop for GivenBack {
    fn drop(&mut self) {
        self.0.release_memory();
    }
}

/// All checks of a test are made, also when one fails.
#[derive(Default)]
struct Checks {
    made: usize,
    failed: Vec<String>,
}

impl Checks {
    fn verdict(&mut self, name: &str, holds: bool, figures: &str) {
        println!("{} {name}: {figures}", if holds { "pass" } else { "FAIL" });
        self.made += 1;
        self.failed.extend((!holds).then(|| format!("{name}: {figures}")));
    }

    fn below(&mut self, name: &str, value: f64, tolerance: f64) {
        self.verdict(name, value <= tolerance, &format!("{value:.2e}, tolerance {tolerance:.0e}"));
    }
}

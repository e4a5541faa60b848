//! The language-model kernels against f64 on the host, and the memory bandwidth they reach.

mod attention;
mod data;
mod loss;
mod norms;
mod rows;
mod updates;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use burn_cubecl::tensor::CubeTensor;
use runner::device::cuda::{Event, Gpu};

use crate::Checks;
use data::{distance, download, tolerance};

/// A part of the checks.
type Section = fn(&mut Bench);

/// Every kernel: small shapes for the values, large ones for the bandwidth.
pub fn all(gpu: &'static Gpu, checks: &mut Checks) {
    let mut bench = Bench { gpu, checks };
    let sections: [(&str, Section); 19] = [
        ("elementwise", rows::elementwise),
        ("sums", loss::sums),
        ("mean square", loss::mean_square),
        ("gelu", rows::gelu),
        ("rms_norm", norms::rms),
        ("layer_norm", norms::layer),
        ("rope", attention::rope_values),
        ("heads", attention::heads),
        ("softmax", attention::softmax),
        ("cross entropy", loss::cross_entropy),
        ("embedding", rows::embedding),
        ("adamw", updates::adamw_steps),
        ("sgd", updates::sgd_steps),
        ("guarded updates", updates::guarded_steps),
        ("norm rates", norms::rates),
        ("attention rates", attention::rates),
        ("loss rates", loss::rates),
        ("row rates", rows::rates),
        ("update rates", updates::rates),
    ];
    for (name, section) in sections {
        let start = Instant::now();
        // A kernel that does not compile must not hide what the others do.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| section(&mut bench))) {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let message = panic.downcast_ref::<String>().cloned().or(text).unwrap_or_default();
            bench.checks.verdict(name, false, &message.chars().take(2000).collect::<String>());
        }
        println!("{name}: {:.1} s", start.elapsed().as_secs_f64());
    }
}

/// What the sections report to.
pub struct Bench<'a> {
    pub gpu: &'static Gpu,
    checks: &'a mut Checks,
}

impl Bench<'_> {
    /// Compares a result with what f64 arithmetic gives; allows the rounding of the result's type.
    pub fn compare(&mut self, name: &str, got: &CubeTensor, expected: &[f64]) {
        self.compare_within(name, got, expected, tolerance(got.dtype));
    }

    pub fn compare_within(&mut self, name: &str, got: &CubeTensor, expected: &[f64], allowed: f64) {
        let error = distance(&download(got), expected);
        let figures = format!(
            "{:?} {:?}, largest error {error:.1e}, allowed {allowed:.1e}",
            got.meta.shape(),
            got.dtype
        );
        self.checks.verdict(name, error <= allowed, &figures);
    }

    pub fn holds(&mut self, name: &str, holds: bool) {
        self.checks.verdict(name, holds, "");
    }

    /// Prints the bandwidth of a launch that moves `bytes` bytes between the multiprocessors and
    /// the device's memory.
    pub fn rate(&mut self, name: &str, bytes: usize, mut launch: impl FnMut()) {
        const LAUNCHES: u32 = 20;
        (0..3).for_each(|_| launch());
        self.gpu.synchronize();
        let start = Event::record(self.gpu);
        let clock = Instant::now();
        (0..LAUNCHES).for_each(|_| launch());
        let host = clock.elapsed().as_secs_f64() / f64::from(LAUNCHES);
        let seconds = Event::record(self.gpu).seconds_since(&start) / f64::from(LAUNCHES);
        let rate = bytes as f64 / seconds / 1e9;
        println!("rate {name}: {rate:.0} GB/s, {:.1} us (host {:.1} us)", seconds * 1e6, host * 1e6);
    }
}

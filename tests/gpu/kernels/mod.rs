//! The language-model kernels against f64 on the host.

mod attention;
mod data;
mod loss;
mod norms;
mod rows;
mod updates;

use burn_cubecl::tensor::CubeTensor;

use crate::{Checks, on_gpu};
use data::{distance, download, tolerance};

/// As [`on_gpu`], with comparisons of tensors.
fn bench(run: impl FnOnce(&mut Bench)) {
    on_gpu(|_, checks| run(&mut Bench { checks }));
}

struct Bench<'a> {
    checks: &'a mut Checks,
}

impl Bench<'_> {
    /// Compares a result with what f64 arithmetic gives; allows the rounding of the result's type.
    fn compare(&mut self, name: &str, got: &CubeTensor, expected: &[f64]) {
        self.compare_within(name, got, expected, tolerance(got.dtype));
    }

    fn compare_within(&mut self, name: &str, got: &CubeTensor, expected: &[f64], allowed: f64) {
        let error = distance(&download(got), expected);
        let figures = format!(
            "{:?} {:?}, largest error {error:.1e}, allowed {allowed:.1e}",
            got.meta.shape(),
            got.dtype
        );
        self.checks.verdict(name, error <= allowed, &figures);
    }

    fn holds(&mut self, name: &str, holds: bool) {
        self.checks.verdict(name, holds, "");
    }
}

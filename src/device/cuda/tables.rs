//! Numbers of the CPU's kernels as CUDA C++ has them.

use itertools::Itertools;

/// An array of a kernel's source.
pub fn table(kind: &str, name: &str, numbers: impl IntoIterator<Item = u32>) -> String {
    let numbers = numbers.into_iter().join(",");
    format!("__device__ const {kind} {name}[] = {{{numbers}}};\n")
}

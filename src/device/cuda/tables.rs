//! What the CPU's kernels have in CUDA C++ too: tables of numbers, and Philox with its constants.

use cpu_kernels::random::{KEY_STEPS, MULTIPLIERS, ROUNDS};
use itertools::Itertools;

/// An array of a kernel's source.
pub fn table(kind: &str, name: &str, numbers: impl IntoIterator<Item = u32>) -> String {
    let numbers = numbers.into_iter().join(",");
    format!("__device__ const {kind} {name}[] = {{{numbers}}};\n")
}

/// Philox4x32-10, as a kernel's source has it.
pub fn philox() -> String {
    let ([x, y], [key_x, key_y]) = (MULTIPLIERS, KEY_STEPS);
    let constants = format!(
        "constexpr u32 PHILOX_ROUNDS = {ROUNDS}, PHILOX_X = {x}u, PHILOX_Y = {y}u, PHILOX_KEY_X = {key_x}u, \
         PHILOX_KEY_Y = {key_y}u;\n"
    );
    constants + include_str!("kernels/philox.cuh")
}

//! CUDA kernels of the language-model operators, as functions on Burn's CUDA tensors.
//!
//! All arithmetic is fp32 in the registers whatever the tensors' type; statistics, losses and
//! sums are f32 tensors. No kernel adds floats atomically: results do not depend on the order in
//! which blocks run. Index tensors are i32.

pub mod columns;
pub mod elementwise;
pub(crate) mod launch;
pub(crate) mod row;
pub mod sum;

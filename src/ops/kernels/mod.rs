//! CUDA kernels of the language-model operators, as functions on Burn's CUDA tensors.
//!
//! All arithmetic is fp32 in the registers whatever the tensors' type; statistics, losses and
//! sums are f32 tensors. No kernel adds floats atomically: results do not depend on the order in
//! which blocks run. Index tensors are i32.

pub mod adamw;
pub mod columns;
pub mod cross_entropy;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod gelu;
pub mod heads;
pub(crate) mod launch;
pub mod norm;
mod norm_kernels;
pub mod rope;
mod row;
pub mod sgd;
pub mod softmax;
mod softmax_kernels;
pub mod sum;

//! Weights on disk: a Hugging Face folder of safetensors, memory-mapped, checked against the
//! tensors a model expects, and converted while they are copied out.

mod check;
mod convert;
mod file;
mod folder;
pub mod found;
pub mod inner;

#[cfg(test)]
mod tests;

pub use check::{HEAD, is_embedding, shortened};
pub use convert::{float, stored, write_elements};
pub use file::TensorFile;
pub use folder::{INDEX, Weights, files};

//! Weights on disk: a Hugging Face folder of safetensors, memory-mapped, checked against the
//! tensors a model expects, and converted while they are copied out.

mod check;
mod convert;
mod file;
mod folder;
mod view;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use folder::{Weights, files};
pub use safetensors::Dtype;
pub use view::View;

/// What is wrong with weights, by file and tensor.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} holds no model.safetensors and no model.safetensors.index.json{hint}", .folder.display())]
    Missing { folder: PathBuf, hint: &'static str },
    #[error("{} is damaged: {message}; download or write it again", .path.display())]
    Damaged { path: PathBuf, message: String },
    #[error("{}: {message}", .path.display())]
    Index { path: PathBuf, message: String },
    #[error("the weights in {} do not fit the model:\n{}", .folder.display(), .problems.join("\n"))]
    Mismatch { folder: PathBuf, problems: Vec<String> },
    #[error("{0}")]
    Tensor(String),
}

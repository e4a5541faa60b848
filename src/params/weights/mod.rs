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
    #[error(
        "the weights in {} do not fit the model that its config.json describes:\n{}\ncorrect the keys of {}, or \
         take the config.json that belongs to the weights",
        .folder.display(), shortened(.problems), .folder.join("config.json").display()
    )]
    Mismatch { folder: PathBuf, problems: Vec<String> },
    #[error("{0}")]
    Tensor(String),
}

/// Problems that an error lists.
const MOST_PROBLEMS: usize = 20;

/// The first problems, one a line, and how many more there are.
fn shortened(problems: &[String]) -> String {
    let mut lines = problems[..problems.len().min(MOST_PROBLEMS)].to_vec();
    let more = problems.len() - lines.len();
    lines.extend((more > 0).then(|| format!("  and {more} more")));
    lines.join("\n")
}

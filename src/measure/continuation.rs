//! [`Continuation`]: what a model wrote behind a prompt, at one moment of training.

use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuation {
    /// Steps taken so far.
    pub step: usize,
    pub prompt: String,
    pub text: String,
}

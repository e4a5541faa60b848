//! [`Evaluation`]: quality on held-out data at one moment of training.

use serde::{Deserialize, Serialize};

/// Means over the counted tokens of the held-out batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps taken so far.
    pub step: usize,
    /// Cross-entropy in nats a token.
    pub loss: f64,
    /// Share of tokens whose most probable continuation was the real one.
    pub accuracy: f64,
}

impl Evaluation {
    /// The mean of evaluations of equally large batches.
    pub fn mean(step: usize, parts: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| parts.iter().map(of).sum::<f64>() / parts.len().max(1) as f64;
        Self { step, loss: mean(|part| part.loss), accuracy: mean(|part| part.accuracy) }
    }

    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }
}

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
    /// The mean over all counted tokens, from those of batches with so many tokens each.
    pub fn mean(step: usize, parts: &[(Self, f64)]) -> Self {
        let count = parts.len().max(1) as f64;
        let tokens: f64 = parts.iter().map(|(_, tokens)| tokens).sum();
        // Exactly 1 where all batches have as many.
        let weight = |of: f64| of * count / tokens.max(1.0);
        let mean = |of: fn(&Self) -> f64| {
            parts.iter().map(|(part, tokens)| of(part) * weight(*tokens)).sum::<f64>() / count
        };
        Self { step, loss: mean(|part| part.loss), accuracy: mean(|part| part.accuracy) }
    }

    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_count_by_their_tokens() {
        let part = |loss, accuracy, tokens| (Evaluation { loss, accuracy, ..Evaluation::default() }, tokens);
        let mean = Evaluation::mean(3, &[part(1.0, 0.5, 30.0), part(5.0, 0.0, 10.0)]);
        assert_eq!(mean, Evaluation { step: 3, loss: 2.0, accuracy: 0.375 });
        let losses = [0.1, 0.7, 0.3];
        let equal = Evaluation::mean(0, &losses.map(|loss| part(loss, 0.0, 1023.0)));
        assert_eq!(equal.loss, losses.iter().sum::<f64>() / 3.0, "to the last digit");
    }
}

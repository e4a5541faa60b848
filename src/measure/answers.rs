//! [`Answers`]: a model's answers to the questions of a test set, and [`Continuation`]: what it wrote after a prompt, at one
//! moment of training.

use serde::{Deserialize, Serialize};

/// The normal distribution has 95 % within so many standard deviations of its mean.
const DEVIATIONS: f64 = 1.959_963_984_540_054;

/// The answers to a test set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Steps taken so far.
    pub step: usize,
    /// The name of the test set.
    pub set: String,
    pub questions: usize,
    pub right: usize,
    /// Generated tokens, and the seconds that generation took, prompts included.
    pub tokens: u64,
    pub seconds: f64,
    /// The first right ones and the first wrong ones; of choices those of the smallest margin.
    pub samples: Vec<Answer>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub question: String,
    /// The worked answer that comes with the question, or all answers that are right.
    pub expected: String,
    pub given: String,
    pub right: bool,
    /// Of a choice: nats a character by which the right one is more likely than the most likely other.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub margin: Option<f64>,
}

/// What a model wrote after a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuation {
    /// Steps taken so far.
    pub step: usize,
    pub prompt: String,
    pub text: String,
}

impl Answers {
    /// The share of right answers.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.questions.max(1) as f64
    }

    /// The 95 % interval of that share.
    pub fn interval(&self) -> [f64; 2] {
        wilson(self.accuracy(), self.questions)
    }

    /// `None` where answers are classes or choices.
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.tokens as f64 / self.seconds)
    }
}

/// The 95 % interval of a share of `count` (Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference"):
/// (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n).
pub fn wilson(share: f64, count: usize) -> [f64; 2] {
    let (n, p) = (count.max(1) as f64, share);
    let square = DEVIATIONS * DEVIATIONS / n;
    let half = DEVIATIONS * (p * (1.0 - p) / n + square / (4.0 * n)).sqrt();
    let [low, high] = [-half, half].map(|half| (p + square / 2.0 + half) / (1.0 + square));
    // Rounding leaves something below 0 and 1.
    [if p == 0.0 { 0.0 } else { low }, if p == 1.0 { 1.0 } else { high }]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the formula, in Python.
    #[test]
    fn the_interval_is_wilsons() {
        for (right, questions, [low, high]) in [
            (0, 10, [0.0, 0.277_532_799_863]),
            (81, 263, [0.255_288_519_878, 0.366_209_576_976]),
            (10, 10, [0.722_467_200_137, 1.0]),
        ] {
            let answers = Answers {
                step: 0,
                set: "test".into(),
                questions,
                right,
                tokens: 0,
                seconds: 1.0,
                samples: Vec::new(),
            };
            let found = answers.interval();
            assert!((found[0] - low).abs() < 1e-9 && (found[1] - high).abs() < 1e-9, "{right}: {found:?}");
        }
    }
}

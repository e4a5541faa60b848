//! [`Loading`]: the sizes of the batches of a cell with a sampler, and the time it waited for them.

use serde::{Deserialize, Serialize};

use super::{Samples, Texts};
use crate::common::text::percent;

/// The size of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub samples: u64,
    /// Samples that the sampler left out.
    pub dropped_samples: u64,
    /// Real tokens.
    pub tokens: u64,
    pub padding: u64,
    /// Samples of which a part is cut off. Saved states of earlier versions have no number of them.
    #[serde(default)]
    pub cut_samples: u64,
    /// Tokens of its samples beyond the largest length or the end of a packed sequence.
    pub cut: u64,
    /// The sum of the samples' squared lengths, in proportion to the work of attention.
    pub squares: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.samples += other.samples;
        self.dropped_samples += other.dropped_samples;
        self.tokens += other.tokens;
        self.padding += other.padding;
        self.cut_samples += other.cut_samples;
        self.cut += other.cut;
        self.squares += other.squares;
    }
}

/// The batches of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub counts: Counts,
    /// Seconds the training loop waited for the step's batches to be ready on the host.
    pub stall: f64,
}

/// The batches of all measured steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loading {
    /// Seconds of the whole training run: from asking for the first measured step's batch until the device
    /// was done with the last, without evaluation.
    pub run_seconds: f64,
    pub samples: u64,
    /// Samples that the sampler left out.
    pub dropped_samples: u64,
    /// Real tokens, of each step.
    pub step_tokens: Vec<u64>,
    /// Tokens that fill batches up.
    pub padding_tokens: u64,
    /// Samples of which a part was cut off; rows of earlier versions do not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cut_samples: Option<u64>,
    /// Tokens of samples beyond `train.seq_len` or the end of a packed sequence.
    pub cut_tokens: u64,
    /// Seconds each step waited for its batch to be ready on the host.
    pub stall: Samples,
    /// Rows and their tokens of the largest batch that the sampler makes of this text; warm-up trained on it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub largest_batch: Option<[usize; 2]>,
    /// The samples that the sampler draws from; rows of earlier versions do not have them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub texts: Option<Texts>,
}

impl Loading {
    /// # Panics
    /// Without a step.
    pub fn new(run_seconds: f64, loads: &[Load]) -> Self {
        let sum = |of: fn(&Counts) -> u64| loads.iter().map(|load| of(&load.counts)).sum();
        Self {
            run_seconds,
            samples: sum(|c| c.samples),
            dropped_samples: sum(|c| c.dropped_samples),
            step_tokens: loads.iter().map(|load| load.counts.tokens).collect(),
            padding_tokens: sum(|c| c.padding),
            cut_samples: Some(sum(|c| c.cut_samples)),
            cut_tokens: sum(|c| c.cut),
            stall: Samples::new(loads.iter().map(|load| load.stall).collect()),
            largest_batch: None,
            texts: None,
        }
    }

    /// Real tokens.
    pub fn tokens(&self) -> u64 {
        self.step_tokens.iter().sum()
    }

    /// Padding among all tokens that were computed with.
    pub fn padding_share(&self) -> f64 {
        self.padding_tokens as f64 / (self.padding_tokens + self.tokens()).max(1) as f64
    }

    /// Tokens a second with padding.
    pub fn computed_per_second(&self) -> f64 {
        (self.padding_tokens + self.tokens()) as f64 / self.run_seconds
    }

    /// The tokens that were cut off, among all of the samples.
    pub fn cut_share(&self) -> f64 {
        self.cut_tokens as f64 / (self.cut_tokens + self.tokens()).max(1) as f64
    }

    /// The samples that were left out, among all.
    pub fn dropped_share(&self) -> f64 {
        self.dropped_samples as f64 / (self.dropped_samples + self.samples).max(1) as f64
    }

    /// What was not trained on, in words; empty where that is nothing.
    pub fn lost(&self) -> String {
        let mut parts = Vec::new();
        if self.cut_tokens > 0 {
            let of_samples = self.cut_samples.map(|cut| format!("{cut} of {} samples cut, ", self.samples));
            parts.push(format!(
                "{}{} of their tokens lost",
                of_samples.unwrap_or_default(),
                percent(self.cut_share())
            ));
        }
        if self.dropped_samples > 0 {
            let all = self.dropped_samples + self.samples;
            let share = percent(self.dropped_share());
            parts.push(format!("{} of {all} samples dropped, {share}", self.dropped_samples));
        }
        parts.join("; ")
    }

    /// The share of the run in which the training loop waited for batches.
    pub fn stall_share(&self) -> f64 {
        self.stall.seconds.iter().sum::<f64>() / self.run_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_hand() {
        let load = |tokens, padding, stall| Load {
            counts: Counts {
                samples: 2,
                dropped_samples: 3,
                tokens,
                padding,
                cut_samples: 1,
                cut: 25,
                squares: 0,
            },
            stall,
        };
        let loading = Loading::new(4.0, &[load(60, 40, 0.5), load(90, 10, 0.1)]);
        assert_eq!((loading.cut_share(), loading.dropped_share()), (0.25, 0.6));
        assert_eq!(
            loading.lost(),
            "2 of 4 samples cut, 25 % of their tokens lost; 6 of 10 samples dropped, 60 %"
        );
        let whole = Load { counts: Counts { samples: 2, tokens: 9, ..Counts::default() }, stall: 0.0 };
        assert_eq!(Loading::new(4.0, &[whole]).lost(), "");
        assert_eq!((loading.samples, loading.tokens()), (4, 150));
        assert_eq!((loading.padding_share(), loading.stall_share()), (0.25, 0.15));
    }
}

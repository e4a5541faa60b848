//! [`SamplerConfig`]: the keys of `[data]` that say how samples become batches.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Rows, Sampler};
use crate::data::samples::{SampleUnit, Tokenize};
use crate::data::section::RawData;
use crate::words::Rule;

const NUM_WORKERS: usize = 1;
/// Enough to bridge one batch that takes twice as long.
const PREFETCH_FACTOR: usize = 2;

/// `data.sampler` and the keys that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerConfig {
    pub sampler: Sampler,
    pub samples: SampleUnit,
    /// Tokens by which the samples of a balanced batch may differ.
    pub k: usize,
    pub last_sample: LastSample,
    /// The largest batch of an epoch comes first, so that a lack of memory shows early.
    pub longest_first: bool,
    /// Batches with fewer samples than `train.batch_size` are left out.
    pub drop_last: bool,
    /// Rows of a batch are filled up to a multiple of this.
    pub pad_to_multiple_of: usize,
    pub tokenize: Tokenize,
    /// Threads that make batches ready; 0: the training loop makes them.
    pub num_workers: usize,
    /// Batches that each thread has ready.
    pub prefetch_factor: usize,
    /// Whether batches go to a GPU through page-locked memory, in one copy each.
    pub pinned: bool,
}

/// `data.last_sample`: what becomes of a sample that does not fit whole into a packed sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastSample {
    #[default]
    Cut,
    Drop,
}

impl SamplerConfig {
    /// With the default of every option. A batch of blocks is a copy, which needs no thread and no buffer of
    /// its own.
    pub fn of(sampler: Sampler) -> Self {
        Self {
            sampler,
            samples: SampleUnit::default(),
            k: 0,
            last_sample: LastSample::default(),
            longest_first: false,
            drop_last: false,
            pad_to_multiple_of: 1,
            tokenize: Tokenize::Once,
            num_workers: if sampler.keeps_samples() { NUM_WORKERS } else { 0 },
            prefetch_factor: PREFETCH_FACTOR,
            pinned: sampler.keeps_samples(),
        }
    }

    /// Tokens of a row whose longest sample has so many, none of them more than `max_length`.
    pub fn width(&self, longest: usize, batch_size: usize, max_length: usize) -> usize {
        match self.sampler.rows() {
            Rows::Full => max_length,
            Rows::Longest => longest.next_multiple_of(self.pad_to_multiple_of).min(max_length),
            Rows::Packed => batch_size * max_length,
        }
    }

    /// Refuses rows of `seq_len` tokens that are not what the recipe asks rows to be.
    pub(crate) fn check(&self, seq_len: usize) -> Result<(), Rule> {
        let multiple = self.pad_to_multiple_of;
        if self.sampler.rows() == Rows::Longest || seq_len.is_multiple_of(multiple) {
            return Ok(());
        }
        Err(Rule::new(
            &["data.pad_to_multiple_of", "train.seq_len"],
            format!(
                "this sampler makes rows of train.seq_len = {seq_len} tokens, not a multiple of {multiple}"
            ),
            format!("make train.seq_len a multiple of {multiple}, or remove data.pad_to_multiple_of"),
        ))
    }

    /// From the keys as written.
    pub(in crate::data) fn from_keys(raw: &RawData) -> Result<Self, String> {
        let sampler = raw.sampler.unwrap_or_default();
        if !sampler.keeps_samples() {
            return match written(raw).into_iter().find(|(_, written)| *written) {
                None => Ok(Self::of(sampler)),
                Some((key, _)) => Err(format!(
                    "`{key}` is a key of data.sampler; without one the text is cut into equal blocks; remove \
                     it, or set sampler to \"padded\", \"standard\", \"balanced\" or \"packed\""
                )),
            };
        }
        let keys = sampler.method().keys();
        if raw.k.is_some() && !keys.contains(&"k") {
            return Err("`k` is of sampler = \"balanced\"; remove it".into());
        }
        if raw.k.is_none() && keys.contains(&"k") {
            return Err("sampler = \"balanced\" needs `k`, by how many tokens the samples of a batch may \
                        differ; 8 is a good start"
                .into());
        }
        if raw.last_sample.is_some() && !keys.contains(&"last_sample") {
            return Err("`last_sample` is of sampler = \"packed\"; remove it".into());
        }
        if sampler.rows() != Rows::Longest && raw.longest_first == Some(true) {
            return Err(
                "`longest_first` has no effect: the batches of this sampler are equally large; remove it, \
                 or use sampler = \"standard\" or \"balanced\""
                    .into(),
            );
        }
        let tokenize = raw.tokenize.unwrap_or_default();
        let longest_first = raw.longest_first.unwrap_or(false);
        if tokenize == Tokenize::EveryStep && (sampler.method().by_length() || longest_first) {
            return Err(
                "tokenize = \"every_step\" does not go with a sampler that needs the samples' lengths \
                        before it draws; use tokenize = \"once\""
                    .into(),
            );
        }
        let num_workers = raw.num_workers.unwrap_or(NUM_WORKERS);
        if num_workers == 0 && raw.prefetch_factor.is_some() {
            return Err(
                "`prefetch_factor` has no effect with num_workers = 0: no batch is ready ahead of the \
                        loop; remove it, or set num_workers to 1"
                    .into(),
            );
        }
        Ok(Self {
            sampler,
            samples: raw.samples.unwrap_or_default(),
            k: raw.k.unwrap_or(0),
            last_sample: raw.last_sample.unwrap_or_default(),
            longest_first,
            drop_last: raw.drop_last.unwrap_or(false),
            pad_to_multiple_of: raw.pad_to_multiple_of.unwrap_or(1),
            tokenize,
            num_workers,
            prefetch_factor: raw.prefetch_factor.unwrap_or(PREFETCH_FACTOR),
            pinned: raw.pinned.unwrap_or(true),
        })
    }

    /// The inverse of [`SamplerConfig::from_keys`], without what has its default.
    pub(in crate::data) fn write_keys(self, raw: &mut RawData) {
        if !self.sampler.keeps_samples() {
            return;
        }
        raw.sampler = Some(self.sampler);
        raw.samples = Some(self.samples);
        raw.k = self.sampler.method().keys().contains(&"k").then_some(self.k);
        raw.last_sample = unless_default(self.last_sample, LastSample::Cut);
        raw.longest_first = unless_default(self.longest_first, false);
        raw.drop_last = unless_default(self.drop_last, false);
        raw.pad_to_multiple_of = unless_default(self.pad_to_multiple_of, 1);
        raw.tokenize = unless_default(self.tokenize, Tokenize::Once);
        raw.num_workers = unless_default(self.num_workers, NUM_WORKERS);
        raw.prefetch_factor = unless_default(self.prefetch_factor, PREFETCH_FACTOR);
        raw.pinned = unless_default(self.pinned, true);
    }
}

fn unless_default<T: PartialEq>(value: T, default: T) -> Option<T> {
    (value != default).then_some(value)
}

/// What a sampler's key is where it is not written.
pub fn default_of(key: &str) -> Option<Value> {
    Some(match key {
        "data.last_sample" => "cut".into(),
        "data.longest_first" | "data.drop_last" => false.into(),
        "data.pad_to_multiple_of" => 1.into(),
        "data.tokenize" => "once".into(),
        "data.num_workers" => NUM_WORKERS.into(),
        "data.prefetch_factor" => PREFETCH_FACTOR.into(),
        "data.pinned" => true.into(),
        _ => return None,
    })
}

/// The keys that belong to a sampler, and whether they are written.
fn written(raw: &RawData) -> [(&'static str, bool); 10] {
    [
        ("samples", raw.samples.is_some()),
        ("k", raw.k.is_some()),
        ("last_sample", raw.last_sample.is_some()),
        ("longest_first", raw.longest_first.is_some()),
        ("drop_last", raw.drop_last.is_some()),
        ("pad_to_multiple_of", raw.pad_to_multiple_of.is_some()),
        ("tokenize", raw.tokenize.is_some()),
        ("num_workers", raw.num_workers.is_some()),
        ("prefetch_factor", raw.prefetch_factor.is_some()),
        ("pinned", raw.pinned.is_some()),
    ]
}

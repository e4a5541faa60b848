//! [`Data`]: the recipe's `[data]` section.

use std::path::PathBuf;

use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use super::Split;
use super::sampler::{LastSample, Sampler, SamplerConfig};
use super::samples::{SampleUnit, Tokenize};
use super::tokenizer::MIN_VOCAB_SIZE;
use crate::words::Bytes;
use crate::words::values;

/// Text that is generated where no size is written.
const GENERATED: Bytes = Bytes(4 << 20);
/// Tokens of a trained tokenizer where no number is written.
const VOCAB_SIZE: usize = 4096;
/// What is held out where no split is named.
pub(super) const EVAL_SPLIT: Split = Split::Valid;

/// `[data]`: what the model is trained and evaluated on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawData", into = "RawData")]
pub enum Data {
    /// Tokens drawn from the seed: for timing and memory, not for learning.
    #[default]
    Random,
    Text {
        corpus: TextSource,
        tokenizer: TokenizerSource,
        train_split: Split,
        eval_split: Split,
        sampler: SamplerConfig,
    },
}

impl Data {
    pub fn is_random(&self) -> bool {
        matches!(self, Self::Random)
    }

    /// How tokens become batches.
    pub fn sampler(&self) -> SamplerConfig {
        match self {
            Self::Random => SamplerConfig::of(Sampler::Blocks),
            Self::Text { sampler, .. } => *sampler,
        }
    }

    /// Whether a batch is one sequence of packed samples.
    pub fn is_packed(&self) -> bool {
        self.sampler().sampler.is_packed()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextSource {
    /// Stories drawn from the seed, this many bytes to train on.
    Generated { size: Bytes },
    /// A file or folder, relative to the current directory.
    Path(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerSource {
    /// A byte-level BPE of at most this many tokens, trained on the training split.
    Train { vocab_size: usize },
    /// A `tokenizer.json` or its folder, relative to the current directory.
    Path(PathBuf),
}

/// The keys of `[data]` as written.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawData {
    /// `"random"`, `"generated"` or a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    corpus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<Bytes>,
    /// `"train"` or a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "count")]
    vocab_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    train_split: Option<Split>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_split: Option<Split>,
    /// The keys below are its.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sampler: Option<Sampler>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) samples: Option<SampleUnit>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "count_or_zero")]
    pub(super) k: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_sample: Option<LastSample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) longest_first: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) drop_last: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "count")]
    pub(super) pad_to_multiple_of: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokenize: Option<Tokenize>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "count_or_zero")]
    pub(super) num_workers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "count")]
    pub(super) prefetch_factor: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pinned: Option<bool>,
}

fn count<'de, D: Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    values::count(d).map(Some)
}

fn count_or_zero<'de, D: Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    values::count_or_zero(d).map(Some)
}

impl TryFrom<RawData> for Data {
    type Error = String;

    fn try_from(raw: RawData) -> Result<Self, String> {
        let sampler = SamplerConfig::from_keys(&raw)?;
        let corpus = match raw.corpus.as_deref() {
            None | Some("random") => {
                let written = [
                    ("size", raw.size.is_some()),
                    ("tokenizer", raw.tokenizer.is_some()),
                    ("vocab_size", raw.vocab_size.is_some()),
                    ("train_split", raw.train_split.is_some()),
                    ("eval_split", raw.eval_split.is_some()),
                    ("sampler", raw.sampler.is_some()),
                ];
                return match written.iter().find(|(_, written)| *written) {
                    None => Ok(Self::Random),
                    Some((key, _)) => Err(format!(
                        "`{key}` has no meaning with corpus = \"random\", which has no text; remove it, or \
                         set corpus to \"generated\" or a path"
                    )),
                };
            }
            Some("generated") => TextSource::Generated { size: raw.size.unwrap_or(GENERATED) },
            Some(_) if raw.size.is_some() => {
                return Err(
                    "`size` is of corpus = \"generated\"; a corpus of files has its own; remove it".into()
                );
            }
            Some(path) => TextSource::Path(path.into()),
        };
        let tokenizer = match raw.tokenizer.as_deref() {
            None | Some("train") => {
                let vocab_size = raw.vocab_size.unwrap_or(VOCAB_SIZE);
                if vocab_size < MIN_VOCAB_SIZE {
                    return Err(format!(
                        "vocab_size must be at least {MIN_VOCAB_SIZE} (every byte and the end of a text), \
                         not {vocab_size}"
                    ));
                }
                TokenizerSource::Train { vocab_size }
            }
            Some(_) if raw.vocab_size.is_some() => {
                return Err(
                    "`vocab_size` is of tokenizer = \"train\"; a tokenizer file has its own; remove it"
                        .into(),
                );
            }
            Some(path) => TokenizerSource::Path(path.into()),
        };
        let train_split = raw.train_split.unwrap_or(Split::Train);
        let eval_split = raw.eval_split.unwrap_or(EVAL_SPLIT);
        Ok(Self::Text { corpus, tokenizer, train_split, eval_split, sampler })
    }
}

impl From<Data> for RawData {
    fn from(data: Data) -> Self {
        let Data::Text { corpus, tokenizer, train_split, eval_split, sampler } = data else {
            return Self { corpus: Some("random".into()), ..Self::default() };
        };
        let (corpus, size) = match corpus {
            TextSource::Generated { size } => ("generated".into(), Some(size)),
            TextSource::Path(path) => (path.display().to_string(), None),
        };
        let (tokenizer, vocab_size) = match tokenizer {
            TokenizerSource::Train { vocab_size } => ("train".into(), Some(vocab_size)),
            TokenizerSource::Path(path) => (path.display().to_string(), None),
        };
        let mut raw = Self {
            corpus: Some(corpus),
            size,
            tokenizer: Some(tokenizer),
            vocab_size,
            train_split: Some(train_split),
            eval_split: Some(eval_split),
            ..Self::default()
        };
        sampler.write_keys(&mut raw);
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Data, String> {
        toml::from_str(text).map_err(|e| e.message().to_string())
    }

    #[test]
    fn absent_keys_take_their_defaults() {
        assert_eq!(parse("").unwrap(), Data::Random);
        let text = Data::Text {
            corpus: TextSource::Generated { size: GENERATED },
            tokenizer: TokenizerSource::Train { vocab_size: VOCAB_SIZE },
            train_split: Split::Train,
            eval_split: Split::Valid,
            sampler: SamplerConfig::of(Sampler::Blocks),
        };
        assert_eq!(parse("corpus = \"generated\"").unwrap(), text);
        assert_eq!(parse("corpus = \"generated\"\nsampler = \"blocks\"").unwrap(), text);
    }

    #[test]
    fn a_resolved_section_reads_back_as_itself() {
        for text in [
            "",
            "corpus = \"generated\"\nsize = \"1 MB\"\nvocab_size = 300",
            "corpus = \"wiki\"\nsampler = \"balanced\"\nk = 0\nlongest_first = true\nnum_workers = 0",
            "corpus = \"wiki\"\nsampler = \"packed\"\nlast_sample = \"drop\"\nprefetch_factor = 3",
            "corpus = \"wiki\"\nsampler = \"padded\"\ntokenize = \"every_step\"\npinned = false",
            "corpus = \"wiki\"\ntokenizer = \"models/gpt2\"\ntrain_split = \"valid\"\neval_split = \"test\"",
        ] {
            let data = parse(text).unwrap();
            let json = serde_json::to_value(&data).unwrap();
            assert_eq!(serde_json::from_value::<Data>(json.clone()).unwrap(), data, "{json}");
        }
    }

    #[test]
    fn impossible_sections_say_what_to_change() {
        for (text, expected) in [
            ("tokenizer = \"train\"", "`tokenizer` has no meaning with corpus = \"random\""),
            ("corpus = \"wiki\"\nsize = \"1 MB\"", "`size` is of corpus = \"generated\""),
            ("corpus = \"wiki\"\ntokenizer = \"gpt2\"\nvocab_size = 300", "`vocab_size` is of tokenizer"),
            ("corpus = \"wiki\"\nvocab_size = 256", "at least 257"),
            ("corpus = \"wiki\"\ntrain_split = \"dev\"", "unknown variant `dev`"),
            ("corpora = \"wiki\"", "unknown field `corpora`"),
            ("sampler = \"padded\"", "`sampler` has no meaning with corpus = \"random\""),
            ("corpus = \"wiki\"\nk = 4", "`k` is a key of data.sampler"),
            ("corpus = \"wiki\"\nsampler = \"blocks\"\npinned = true", "`pinned` is a key of data.sampler"),
            ("corpus = \"wiki\"\nsampler = \"balanced\"", "needs `k`"),
            ("corpus = \"wiki\"\nsampler = \"standard\"\nk = 4", "`k` is of sampler = \"balanced\""),
            ("corpus = \"wiki\"\nsampler = \"padded\"\nlongest_first = true", "equally large"),
            ("corpus = \"wiki\"\nsampler = \"packed\"\ntokenize = \"every_step\"", "lengths before it draws"),
            (
                "corpus = \"wiki\"\nsampler = \"padded\"\nnum_workers = 0\nprefetch_factor = 2",
                "no batch is ready ahead",
            ),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(expected), "{text}\n-> {message}");
        }
    }
}

//! [`Data`]: the recipe's `[data]` section.

mod checks;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Split;
use super::chat::{NAMES, variables};
pub use super::reader::Learn;
use super::reader::{Columns, Format, Reading};
use super::sampler::{Blocks, Sampler, SamplerConfig};
use super::tokenizer::MIN_VOCAB_SIZE;
use crate::common::Bytes;
use crate::keys::key::DefaultValue::{Depends, Word};
use crate::keys::section::section;
use crate::keys::values::{self, COUNT, FRACTION, Values};
use crate::keys::{Key, Section};
use checks::{meaningless, reading, source, tokenizer_source};

/// Size of generated text, where none is written.
const GENERATED: Bytes = Bytes(4 << 20);
/// Tokens of a trained tokenizer, where no number is written.
const VOCAB_SIZE: usize = 4096;

/// `[data]`: what the model is trained and evaluated on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Data {
    /// Tokens drawn from the seed: for timing and memory, not for learning.
    #[default]
    Random,
    Text {
        corpus: TextSource,
        reading: Box<Reading>,
        /// Chat template: a file, or a name that is known; `None`: the tokenizer's.
        template: Option<String>,
        /// Variables of the template beside the chat, in TOML.
        template_variables: Option<String>,
        learn: Learn,
        tokenizer: TokenizerSource,
        train_split: Split,
        eval_split: Split,
        /// Samples that are read, tokenised and drawn from at a time; `None`: all.
        shuffle_buffer: Option<usize>,
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
            Self::Random => SamplerConfig::of(Sampler::Blocks(Blocks {})),
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
    /// The problems of `[task]`.
    Task,
    /// A file or folder, relative to the current directory, or a data set of the Hub.
    Path(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerSource {
    /// A byte-level BPE of at most this many tokens, trained on the training split.
    Train { vocab_size: usize },
    /// A `tokenizer.json` or its folder, relative to the current directory.
    Path(PathBuf),
}

section! {
    /// What a language model is trained and evaluated on.
    ///
    /// As written: `None` where a key is not, or has no meaning.
    #[derive(Default)]
    struct Written: Section::new("data") => {
        /// Random tokens, for timing; stories that the runner writes; the problems of `[task]`; or a file, a folder or a
        /// data set of the Hub (`owner/name`) with texts, chats or questions.
        corpus: Option<String> =
            Key::size(Values::Path(&["random", "generated", "task"])).default(Word("random")),
        /// Amount of text that is generated to train on.
        size: Option<Bytes> = Key::size(Values::Bytes)
            .default(Depends("4 MiB with corpus = \"generated\""))
            .called("corpus size"),
        /// What the records of the files are, where their columns fit more than one of these.
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<Format> = Key::size(Values::Words(&Format::WORDS))
            .default(Depends("what the columns fit")),
        /// Whether records that cannot be read are left out and counted, in place of an error.
        #[serde(skip_serializing_if = "Option::is_none")]
        skip_broken: Option<bool> = Key::size(Values::Bool).default(Depends("false")),
        /// Share of the records of the training files that is held out; the seed and a record's content decide which.
        #[serde(skip_serializing_if = "Option::is_none")]
        held_out: Option<f64> = Key::size(FRACTION)
            .default(Depends("none; files are held out by their names"))
            .called("held-out share"),
        /// The configuration of a data set of the Hub, as `wikitext-2-raw-v1`.
        #[serde(skip_serializing_if = "Option::is_none")]
        subset: Option<String> = Key::size(Values::Text).default(Depends("the only one")),
        /// A chat template: a file, or the name of one.
        #[serde(skip_serializing_if = "Option::is_none")]
        template: Option<String> =
            Key::size(Values::Path(&NAMES)).default(Depends("the template in the tokenizer's folder")),
        /// Variables of the chat template, as transformers' `apply_chat_template` takes them: "enable_thinking = false".
        #[serde(skip_serializing_if = "Option::is_none")]
        template_variables: Option<String> = Key::size(Values::Text).default(Depends("none")),
        /// What counts in the loss: the turns of a chat's assistant, completions and answers; or all tokens.
        #[serde(skip_serializing_if = "Option::is_none")]
        learn: Option<Learn> =
            Key::size(Values::Words(&["assistant", "all"])).default(Depends("\"assistant\" where there is text")),
        /// Most tokens of a tokenizer that is trained; 257 are every byte and the end of a text.
        vocab_size: Option<usize> =
            Key::size(Values::Whole { least: MIN_VOCAB_SIZE as i64, most: values::MAX_COUNT })
                .default(Depends("4096 with tokenizer = \"train\""))
                .called("tokenizer's vocabulary"),
        /// A byte-level BPE trained on the training split; or a tokenizer.json, its folder, or a model of the Hub.
        tokenizer: Option<String> = Key::size(Values::Path(&["train"]))
            .default(Depends("the tokenizer of `model.weights`, else \"train\", where there is text")),
        /// The split that is trained on.
        train_split: Option<Split> =
            Key::size(SPLITS).default(Depends("\"train\" where there is text")).called("training split"),
        /// The split that is held out for evaluation.
        eval_split: Option<Split> =
            Key::size(SPLITS).default(Depends("\"valid\" where there is text")).called("held-out split"),
        /// Samples that are read, tokenised and shuffled at a time, while training goes on: for files that are too large to be
        /// read before.
        #[serde(skip_serializing_if = "Option::is_none")]
        shuffle_buffer: Option<usize> = Key::size(COUNT).default(Depends("none; all text is read first")),
    } and {
        #[serde(skip_serializing_if = "Option::is_none")]
        columns: Option<Columns>,
        /// In a recipe its keys stand in the section itself; `None`: blocks.
        sampler: Option<SamplerConfig>,
    }
}

impl Data {
    pub const SECTION: Section = Written::SECTION;
}

const SPLITS: Values = Values::Words(&["train", "valid", "test"]);

impl TryFrom<Written> for Data {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let reading = reading(&written)?;
        if let Some(key) = meaningless(&written) {
            let what = written.corpus.as_deref().unwrap_or("random");
            return Err(match what {
                "random" => format!(
                    "`{key}` has no meaning with corpus = \"random\", which has no text; remove it, or set corpus to \
                     \"generated\" or a path"
                ),
                _ => format!(
                    "`{key}` belongs to a corpus of files; with corpus = \"{what}\" it has no meaning; remove it"
                ),
            });
        }
        let Written {
            corpus,
            size,
            tokenizer,
            vocab_size,
            train_split,
            eval_split,
            template,
            template_variables,
            learn,
            shuffle_buffer,
            sampler,
            ..
        } = written;
        template_variables.as_deref().map(variables).transpose()?;
        let Some(corpus) = source(corpus.as_deref(), size, sampler.is_some())? else {
            return Ok(Self::Random);
        };
        let tokenizer = tokenizer_source(tokenizer.as_deref(), vocab_size)?;
        let sampler = sampler.unwrap_or_else(|| SamplerConfig::of(Sampler::Blocks(Blocks {})));
        let train_split = train_split.unwrap_or(Split::Train);
        let eval_split = eval_split.unwrap_or(Split::HELD_OUT);
        let learn = learn.unwrap_or_default();
        Ok(Self::Text {
            corpus,
            reading: Box::new(reading),
            template,
            template_variables,
            learn,
            tokenizer,
            train_split,
            eval_split,
            shuffle_buffer,
            sampler,
        })
    }
}

impl From<Data> for Written {
    fn from(data: Data) -> Self {
        let Data::Text {
            corpus,
            reading,
            template,
            template_variables,
            learn,
            tokenizer,
            train_split,
            eval_split,
            shuffle_buffer,
            sampler,
        } = data
        else {
            return Self { corpus: Some("random".into()), ..Self::default() };
        };
        let (corpus, size) = match corpus {
            TextSource::Generated { size } => ("generated".into(), Some(size)),
            TextSource::Task => ("task".into(), None),
            TextSource::Path(path) => (path.display().to_string(), None),
        };
        let (tokenizer, vocab_size) = match tokenizer {
            TokenizerSource::Train { vocab_size } => ("train".into(), Some(vocab_size)),
            TokenizerSource::Path(path) => (path.display().to_string(), None),
        };
        let Reading { format, columns, skip_broken, held_out, subset } = *reading;
        Self {
            corpus: Some(corpus),
            size,
            format,
            columns: Some(columns).filter(|columns| *columns != Columns::default()),
            skip_broken: skip_broken.then_some(true),
            held_out,
            subset,
            template,
            template_variables,
            learn: Some(learn).filter(|learn| *learn != Learn::default()),
            tokenizer: Some(tokenizer),
            vocab_size,
            train_split: Some(train_split),
            eval_split: Some(eval_split),
            shuffle_buffer,
            sampler: sampler.sampler.keeps_samples().then_some(sampler),
        }
    }
}

#[cfg(test)]
#[path = "section_tests.rs"]
mod tests;

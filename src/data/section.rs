//! [`Data`]: the recipe's `[data]` section.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Split;
use super::sampler::{Blocks, Sampler, SamplerConfig};
use super::tokenizer::MIN_VOCAB_SIZE;
use crate::common::Bytes;
use crate::keys::key::DefaultValue::{Depends, Word};
use crate::keys::section::section;
use crate::keys::values::{self, Values};
use crate::keys::{Key, Section};

/// Size of generated text, where none is written.
const GENERATED: Bytes = Bytes(4 << 20);
/// Tokens of a trained tokenizer, where no number is written.
const VOCAB_SIZE: usize = 4096;

/// `[data]`: what the model is trained and evaluated on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
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

section! {
    /// What a language model is trained and evaluated on.
    ///
    /// As written: `None` where a key is not, or has no meaning.
    #[derive(Default)]
    struct Written: Section::new("data") => {
        /// Random tokens, for timing; stories that the runner writes; the problems of `[task]`; or a file or folder of
        /// text.
        corpus: Option<String> =
            Key::size(Values::Path(&["random", "generated", "task"])).default(Word("random")),
        /// Amount of text that is generated to train on.
        size: Option<Bytes> = Key::size(Values::Bytes)
            .default(Depends("4 MiB with corpus = \"generated\""))
            .called("corpus size"),
        /// Most tokens of a tokenizer that is trained; 257 are every byte and the end of a text.
        vocab_size: Option<usize> =
            Key::size(Values::Whole { least: MIN_VOCAB_SIZE as i64, most: values::MAX_COUNT })
                .default(Depends("4096 with tokenizer = \"train\""))
                .called("tokenizer's vocabulary"),
        /// A byte-level BPE trained on the training split, or a tokenizer.json or its folder.
        tokenizer: Option<String> = Key::size(Values::Path(&["train"]))
            .default(Depends("that of `model.weights`, else \"train\", where there is text")),
        /// The split that is trained on.
        train_split: Option<Split> =
            Key::size(SPLITS).default(Depends("\"train\" where there is text")).called("training split"),
        /// The split that is held out for evaluation.
        eval_split: Option<Split> =
            Key::size(SPLITS).default(Depends("\"valid\" where there is text")).called("held-out split"),
    } and {
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
        let Written { corpus, size, tokenizer, vocab_size, train_split, eval_split, sampler } = written;
        let corpus = match corpus.as_deref() {
            None | Some("random") => {
                let written = [
                    ("size", size.is_some()),
                    ("tokenizer", tokenizer.is_some()),
                    ("vocab_size", vocab_size.is_some()),
                    ("train_split", train_split.is_some()),
                    ("eval_split", eval_split.is_some()),
                    ("sampler", sampler.is_some()),
                ];
                return match written.iter().find(|(_, written)| *written) {
                    None => Ok(Self::Random),
                    Some((key, _)) => Err(format!(
                        "`{key}` has no meaning with corpus = \"random\", which has no text; remove it, or \
                         set corpus to \"generated\" or a path"
                    )),
                };
            }
            Some("generated") => TextSource::Generated { size: size.unwrap_or(GENERATED) },
            Some(_) if size.is_some() => {
                return Err(
                    "`size` is of corpus = \"generated\"; any other corpus has a size of its own; remove it"
                        .into(),
                );
            }
            Some("task") if sampler.is_none() => {
                return Err(
                    "corpus = \"task\" has samples, each with its prompt, which blocks would cut apart; set \
                            data.sampler to \"padded\", \"standard\", \"balanced\" or \"packed\""
                        .into(),
                );
            }
            Some("task") => TextSource::Task,
            Some(path) => TextSource::Path(path.into()),
        };
        let tokenizer = match tokenizer.as_deref() {
            None | Some("train") => TokenizerSource::Train { vocab_size: vocab_size.unwrap_or(VOCAB_SIZE) },
            Some(_) if vocab_size.is_some() => {
                return Err(
                    "`vocab_size` is of tokenizer = \"train\"; a tokenizer file has its own; remove it"
                        .into(),
                );
            }
            Some(path) => TokenizerSource::Path(path.into()),
        };
        let sampler = sampler.unwrap_or_else(|| SamplerConfig::of(Sampler::Blocks(Blocks {})));
        let train_split = train_split.unwrap_or(Split::Train);
        let eval_split = eval_split.unwrap_or(Split::HELD_OUT);
        Ok(Self::Text { corpus, tokenizer, train_split, eval_split, sampler })
    }
}

impl From<Data> for Written {
    fn from(data: Data) -> Self {
        let Data::Text { corpus, tokenizer, train_split, eval_split, sampler } = data else {
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
        Self {
            corpus: Some(corpus),
            size,
            tokenizer: Some(tokenizer),
            vocab_size,
            train_split: Some(train_split),
            eval_split: Some(eval_split),
            sampler: sampler.sampler.keeps_samples().then_some(sampler),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Cell, Recipe, Source};

    fn cell(text: &str) -> Result<Cell, String> {
        let text = format!(
            "title = \"t\"\n[model]\nkind = \"gpt2\"\npreset = \"gpt2\"\n[train]\nbatch_size = 1\n\
             seq_len = 8\n[eval]\nevery = 1\n[data]\n{text}\n"
        );
        let recipe = Recipe::parse_finished(&Source { path: "r.toml".into(), text }, true);
        recipe.map(|mut recipe| recipe.cells.remove(0)).map_err(|e| format!("{:?}", miette::Report::new(e)))
    }

    fn parse(text: &str) -> Data {
        cell(text).unwrap_or_else(|e| panic!("{e}")).data
    }

    #[test]
    fn absent_keys_take_their_defaults() {
        assert_eq!(parse(""), Data::Random);
        let text = Data::Text {
            corpus: TextSource::Generated { size: GENERATED },
            tokenizer: TokenizerSource::Train { vocab_size: VOCAB_SIZE },
            train_split: Split::Train,
            eval_split: Split::Valid,
            sampler: SamplerConfig::of(Sampler::Blocks(Blocks {})),
        };
        assert_eq!(parse("corpus = \"generated\""), text);
        assert_eq!(parse("corpus = \"generated\"\nsampler = \"blocks\""), text);
    }

    #[test]
    fn a_resolved_section_reads_back_as_itself() {
        for text in [
            "",
            "corpus = \"generated\"\nsize = \"1 MB\"\nvocab_size = 300",
            "corpus = \"wiki\"\nsampler = \"balanced\"\nk = 0\nlongest_first = true\nnum_workers = 0",
            "corpus = \"wiki\"\nsampler = \"packed\"\nlast_sample = \"drop\"\nprefetch_factor = 3",
            "corpus = \"wiki\"\nsampler = \"padded\"\ntokenize = \"every_step\"\npinned = false",
            "corpus = \"task\"\nsampler = \"standard\"\n[task]\nkind = \"sums\"\ndigits = 3",
            "corpus = \"task\"\nsampler = \"packed\"\n[task]\nkind = \"gsm8k\"\npath = \"none\"\nevaluate_generation = 5",
            "corpus = \"wiki\"\ntokenizer = \"models/gpt2\"\ntrain_split = \"valid\"\neval_split = \"test\"",
        ] {
            let mut cell = cell(text).unwrap_or_else(|e| panic!("{e}"));
            // A row is of a known device.
            cell.train.graph_is_open = false;
            let json = cell.to_json();
            assert_eq!(Cell::from_json(&json).unwrap(), cell, "{json}");
        }
        let keys = cell("corpus = \"wiki\"\nsampler = \"packed\"").unwrap().to_json()["data"].clone();
        assert_eq!((&keys["sampler"], &keys["last_sample"]), (&"packed".into(), &"cut".into()));
        assert_eq!((&keys["num_workers"], &keys["prefetch_factor"]), (&1.into(), &2.into()), "defaults too");
    }

    #[test]
    fn impossible_sections_say_what_to_change() {
        for (text, expected) in [
            ("tokenizer = \"train\"", "`tokenizer` has no meaning with corpus = \"random\""),
            ("corpus = \"wiki\"\nsize = \"1 MB\"", "`size` is of corpus = \"generated\""),
            ("corpus = \"wiki\"\ntokenizer = \"gpt2\"\nvocab_size = 300", "`vocab_size` is of tokenizer"),
            ("corpus = \"wiki\"\nvocab_size = 256", "at least 257"),
            ("corpus = \"wiki\"\ntrain_split = \"dev\"", "unknown value `dev`"),
            ("corpora = \"wiki\"", "unknown key `corpora`"),
            ("sampler = \"padded\"", "`sampler` has no meaning with corpus = \"random\""),
            ("corpus = \"wiki\"\nk = 4", "`k` is a key of data.sampler"),
            ("corpus = \"wiki\"\nsampler = \"blocks\"\npinned = true", "`pinned` is a key of data.sampler"),
            ("corpus = \"wiki\"\nsampler = \"blanced\"\nk = 4", "did you mean `balanced`?"),
            ("corpus = \"wiki\"\nsampler = \"balanced\"", "add `k`: Tokens by which"),
            ("corpus = \"wiki\"\nsampler = \"standard\"\nk = 4", "`k` goes with data.sampler = \"balanced\""),
            ("corpus = \"wiki\"\nsampler = \"padded\"\nlongest_first = true", "equally large"),
            ("corpus = \"wiki\"\nsampler = \"packed\"\ntokenize = \"every_step\"", "lengths before it draws"),
            (
                "corpus = \"wiki\"\nsampler = \"padded\"\nnum_workers = 0\nprefetch_factor = 2",
                "no batch is ready ahead",
            ),
        ] {
            let message = cell(text).unwrap_err();
            let words: Vec<&str> = message.split_whitespace().filter(|word| *word != "│").collect();
            assert!(words.join(" ").contains(expected), "{text}\n-> {message}");
        }
    }
}

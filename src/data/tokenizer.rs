//! [`Tokenizer`]: text to tokens and back, read from `tokenizer.json` or trained on a corpus.

mod ends;
mod sentencepiece;
mod sequence;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, PostProcessorWrapper, Tokenizer as Inner};

use super::DataError;
use crate::common::text::printable;
use crate::params::hub::{self, Needs};
use crate::params::weights::found;
pub use ends::generation_ends;
pub(super) use ends::read_json;
use sentencepiece::place_first_space;
use sequence::added_by;
use words::Words;

/// Stands for a token that the vocabulary does not have.
const UNKNOWN: &str = "\u{fffd}";
/// Stands between documents in GPT-2's and Qwen's vocabularies, and in trained ones.
pub const END_OF_TEXT: &str = "<|endoftext|>";
/// All bytes and [`END_OF_TEXT`].
pub const MIN_VOCAB_SIZE: usize = 257;
/// Beside `tokenizer.json`: which token ends a text. The second is read where the first does not say.
const SPECIAL_TOKENS: [&str; 2] = ["tokenizer_config.json", "generation_config.json"];

/// Ids of tokens, and the bytes of the text that each stands for: the first, and the one behind the last.
pub type Places = (Vec<u32>, Vec<(usize, usize)>);

/// A vocabulary and its rules, with the tokens that begin and end a text.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// Without its post-processor: what that one adds to a text stands in `before` and `behind`.
    inner: Inner,
    /// Special tokens at the beginning of every sequence, such as Llama's `<|begin_of_text|>`.
    before: Vec<u32>,
    /// Special tokens at the end of every sequence.
    behind: Vec<u32>,
    /// The first is the one that a text is trained with.
    ends: Vec<u32>,
    /// Rows of the model's embedding, where they are known.
    rows: Option<usize>,
    /// `None` where a text's words do not have tokens of their own.
    words: Option<Arc<Words>>,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, or the one in a folder. The token that ends a text comes from `tokenizer_config.json` in its
    /// folder, more from `generation_config.json`; without any `<|endoftext|>` ends. What begins a sequence is decided by the
    /// file's post-processor alone, as in transformers 5: `add_bos_token` of `tokenizer_config.json` changes nothing.
    ///
    /// # Errors
    /// A missing or damaged file.
    pub fn load(path: &Path) -> Result<Self, DataError> {
        let path = Self::file(&hub::fetched(path, Needs::Description).map_err(DataError::new)?);
        if !path.exists() {
            return Err(DataError::new(format!(
                "there is no {}; name a tokenizer.json or a folder that holds one",
                path.display()
            )));
        }
        let mut inner = Inner::from_file(&path).map_err(|e| {
            let other = found::other_content(&path);
            DataError::new(other.unwrap_or_else(|| format!("{} is not a tokenizer: {e}", path.display())))
        })?;
        // A saved tokenizer may cut or pad texts, which a training corpus must not be.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| DataError::new(e.to_string()))?;
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        place_first_space(&mut inner, &read_json(&folder.join(SPECIAL_TOKENS[0]))?).map_err(unreadable)?;
        let [before, behind] = added_by(inner.get_post_processor())?;
        // It also trims the offsets of tokens, which find the end of a prompt.
        inner.with_post_processor(None::<PostProcessorWrapper>);
        let words = Words::new(&inner).map(Arc::new);
        let mut tokenizer = Self { inner, before, behind, ends: Vec::new(), rows: None, words };
        tokenizer.ends = tokenizer.ends_by(&folder)?;
        if tokenizer.ends.is_empty() {
            tokenizer.ends.extend(tokenizer.id(END_OF_TEXT));
        }
        Ok(tokenizer)
    }

    /// `tokenizer.json` itself, or in a folder.
    fn file(path: &Path) -> PathBuf {
        if path.is_dir() { path.join("tokenizer.json") } else { path.to_path_buf() }
    }

    /// The files that [`load`](Self::load) reads.
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let file = Self::file(path);
        let others = SPECIAL_TOKENS.map(|name| file.with_file_name(name));
        std::iter::once(file).chain(others.into_iter().filter(|file| file.exists())).collect()
    }

    /// Trains a byte-level BPE, as GPT-2's, of at most `vocab_size` tokens. The same documents give
    /// the same vocabulary.
    ///
    /// # Errors
    /// A `vocab_size` below [`MIN_VOCAB_SIZE`].
    pub fn train(documents: &[String], vocab_size: usize) -> Result<Self, DataError> {
        if vocab_size < MIN_VOCAB_SIZE {
            return Err(DataError::new(format!(
                "a trained tokenizer needs a vocab_size of at least {MIN_VOCAB_SIZE} (every byte and \
                 {END_OF_TEXT}), not {vocab_size}"
            )));
        }
        let mut inner = Inner::new(BPE::default());
        inner.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        inner.with_decoder(Some(ByteLevel::default()));
        let trainer = BpeTrainer::builder()
            .vocab_size(vocab_size)
            .min_frequency(2)
            .show_progress(false)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
            .build();
        inner
            .train(&mut TrainerWrapper::from(trainer), documents.iter())
            .map_err(|e| DataError::new(format!("cannot train a tokenizer: {e}")))?;
        let words = Words::new(&inner).map(Arc::new);
        let mut tokenizer =
            Self { inner, before: Vec::new(), behind: Vec::new(), ends: Vec::new(), rows: None, words };
        tokenizer.ends.extend(tokenizer.id(END_OF_TEXT));
        Ok(tokenizer)
    }

    /// Writes `tokenizer.json` into a folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, folder: &Path) -> Result<PathBuf, DataError> {
        let path = folder.join("tokenizer.json");
        self.inner
            .save(&path, false)
            .map_err(|e| DataError::new(format!("cannot write {}: {e}", path.display())))?;
        Ok(path)
    }

    /// What `tokenizer.json` says.
    ///
    /// # Errors
    /// A vocabulary that JSON cannot express.
    pub fn json(&self) -> Result<String, DataError> {
        self.inner.to_string(false).map_err(|e| DataError::new(format!("cannot write a tokenizer: {e}")))
    }

    /// What decides the tokens of a text, and of a sequence.
    ///
    /// # Errors
    /// As [`json`](Self::json).
    pub fn identity(&self) -> Result<String, DataError> {
        let Self { before, behind, ends, rows, .. } = self;
        Ok(format!("{before:?} {behind:?} {ends:?} {rows:?} {}", self.json()?))
    }

    /// The tokens of a text; none are added at its ends.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let words = self.words.as_ref().and_then(|words| words.encode(&self.inner, text));
        let ids = match words {
            Some(places) => places.map(|places| places.into_iter().map(|(id, _)| id).collect()),
            None => self.inner.encode_fast(text, false).map(|encoding| encoding.get_ids().to_vec()),
        };
        self.within_rows(ids.map_err(unreadable)?)
    }

    /// The tokens of a text as [`encode`](Self::encode), and the bytes that each stands for, from the first to the one behind
    /// the last. Those of a letter that is several tokens are all of its bytes.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub fn encode_offsets(&self, text: &str) -> Result<Places, DataError> {
        let words = self.words.as_ref().and_then(|words| words.encode(&self.inner, text));
        let places = words.unwrap_or_else(|| words::whole(&self.inner, text)).map_err(unreadable)?;
        let (ids, offsets) = places.into_iter().map(|(id, bytes)| (id, (bytes.start, bytes.end))).unzip();
        Ok((self.within_rows(ids)?, offsets))
    }

    /// Whether a token was added to the vocabulary, as special ones are.
    pub fn is_added(&self, id: u32) -> bool {
        self.inner.get_added_vocabulary().simple_id_to_token(id).is_some()
    }

    /// The same for a model whose embedding has so many rows. It may have more tokens than these; a text that needs one of
    /// them is refused.
    #[must_use]
    pub fn of_rows(self, rows: usize) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// How many ids a model has rows and the vocabulary tokens for.
    pub fn rows(&self) -> usize {
        self.vocab_size().min(self.rows.unwrap_or(usize::MAX))
    }

    /// Tokens, all of which the model has a row for.
    fn within_rows(&self, ids: Vec<u32>) -> Result<Vec<u32>, DataError> {
        self.require_rows(&ids).map(|()| ids)
    }

    /// # Errors
    /// The first token for which the model has no row.
    pub fn require_rows(&self, ids: &[u32]) -> Result<(), DataError> {
        ids.iter().try_for_each(|id| self.within(*id))
    }

    /// Whether the model has a row for a token.
    fn within(&self, id: u32) -> Result<(), DataError> {
        let Some(rows) = self.rows.filter(|rows| id as usize >= *rows) else { return Ok(()) };
        let token = self.inner.id_to_token(id).unwrap_or_default();
        Err(DataError::new(format!(
            "the text has the token {id}, \"{}\", and the model has only {rows} rows (model.vocab_size): the tokenizer is not \
             the model's, or the model's embedding was not enlarged for it; name the model's own in data.tokenizer",
            printable(&token)
        )))
    }

    /// The text of tokens, special ones included. A token outside of the vocabulary, which a model with more rows can
    /// generate, is �.
    pub fn decode(&self, tokens: &[u32]) -> String {
        self.text(tokens, false)
    }

    /// The text of tokens without the special ones, as transformers' `decode` gives it with `skip_special_tokens`.
    pub fn plain(&self, tokens: &[u32]) -> String {
        self.text(tokens, true)
    }

    fn text(&self, tokens: &[u32], plain: bool) -> String {
        let is_known = |token: &u32| self.inner.id_to_token(*token).is_some();
        let text =
            |known: &[u32]| self.inner.decode(known, plain).unwrap_or_else(|_| UNKNOWN.repeat(known.len()));
        tokens
            .chunk_by(|a, b| is_known(a) == is_known(b))
            .map(|run| if is_known(&run[0]) { text(run) } else { UNKNOWN.repeat(run.len()) })
            .collect()
    }

    /// Rows that an embedding needs: one more than the largest token.
    pub fn vocab_size(&self) -> usize {
        let added = self.before.iter().chain(&self.behind).copied();
        let vocab = self.inner.get_vocab(true);
        vocab.into_values().chain(added).max().map_or(0, |largest| largest as usize + 1)
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }
}

fn unreadable(error: tokenizers::Error) -> DataError {
    DataError::new(format!("cannot encode a text: {error}"))
}

#[cfg(test)]
mod tests;

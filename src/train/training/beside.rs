//! The files beside saved weights or a saved adapter: those of the tokenizer, and how the model generates. They are those of
//! the first weights, unless the run has a tokenizer of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::data::tokenizer::END_OF_TEXT;
use crate::data::{Data, Tokenizer, TokenizerSource};
use crate::model::config::{ConfigFile, with_ends};
use crate::params::companions::{GENERATION, copy, copy_tokenizer};
use crate::params::hub;

/// What a run has besides weights.
pub struct Beside<'a> {
    data: &'a Data,
    /// Of its text.
    tokenizer: Option<&'a Tokenizer>,
    /// The folder of the first weights, of a model of the Hub that in the cache.
    base: Option<PathBuf>,
}

impl<'a> Beside<'a> {
    /// `base`: the first weights as the cell names them.
    pub fn new(data: &'a Data, tokenizer: Option<&'a Tokenizer>, base: Option<&Path>) -> Self {
        Self { data, tokenizer, base: base.map(hub::local) }
    }

    /// The folder that the tokenizer is read from, with its file; `None` where there is none, or it was trained.
    fn tokenizer_folder(&self) -> Option<(PathBuf, Option<PathBuf>)> {
        match self.data {
            Data::Text { tokenizer: TokenizerSource::Train { .. }, .. } => None,
            Data::Text { tokenizer: TokenizerSource::Path(path), .. } => {
                // A model of the Hub has its files in the cache.
                let path = hub::local(path);
                match path.is_dir() {
                    true => Some((path, None)),
                    false => Some((path.parent().unwrap_or(Path::new("")).to_path_buf(), Some(path))),
                }
            }
            Data::Random => Some((self.base.clone()?, None)),
        }
    }

    /// The tokenizer that the run has trained.
    fn trained(&self) -> Option<&Tokenizer> {
        let trains = matches!(self.data, Data::Text { tokenizer: TokenizerSource::Train { .. }, .. });
        self.tokenizer.filter(|_| trains)
    }

    /// The `config.json` of the first weights, and the tokens that end a text where those that it names are not the model's.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn config(&self) -> io::Result<(Option<ConfigFile>, Option<&[u32]>)> {
        let base = self
            .base
            .as_deref()
            .map(|folder| ConfigFile::read(folder).map_err(io::Error::other))
            .transpose()?;
        let own = if base.is_none() { self.tokenizer } else { self.trained() };
        let ends = own.map(Tokenizer::ends);
        let ends = if base.is_none() { Some(ends.unwrap_or_default()) } else { ends };
        Ok((base, ends))
    }

    /// Writes the tokenizer.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn write_tokenizer(&self, folder: &Path) -> io::Result<()> {
        if let Some(trained) = self.trained() {
            trained.save(folder).map_err(io::Error::other)?;
            // Without a class transformers takes that of the model's family, whose rules are others.
            let config = json!({
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": END_OF_TEXT,
                "clean_up_tokenization_spaces": false,
            });
            return fs::write(folder.join("tokenizer_config.json"), serde_json::to_vec_pretty(&config)?);
        }
        let Some((from, file)) = self.tokenizer_folder() else { return Ok(()) };
        copy_tokenizer(&from, folder)?;
        // It may have any name.
        file.map_or(Ok(()), |file| fs::copy(file, folder.join("tokenizer.json")).map(|_| ()))
    }

    /// Writes how the model generates.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn write_generation(&self, folder: &Path) -> io::Result<()> {
        let of_tokenizer = self.tokenizer_folder().map(|(from, _)| from);
        let mut all = self.base.clone().into_iter().chain(of_tokenizer);
        let from = all.find(|from| from.join(GENERATION).is_file());
        let Some(from) = from else { return Ok(()) };
        let Some(trained) = self.trained() else { return copy(&from, folder, GENERATION) };
        // Its tokens are those of another vocabulary.
        let mut config: Map<String, Value> = serde_json::from_slice(&fs::read(from.join(GENERATION))?)?;
        with_ends(&mut config, trained.ends());
        if config.contains_key("pad_token_id") {
            config.insert("pad_token_id".into(), json!(trained.eos()));
        }
        fs::write(folder.join(GENERATION), serde_json::to_vec_pretty(&config)?)
    }
}

//! Rules of `[data]` with files: the tokenizer of loaded weights, and the splits of a corpus.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::{Corpus, Data, DataError, Reading, Split, TextSource, TokenizerSource};
use crate::common::locked;
use crate::keys::Rule;
use crate::params::hub;

/// Folders and files that have text for these splits, also where a share of one is the other: a corpus of many files is listed once for all cells of a recipe.
#[derive(Default)]
pub struct Found(Mutex<HashSet<(PathBuf, Vec<Split>, bool)>>);

impl Data {
    /// Takes the tokenizer of the weights in `folder`, where the recipe names none: the ids of another one would mean
    /// nothing to them. `sized`: whether the recipe says how many tokens to train.
    pub(crate) fn take_tokenizer_of(&mut self, folder: &Path, sized: bool) -> Result<(), Rule> {
        let Self::Text { tokenizer, .. } = self else { return Ok(()) };
        Rule::refuse_if(
            sized,
            &["data.vocab_size"],
            "data.vocab_size belongs to a tokenizer that is trained, and loaded weights come with their own",
            "remove data.vocab_size, or also write data.tokenizer = \"train\"",
        )?;
        *tokenizer = TokenizerSource::Path(folder.to_path_buf());
        Ok(())
    }

    /// Refuses a corpus whose files lack a split. A corpus that is missing passes: a recipe is also checked on machines
    /// where it does not run. `evaluates`: whether the held-out split is read too.
    pub(crate) fn check_files(&self, evaluates: bool, found: &Found) -> Result<(), Rule> {
        let Self::Text { corpus, reading, train_split, eval_split, .. } = self else { return Ok(()) };
        let TextSource::Path(path) = corpus else { return Ok(()) };
        Rule::refuse_if(
            reading.subset.is_some() && path.exists(),
            &["data.subset"],
            "data.subset is a configuration of a data set of the Hub, and data.corpus names files that are here",
            "remove data.subset, or name the folder of these files in data.corpus",
        )?;
        let path = &hub::local_with(path, reading.needs());
        if !path.exists() {
            return Ok(());
        }
        let splits: Vec<Split> =
            std::iter::once(*train_split).chain(evaluates.then_some(*eval_split)).collect();
        let asked = (path.clone(), splits, reading.held_out.is_some());
        if locked(&found.0).contains(&asked) {
            return Ok(());
        }
        let rule = |key, help| move |e: DataError| Rule::new(&[key, "data.corpus"], e.to_string(), help);
        let corpus = Corpus::open(path).map_err(rule("data.corpus", "name a file or a folder of data"))?;
        // Which records a seed chooses does not matter here.
        let corpus = corpus.read_by(Reading::clone(reading), 0, [*train_split, *eval_split]);
        let help = "name the split of its files in data.train_split, or rename a file";
        corpus.require(*train_split).map_err(rule("data.train_split", help))?;
        if evaluates {
            let help = "write data.held_out = 0.05, put the data and a held-out file such as valid.txt into one folder and \
                        name that in data.corpus, or remove [eval]";
            corpus.require(*eval_split).map_err(rule("data.eval_split", help))?;
        }
        locked(&found.0).insert(asked);
        Ok(())
    }
}

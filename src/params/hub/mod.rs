//! Models and data sets of the Hugging Face Hub by their names: found in its cache on this machine, else fetched into it.
//!
//! The cache is the one of Hugging Face's own programs (`models--owner--name/{blobs, refs, snapshots}`), so a model that one
//! of them has fetched is there for the others.

pub mod cache;
mod data_set;
mod download;
mod remote;

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

pub use data_set::Records;

use crate::common::cache::user_cache;

/// A model or a data set of the Hub: `owner/name`, or `owner/name@revision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    id: String,
    /// A branch, a tag or a commit.
    revision: String,
    kind: Kind,
}

/// Kinds of repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
enum Kind {
    /// As the Hub's paths have them.
    #[strum(serialize = "models")]
    Model,
    #[strum(serialize = "datasets")]
    DataSet,
}

impl Kind {
    fn noun(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::DataSet => "data set",
        }
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision.as_str() {
            MAIN => f.write_str(&self.id),
            revision => write!(f, "{}@{revision}", self.id),
        }
    }
}

/// Which files of a repository somebody needs.
#[derive(Clone, Copy, Debug)]
pub enum Needs<'a> {
    /// Sizes, tokenizer and chat template of a model.
    Description,
    /// Its weights too.
    Weights,
    /// Of a data set.
    Records(Records<'a>),
}

/// The branch that a name without a revision means.
const MAIN: &str = "main";

impl HubName {
    /// The name that a path is, where it has one slash, is no folder here, and its first part is none either.
    pub fn parse(path: &Path) -> Option<Self> {
        let text = path.to_str()?;
        let (id, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let (owner, name) = id.split_once('/')?;
        let is_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-'])
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let is_revision = !revision.is_empty()
            && !revision.contains("..")
            && revision.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        let is_name = is_part(owner) && is_part(name) && is_revision;
        (is_name && !path.exists() && !Path::new(owner).exists()).then(|| Self {
            id: id.into(),
            revision: revision.into(),
            kind: Kind::Model,
        })
    }

    /// The data set or the model of this name, by what is needed of it.
    fn with(self, needs: Needs) -> Self {
        let kind = if matches!(needs, Needs::Records(_)) { Kind::DataSet } else { Kind::Model };
        Self { kind, ..self }
    }

    /// The path of its pages on the Hub.
    fn page(&self) -> String {
        match self.kind {
            Kind::Model => self.id.clone(),
            Kind::DataSet => format!("datasets/{}", self.id),
        }
    }
}

/// The Hub as this process reaches it.
#[derive(Clone, Debug)]
pub struct Hub {
    /// Folder of the cache; `None` where the user has no home.
    cache: Option<PathBuf>,
    endpoint: String,
    token: Option<String>,
    /// Why nothing is fetched; `None`: it may be.
    offline: Option<&'static str>,
}

impl Hub {
    /// By the variables of the environment that Hugging Face's programs read: `HF_HUB_CACHE`, `HF_HOME`, `HF_ENDPOINT`,
    /// `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_HUB_OFFLINE`.
    pub fn from_environment() -> Self {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let home = set("HF_HOME")
            .map(PathBuf::from)
            .or_else(|| user_cache().map(|folder| folder.join("huggingface")));
        let cache = set("HF_HUB_CACHE").map(PathBuf::from).or_else(|| Some(home.as_ref()?.join("hub")));
        let token_file = set("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home?.join("token")));
        let stored = || {
            Some(std::fs::read_to_string(token_file?).ok()?.trim().to_string())
                .filter(|text| !text.is_empty())
        };
        let is_on = |name: &str| {
            set(name).is_some_and(|value| ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str()))
        };
        Self {
            cache,
            endpoint: set("HF_ENDPOINT")
                .map_or("https://huggingface.co".into(), |url| url.trim_end_matches('/').into()),
            token: set("HF_TOKEN").map(|token| token.trim().to_string()).or_else(stored),
            offline: ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().find(|name| is_on(name)),
        }
    }

    /// The folder in the cache with what is needed; `None` where something is missing.
    pub fn cached(&self, name: &HubName, needs: Needs) -> Option<PathBuf> {
        let snapshot = self.snapshot(name)?;
        match needs {
            // What others have fetched counts where nothing can be.
            Needs::Records(records) => records.cached(name, &snapshot, self.offline.is_none()),
            needs => cache::has(&snapshot, needs).then_some(snapshot),
        }
    }

    fn snapshot(&self, name: &HubName) -> Option<PathBuf> {
        cache::snapshot(&cache::repository(self.cache.as_ref()?, name), &name.revision)
    }

    /// The folder with what is needed, which is fetched where the cache lacks it.
    ///
    /// # Errors
    /// What the Hub lacks or refuses, what went wrong on the way, and what to do.
    pub fn folder(&self, name: &HubName, needs: Needs) -> Result<PathBuf, String> {
        if let Some(folder) = self.cached(name, needs) {
            return Ok(folder);
        }
        let cache = self.cache.as_ref().ok_or_else(|| {
            format!("{name}: there is no folder for {}s of the Hub: set HF_HOME to one", name.kind.noun())
        })?;
        if let Some(variable) = self.offline {
            return Err(format!(
                "{name} is not in {}, or not whole, and {variable} forbids to fetch it: unset the variable, or name another \
                 cache in HF_HOME",
                cache.display()
            ));
        }
        download::fetch(self, &cache::repository(cache, name), name, needs)
    }
}

/// The folder that a path means: itself, or the folder of a model or data set of the Hub, which is fetched where the cache
/// lacks what is needed of it.
///
/// # Errors
/// As [`Hub::folder`].
pub fn fetched(path: &Path, needs: Needs) -> Result<PathBuf, String> {
    match HubName::parse(path) {
        Some(name) => Hub::from_environment().folder(&name.with(needs), needs),
        None => Ok(path.to_path_buf()),
    }
}

/// The folder that a path means: itself, or the one in the cache of a model of the Hub, where it is there.
pub fn local(path: &Path) -> PathBuf {
    local_with(path, Needs::Description)
}

/// The folder that a path means: itself, or the one in the cache with what is needed, where it is there.
pub fn local_with(path: &Path, needs: Needs) -> PathBuf {
    let cached = || Hub::from_environment().cached(&HubName::parse(path)?.with(needs), needs);
    cached().unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
mod tests;

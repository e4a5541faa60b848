//! [`Weights`]: all tensors of a folder, in one file or in shards that an index lists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use safetensors::tensor::TensorView;
use serde::Deserialize;

use super::check::{HEAD, is_embedding};
use super::file::TensorFile;
use super::{found, inner};
use crate::params::hub::{self, Needs};
use crate::params::save::WEIGHTS;

/// How the names of a model's parameters begin, apart from those of its head.
const PREFIXES: [&str; 2] = ["transformer.", "model."];
pub const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a folder by name. Nothing but the headers is read until a tensor is.
#[derive(Debug)]
pub struct Weights {
    pub(super) folder: PathBuf,
    files: Vec<TensorFile>,
    /// Tensor name → its file.
    names: BTreeMap<String, usize>,
}

/// `model.safetensors.index.json`; its `metadata` is not needed.
#[derive(Deserialize)]
struct Index {
    /// Tensor name → file name.
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` lists.
    ///
    /// # Errors
    /// Missing or damaged files, and an index that does not agree with its shards.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let folder = &hub::fetched(folder, Needs::Weights)?;
        let index = folder.join(INDEX);
        let paths = files(folder)?;
        let single = paths == [folder.join(WEIGHTS)];
        let weight_map = if single { BTreeMap::new() } else { read_index(&index)? };
        let files: Vec<TensorFile> =
            paths.iter().map(|path| TensorFile::open(path)).collect::<Result<_, _>>()?;
        let names = owners(&files)?;
        for (name, file) in &weight_map {
            let own = inner::own_name(name);
            let found = names.get(own.as_ref().unwrap_or(name)).map(|owner| &files[*owner].path);
            if found != Some(&folder.join(file)) {
                return Err(format!(
                    "{}: it places tensor {name} in {file}, which does not hold it",
                    index.display()
                ));
            }
        }
        Ok(Self { folder: folder.to_path_buf(), files, names })
    }

    /// In alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// A tensor by its name in the model.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        let (stored, owner) = self.stored(name)?;
        self.files[owner].tensor(stored)
    }

    /// The name under which a tensor of the model is stored, and its file. Files saved from a model without its head leave out
    /// what begins the names; of a head and an embedding that are tied, a file may have the head alone.
    pub(super) fn stored(&self, name: &str) -> Option<(&str, usize)> {
        let of = |name: &str| self.names.get_key_value(name);
        let bare = || PREFIXES.iter().find_map(|prefix| of(name.strip_prefix(prefix)?));
        let head = || if is_embedding(name) { of(HEAD) } else { None };
        of(name).or_else(bare).or_else(head).map(|(stored, owner)| (stored.as_str(), *owner))
    }

    /// A name in the files of a text part's tensor, where their model is more than the text model.
    pub fn inner(&self) -> Option<&str> {
        self.files.iter().find_map(TensorFile::renamed)
    }

    /// Whether a tensor is none of the text part, in files of a model that is more.
    pub(super) fn is_other(&self, name: &str) -> bool {
        let is_renamed = |owner: &usize| self.files[*owner].is_renamed(name);
        self.inner().is_some() && name != HEAD && !self.names.get(name).is_some_and(is_renamed)
    }

    /// The tensors that are none of the text part, with their names.
    pub fn others(&self) -> impl Iterator<Item = (&str, TensorView<'_>)> {
        self.names().filter(|name| self.is_other(name)).filter_map(|name| Some((name, self.get(name)?)))
    }

    /// Whether the file is of a model that was saved without its head: it leaves out what begins the names.
    pub(super) fn is_bare(&self) -> bool {
        !self.names().any(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
    }
}

/// The files of a folder that hold tensors: `model.safetensors`, or the shards of its index.
///
/// # Errors
/// When there are none, or the index cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let index = folder.join(INDEX);
    if folder.join(WEIGHTS).exists() {
        Ok(vec![folder.join(WEIGHTS)])
    } else if index.exists() {
        shards(folder, &index, &read_index(&index)?)
    } else {
        found::folder(folder)?;
        Err(found::no_weights(folder, WEIGHTS, INDEX))
    }
}

/// Tensor name → its file, which must be one.
fn owners(files: &[TensorFile]) -> Result<BTreeMap<String, usize>, String> {
    let mut names = BTreeMap::new();
    for (owner, file) in files.iter().enumerate() {
        for name in file.names() {
            if let Some(other) = names.insert(name.clone(), owner) {
                let (here, other) = (file.path.display(), files[other].path.display());
                return Err(format!("{here}: tensor {name} is also in {other}; remove one"));
            }
        }
    }
    Ok(names)
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let index: Index = serde_json::from_str(&text).map_err(|e| {
        let other = found::other_content(path);
        other.unwrap_or_else(|| format!("{}: not an index of safetensors files: {e}", path.display()))
    })?;
    Ok(index.weight_map)
}

fn shards(
    folder: &Path,
    index: &Path,
    weight_map: &BTreeMap<String, String>,
) -> Result<Vec<PathBuf>, String> {
    let shards: BTreeSet<&String> = weight_map.values().collect();
    let wrong = |message| format!("{}: {message}", index.display());
    let there = |shard: &String| {
        // A downloaded index must not make the runner read files elsewhere.
        let mut parts = Path::new(shard).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(wrong(format!("the shard \"{shard}\" is not the name of a file in this folder")));
        }
        let path = folder.join(shard);
        if !path.exists() {
            let why = found::lacks(folder, shard);
            return Err(wrong(format!("the shard {shard} is missing; download it too: {why}")));
        }
        Ok(path)
    };
    shards.into_iter().map(there).collect()
}

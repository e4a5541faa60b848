//! [`Weights`]: all tensors of a folder, in one file or in shards that an index lists.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::file::TensorFile;
use super::{View, WeightsError};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a folder by name. Nothing but the headers is read until a tensor is.
#[derive(Debug)]
pub struct Weights {
    folder: PathBuf,
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
    pub fn open(folder: &Path) -> Result<Self, WeightsError> {
        let index = folder.join(INDEX);
        let paths = files(folder)?;
        let single = paths == [folder.join(SINGLE)];
        let weight_map = if single { BTreeMap::new() } else { read_index(&index)? };
        let files: Vec<TensorFile> =
            paths.iter().map(|path| TensorFile::open(path)).collect::<Result<_, _>>()?;
        let names = owners(&files)?;
        for (name, file) in &weight_map {
            let found = names.get(name).map(|owner| &files[*owner].path);
            if found != Some(&folder.join(file)) {
                let message = format!("it places tensor {name} in {file}, which does not hold it");
                return Err(WeightsError::Index { path: index, message });
            }
        }
        Ok(Self { folder: folder.to_path_buf(), files, names })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// In alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// A tensor by its name in the model. Files saved from a bare GPT-2 leave `transformer.` out.
    ///
    /// # Errors
    /// When there is no such tensor.
    pub fn get(&self, name: &str) -> Result<View<'_>, WeightsError> {
        self.find(name).ok_or_else(|| {
            WeightsError::Tensor(format!("there is no tensor {name} in {}", self.folder.display()))
        })
    }

    pub(super) fn find(&self, name: &str) -> Option<View<'_>> {
        let (stored, owner) = self.stored(name)?;
        let file = &self.files[owner];
        let entry = &file.tensors[stored];
        Some(View {
            name: stored.to_string(),
            dtype: entry.dtype,
            shape: entry.shape.clone(),
            bytes: file.bytes(entry),
        })
    }

    /// The name under which a tensor of the model is stored, and its file.
    pub(super) fn stored(&self, name: &str) -> Option<(&str, usize)> {
        let exact = self.names.get_key_value(name);
        let bare = || self.names.get_key_value(name.strip_prefix("transformer.")?);
        exact.or_else(bare).map(|(stored, owner)| (stored.as_str(), *owner))
    }
}

/// The files of a folder that hold tensors: `model.safetensors`, or the shards of its index.
///
/// # Errors
/// When there are none, or the index cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let index = folder.join(INDEX);
    if folder.join(SINGLE).exists() {
        Ok(vec![folder.join(SINGLE)])
    } else if index.exists() {
        shards(folder, &index, &read_index(&index)?)
    } else {
        let torch =
            folder.join("pytorch_model.bin").exists() || folder.join("pytorch_model.bin.index.json").exists();
        let hint = if torch { "; save the pytorch_model.bin there with safe_serialization=True" } else { "" };
        Err(WeightsError::Missing { folder: folder.to_path_buf(), hint })
    }
}

/// Tensor name → its file, which must be one.
fn owners(files: &[TensorFile]) -> Result<BTreeMap<String, usize>, WeightsError> {
    let mut names = BTreeMap::new();
    for (owner, file) in files.iter().enumerate() {
        for name in file.tensors.keys() {
            if let Some(other) = names.insert(name.clone(), owner) {
                let message = format!("tensor {name} is also in {}; remove one", files[other].path.display());
                return Err(WeightsError::Index { path: file.path.clone(), message });
            }
        }
    }
    Ok(names)
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>, WeightsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| WeightsError::Read { path: path.to_path_buf(), source })?;
    let index: Index = serde_json::from_str(&text).map_err(|e| WeightsError::Index {
        path: path.to_path_buf(),
        message: format!("not an index of safetensors files: {e}"),
    })?;
    Ok(index.weight_map)
}

fn shards(
    folder: &Path,
    index: &Path,
    weight_map: &BTreeMap<String, String>,
) -> Result<Vec<PathBuf>, WeightsError> {
    let mut shards: Vec<&String> = weight_map.values().collect();
    shards.sort_unstable();
    shards.dedup();
    let wrong = |message| WeightsError::Index { path: index.to_path_buf(), message };
    let there = |shard: &String| {
        // A downloaded index must not make the runner read files elsewhere.
        let mut parts = Path::new(shard).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(wrong(format!("the shard \"{shard}\" is not the name of a file in this folder")));
        }
        let path = folder.join(shard);
        if !path.exists() {
            return Err(wrong(format!("the shard {shard} is missing; download it too")));
        }
        Ok(path)
    };
    shards.into_iter().map(there).collect()
}

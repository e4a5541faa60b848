//! Parameters as a file of safetensors, and the folder that Hugging Face's programs read.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use burn::tensor::TensorData;
use safetensors::{Dtype, SafeTensorError, View, serialize_to_file};

use super::companions::{GENERATION, TEMPLATES, TOKENIZER};
use super::peft;
use super::table::{Entry, Table};
use super::weights::{TensorFile, Weights, inner, stored};

/// The file of parameters in a folder.
pub const WEIGHTS: &str = "model.safetensors";
/// In the metadata of a model's weights: without it transformers does not know whose layout the tensors have.
pub const LAYOUT: (&str, &str) = ("format", "pt");
/// What a folder of weights, or of an adapter, may hold that is written anew, besides the files of a tokenizer.
const OURS: [&str; 5] = [WEIGHTS, "config.json", GENERATION, peft::CONFIG, peft::TENSORS];
/// The key of `config.json`, and of an adapter's tensors, that marks a folder of the runner's.
pub const MARK: &str = "written_by";
pub const RUNNER: &str = "runner";

/// Writes the parameters of the table, one after the other; `value` has them by name, in the type that the table
/// says. `note`: a key with its value in the file's metadata. Of two, the order would differ from file to file.
///
/// # Errors
/// When the file cannot be written.
pub fn write_weights(
    path: &Path,
    table: &Table,
    note: (&str, &str),
    value: impl FnMut(&str) -> TensorData,
) -> Result<(), SafeTensorError> {
    let value = RefCell::new(value);
    write(path, note, table.entries.iter().map(|entry| (entry.name.clone(), parameter(entry, &value))))
}

/// Writes the parameters of a text model under their names in the files of the first weights, and the other tensors of these
/// as they are.
///
/// # Errors
/// When the file cannot be written.
pub fn write_within(
    path: &Path,
    table: &Table,
    first: &Weights,
    value: impl FnMut(&str) -> TensorData,
) -> Result<(), SafeTensorError> {
    let value = RefCell::new(value);
    let name = |own: &str| first.inner().map_or(own.into(), |example| inner::stored_name(own, example));
    let parameters = table.entries.iter().map(|entry| (name(&entry.name), parameter(entry, &value)));
    let others = first.others().map(|(name, tensor)| {
        let (dtype, shape, bytes) = (tensor.dtype(), tensor.shape().to_vec(), tensor.data());
        let data: Bytes = Box::new(move || Cow::Borrowed(bytes));
        (name.to_string(), Written { dtype, shape, bytes: bytes.len(), data })
    });
    write(path, LAYOUT, parameters.chain(others))
}

fn write<'t>(
    path: &Path,
    (key, note): (&str, &str),
    tensors: impl Iterator<Item = (String, Written<'t>)>,
) -> Result<(), SafeTensorError> {
    serialize_to_file(tensors, Some(HashMap::from([(key.to_string(), note.to_string())])), path)
}

type Bytes<'t> = Box<dyn Fn() -> Cow<'t, [u8]> + 't>;

/// A tensor that is read when it is written: no two are in memory at a time.
struct Written<'t> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: usize,
    data: Bytes<'t>,
}

fn parameter<'t, V: FnMut(&str) -> TensorData>(entry: &'t Entry, value: &'t RefCell<V>) -> Written<'t> {
    let shape = entry.stored_shape();
    let bytes = shape.iter().product::<usize>() * entry.dtype.size();
    let data = move || {
        let data = (value.borrow_mut())(&entry.name);
        assert_eq!((data.dtype(), data.as_bytes().len()), (entry.dtype, bytes));
        Cow::Owned(data.as_bytes().to_vec())
    };
    Written { dtype: stored(entry.dtype), shape, bytes, data: Box::new(data) }
}

impl View for Written<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        (self.data)()
    }

    fn data_len(&self) -> usize {
        self.bytes
    }
}

/// Whether a run writes files of this name.
fn is_ours(name: &str) -> bool {
    [&OURS[..], &TOKENIZER, &TEMPLATES].concat().contains(&name)
}

/// What a folder is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    Weights,
    Adapter,
}

/// Whether a folder of this kind may be written here: nothing is, or what an earlier run has written of the kind, or with
/// `overwrite` also what others have written, and of the other kind.
///
/// # Errors
/// What is there.
pub fn check_free(folder: &Path, saved: Saved, overwrite: bool) -> Result<(), String> {
    let taken = |what: &str| Err(format!("{} {what}: it is not written over", folder.display()));
    let Ok(metadata) = fs::metadata(folder) else { return Ok(()) };
    if !metadata.is_dir() {
        return taken("is a file");
    }
    let entries = fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if let Some(other) = names.iter().find(|name| !is_ours(name)) {
        return taken(&format!("holds {other}, which the runner has not written"));
    }
    let (other, what) = match saved {
        Saved::Weights => (peft::TENSORS, "holds an adapter"),
        Saved::Adapter => (WEIGHTS, "holds a model"),
    };
    if !overwrite && names.iter().any(|name| name == other) {
        return taken(what);
    }
    let config = fs::read(folder.join("config.json")).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap_or_default();
    let of_adapter = || TensorFile::open(&folder.join(peft::TENSORS)).ok()?.note(MARK);
    if overwrite || names.is_empty() || config[MARK] == RUNNER || of_adapter().as_deref() == Some(RUNNER) {
        return Ok(());
    }
    taken("holds weights that the runner has not written")
}

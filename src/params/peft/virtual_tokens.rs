//! Prompt and prefix tuning in PEFT's layout: one tensor `prompt_embeddings` [virtual tokens, columns]. Columns are those
//! of an embedding, or of the keys and values of the first layer, of the second and so on.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use burn::tensor::TensorData;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};

use super::{Config, adapters};
use crate::params::save::{MARK, RUNNER, write_weights};
use crate::params::table::{Entry, Table};
use crate::params::tuning::VirtualTokens;
use crate::params::weights::{TensorFile, float};

/// The one tensor of the file.
pub const VECTORS: &str = "prompt_embeddings";
/// Keys that change what is computed; PEFT's defaults of them do not.
const UNSUPPORTED: [&str; 2] = ["modules_to_save", "prefix_projection"];

/// How many virtual tokens a folder has.
///
/// # Errors
/// What the runner does not compute, named.
pub fn count(config: &Config) -> Result<usize, String> {
    config.only_defaults(&UNSUPPORTED)?;
    let count = config.get("num_virtual_tokens").as_u64().filter(|count| *count > 0);
    let count = count.ok_or_else(|| config.wrong("num_virtual_tokens must be a whole number above 0"))?;
    Ok(count as usize)
}

/// A parameter's own columns of the file's tensor.
#[derive(Debug)]
pub struct Part {
    dtype: Dtype,
    shape: [usize; 2],
    bytes: Vec<u8>,
}

impl Part {
    pub fn view(&self) -> TensorView<'_> {
        TensorView::new(self.dtype, self.shape.to_vec(), &self.bytes)
            .expect("as many bytes as the shape says")
    }
}

/// The parameters of a file of virtual tokens by name; `None` where the file is of another method.
///
/// # Errors
/// What does not fit.
pub fn parts(file: &TensorFile, expected: &Table) -> Result<Option<HashMap<String, Part>>, String> {
    let Some(vectors) = file.tensor(VECTORS) else { return Ok(None) };
    let rows = adapters(expected).next().map_or(0, |entry| entry.shape[0]);
    let columns: usize = adapters(expected).map(|entry| entry.shape[1]).sum();
    if vectors.shape() != [rows, columns] {
        return Err(format!(
            "  wrong shape: {VECTORS} is {:?}, expected [{rows}, {columns}]",
            vectors.shape()
        ));
    }
    let dtype = vectors.dtype();
    let size = float(dtype).ok_or_else(|| format!("  wrong dtype: {VECTORS} is {dtype:?}"))?.size();
    let mut first = 0;
    let part = |entry: &Entry| {
        let width = entry.shape[1];
        let own = first * size..(first + width) * size;
        let bytes = vectors.data().chunks(columns * size).flat_map(|row| row[own.clone()].to_vec()).collect();
        first += width;
        (entry.name.clone(), Part { dtype, shape: [rows, width], bytes })
    };
    Ok(Some(adapters(expected).map(part).collect()))
}

/// What `adapter_config.json` says of virtual tokens alone. PEFT takes the sizes from the model.
pub fn config(tokens: VirtualTokens) -> Map<String, Value> {
    let (key, own) = match tokens {
        VirtualTokens::Embeddings(_) => ("prompt_tuning_init", json!("RANDOM")),
        VirtualTokens::KeysAndValues(_) => ("prefix_projection", json!(false)),
    };
    let keys =
        [("num_virtual_tokens", json!(tokens.count())), ("num_transformer_submodules", json!(1)), (key, own)];
    keys.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// Writes all of them as one tensor.
pub fn write(path: &Path, table: &Table, value: &mut dyn FnMut(&str) -> TensorData) -> io::Result<()> {
    let parts: Vec<(usize, TensorData)> =
        adapters(table).map(|entry| (entry.shape[1], value(&entry.name))).collect();
    let first = adapters(table).next().expect("a method with virtual tokens has parameters");
    let (rows, dtype) = (first.shape[0], first.dtype);
    let columns = parts.iter().map(|(width, _)| width).sum();
    let row = |row: usize| {
        parts.iter().flat_map(move |(width, data)| {
            let bytes = width * dtype.size();
            data.as_bytes()[row * bytes..(row + 1) * bytes].iter().copied()
        })
    };
    let bytes: Vec<u8> = (0..rows).flat_map(row).collect();
    let entry = Entry { name: VECTORS.into(), shape: vec![rows, columns], ..first.clone() };
    let whole = |_: &str| TensorData::from_bytes_vec(bytes.clone(), [rows, columns], dtype);
    write_weights(path, &Table { entries: vec![entry] }, (MARK, RUNNER), whole).map_err(io::Error::other)
}

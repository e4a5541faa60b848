//! PEFT's folder of prompt or prefix tuning: `adapter_config.json`, and `adapter_model.safetensors` with one tensor
//! `prompt_embeddings` [virtual tokens, columns]. Columns are those of an embedding, or of the keys and values of the
//! first layer, of the second and so on.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use burn::tensor::TensorData;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};

use super::{CONFIG, TENSORS, adapters, is_default, read_config};
use crate::params::save::{MARK, RUNNER, write_weights};
use crate::params::table::{Entry, Table};
use crate::params::tuning::VirtualTokens;
use crate::params::weights::TensorFile;
use crate::words::Rule;

/// The one tensor of the file.
const VECTORS: &str = "prompt_embeddings";
/// Keys that change what is computed; PEFT's defaults of them do not.
const UNSUPPORTED: [&str; 2] = ["modules_to_save", "prefix_projection"];

/// PEFT's name of the method.
fn peft_type(tokens: VirtualTokens) -> &'static str {
    match tokens {
        VirtualTokens::Embeddings(_) => "PROMPT_TUNING",
        VirtualTokens::KeysAndValues(_) => "PREFIX_TUNING",
    }
}

/// What a folder's configuration asks for; `None` where it is of another method.
///
/// # Errors
/// What the runner does not compute, named.
pub fn of_config(config: &Map<String, Value>) -> Result<Option<VirtualTokens>, String> {
    let get = |key: &str| config.get(key).unwrap_or(&Value::Null);
    let kinds = [VirtualTokens::Embeddings, VirtualTokens::KeysAndValues];
    let Some(of) = kinds.into_iter().find(|of| get("peft_type") == peft_type(of(0))) else { return Ok(None) };
    if let Some(key) = UNSUPPORTED.into_iter().find(|key| !is_default(get(key))) {
        return Err(format!("{key} = {} is not supported", get(key)));
    }
    let count = get("num_virtual_tokens").as_u64().filter(|count| *count > 0);
    let count = count.ok_or("num_virtual_tokens must be a whole number above 0")?;
    Ok(Some(of(count as usize)))
}

/// Refuses a folder of first values that is not of these virtual tokens.
///
/// # Errors
/// The key, and what to write.
pub fn check(tokens: VirtualTokens, folder: Option<&Path>) -> Result<(), Rule> {
    let Some(folder) = folder else { return Ok(()) };
    let config = read_config(folder);
    let there = config.and_then(|(config, wrong)| of_config(&config).map_err(|what| wrong(&what)));
    let there = there.map_err(|e| Rule::new(&["tuning.adapter"], e, "name another folder"))?;
    let name = folder.display();
    match there {
        Some(there) if there == tokens => Ok(()),
        Some(there) if peft_type(there) == peft_type(tokens) => Err(Rule::new(
            &["tuning.num_virtual_tokens"],
            format!(
                "the adapter in {name} has tuning.num_virtual_tokens = {}, and this cell {}",
                there.count(),
                tokens.count()
            ),
            format!("write tuning.num_virtual_tokens = {}, or name another adapter", there.count()),
        )),
        _ => Err(Rule::new(
            &["tuning.adapter", "tuning.method"],
            format!(
                "the adapter in {name} is of another method, and this cell's is PEFT's {}",
                peft_type(tokens)
            ),
            "name another folder, or another tuning.method",
        )),
    }
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
    let (dtype, size) = (vectors.dtype(), vectors.data().len() / (rows * columns).max(1));
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

/// Writes virtual tokens, whose parameters `value` has by name. `base`: the folder of the model's weights. PEFT takes the
/// sizes from the model.
pub fn write(
    folder: &Path,
    tokens: VirtualTokens,
    base: Option<&Path>,
    table: &Table,
    value: &mut dyn FnMut(&str) -> TensorData,
) -> io::Result<()> {
    let mut config = json!({
        "peft_type": peft_type(tokens),
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "num_virtual_tokens": tokens.count(),
        "num_transformer_submodules": 1,
        "inference_mode": true,
    });
    let (key, own) = match tokens {
        VirtualTokens::Embeddings(_) => ("prompt_tuning_init", json!("RANDOM")),
        VirtualTokens::KeysAndValues(_) => ("prefix_projection", json!(false)),
    };
    config[key] = own;
    fs::write(folder.join(CONFIG), serde_json::to_vec_pretty(&config)?)?;
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
    write_weights(&folder.join(TENSORS), &Table { entries: vec![entry] }, (MARK, RUNNER), whole)
        .map_err(io::Error::other)
}

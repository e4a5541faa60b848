//! Folders of weights, sound and damaged.

mod expected;

use std::collections::HashMap;
use std::path::Path;

use burn::tensor::DType;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize_to_file};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

type Tensors<'a> = &'a [(&'a str, &'a [usize], &'a [f32])];

fn write(path: &Path, tensors: Tensors) {
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(.., data)| data.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let views: HashMap<String, TensorView> = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape, _), bytes)| {
            (name.to_string(), TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap())
        })
        .collect();
    serialize_to_file(views, None, path).unwrap();
}

fn single(tensors: Tensors) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("model.safetensors"), tensors);
    folder
}

/// A file of the given header and as many zero bytes.
fn raw(header: &str, data: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    folder
}

fn sharded(map: Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.safetensors"), &[("x", &[2], &[1.0, 2.0])]);
    write(&folder.path().join("b.safetensors"), &[("y", &[1], &[3.0])]);
    let index = json!({ "metadata": { "total_size": 12 }, "weight_map": map });
    std::fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    folder
}

fn error(folder: &TempDir) -> String {
    Weights::open(folder.path()).unwrap_err()
}

fn elements(tensor: &TensorView) -> usize {
    tensor.shape().iter().product()
}

fn floats(tensor: &TensorView) -> Vec<f32> {
    let mut out = vec![0; elements(tensor) * 4];
    write_elements(tensor, 0..elements(tensor), &mut out, DType::F32);
    out.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn reads_tensors_and_parts_of_them() {
    let folder = single(&[("m", &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), ("s", &[], &[7.0])]);
    let weights = Weights::open(folder.path()).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["m", "s"]);
    let m = weights.get("m").unwrap();
    assert_eq!((m.dtype(), m.shape()), (Dtype::F32, [3, 2].as_slice()));
    let mut rows = [0; 16];
    write_elements(&m, 2..6, &mut rows, DType::F32);
    assert_eq!(
        rows.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect::<Vec<_>>(),
        [3.0, 4.0, 5.0, 6.0]
    );
    assert_eq!(floats(&weights.get("s").unwrap()), [7.0]);
    assert!(weights.get("n").is_none());
}

#[test]
fn reads_shards() {
    let folder = sharded(json!({ "x": "a.safetensors", "y": "b.safetensors" }));
    let weights = Weights::open(folder.path()).unwrap();
    assert_eq!(floats(&weights.get("x").unwrap()), [1.0, 2.0]);
    assert_eq!(floats(&weights.get("y").unwrap()), [3.0]);
}

#[test]
fn an_index_must_agree_with_its_shards() {
    for (map, expected) in [
        (json!({ "x": "a.safetensors", "y": "c.safetensors" }), "the shard c.safetensors is missing"),
        (json!({ "x": "a.safetensors", "z": "b.safetensors" }), "places tensor z in b.safetensors"),
        (json!({ "x": "b.safetensors", "y": "a.safetensors" }), "places tensor x in b.safetensors"),
        (json!({ "x": "../a.safetensors" }), "\"../a.safetensors\" is not the name of a file"),
        (json!({ "x": "/etc/passwd" }), "is not the name of a file in this folder"),
        (json!({ "x": ".." }), "is not the name of a file in this folder"),
        (json!({ "x": "" }), "is not the name of a file in this folder"),
        (json!(["x"]), "not an index"),
    ] {
        let message = error(&sharded(map.clone()));
        assert!(message.contains(expected) && message.contains("index.json"), "{map}\n-> {message}");
    }
    let folder = sharded(json!({ "x": "a.safetensors", "y": "b.safetensors" }));
    write(&folder.path().join("b.safetensors"), &[("x", &[1], &[3.0]), ("y", &[1], &[3.0])]);
    let message = error(&folder);
    assert!(message.contains("b.safetensors: tensor x is also in") && message.contains("a.safetensors"));
}

/// A tensor as a header describes it.
fn tensor(dtype: &str, shape: Value, from: u64, to: u64) -> Value {
    json!({ "dtype": dtype, "shape": shape, "data_offsets": [from, to] })
}

#[test]
fn a_lying_header_is_refused() {
    let two = |a: Value, b: Value| json!({ "a": a, "b": b }).to_string();
    let one = |a: Value| json!({ "a": a }).to_string();
    let whole = tensor("F32", json!([2]), 0, 8);
    for (header, data, expected) in [
        (one(tensor("F32", json!([2]), 8, 0)), 8, "invalid"),
        (one(tensor("F32", json!([3]), 0, 8)), 8, "invalid shape, data type, or offset"),
        (one(tensor("BF16", json!([2]), 0, 8)), 8, "invalid shape, data type, or offset"),
        (one(tensor("F32", json!([u64::MAX, 8]), 0, 8)), 8, "overflow"),
        (one(tensor("F32", json!([-1]), 0, 8)), 8, "invalid JSON in header"),
        (one(tensor("INT4", json!([2]), 0, 8)), 8, "unknown variant `INT4`"),
        (one(json!({ "dtype": "F32" })), 8, "missing field"),
        (two(whole.clone(), tensor("F32", json!([2]), 4, 12)), 12, "invalid offset for tensor"),
        (two(whole.clone(), whole.clone()), 8, "invalid offset for tensor"),
        (two(whole.clone(), tensor("F32", json!([1]), 12, 16)), 16, "invalid offset for tensor `b`"),
        (one(whole.clone()), 9, "not fully covered"),
        ("[1]".into(), 0, "invalid JSON in header"),
        ("{".into(), 0, "invalid JSON in header"),
    ] {
        let message = error(&raw(&header, data));
        assert!(message.contains(expected), "{header}\n-> {message}");
        assert!(message.contains("model.safetensors is damaged"), "{message}");
    }
}

#[test]
fn a_short_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    for (bytes, expected) in [
        (vec![], "model.safetensors is empty"),
        (vec![1, 2, 3], "header too small"),
        (u64::MAX.to_le_bytes().to_vec(), "header too large"),
        (b"\x10\0\0\0\0\0\0\0{}".to_vec(), "invalid header length"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let message = error(&folder);
        assert!(message.contains(expected), "{message}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(error(&folder).contains("holds no model.safetensors"));
    let header = json!({ "a": tensor("F32", json!([2]), 0, 8) }).to_string();
    let message = error(&raw(&header, 4));
    let sizes = [12, 16].map(|data| header.len() + data);
    let expected = format!("is cut short: it has {} bytes, and its header describes {}", sizes[0], sizes[1]);
    assert!(message.contains(&expected), "{message}");
}

#[test]
fn metadata_is_no_tensor_and_an_empty_tensor_is_one() {
    let header = json!({
        "__metadata__": { "format": "pt" },
        "a": { "dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0] },
        "b": { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] },
    });
    let folder = raw(&header.to_string(), 4);
    let weights = Weights::open(folder.path()).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b"]);
    assert!(floats(&weights.get("a").unwrap()).is_empty());
}

//! What stands in the place of a model's folder or of one of its files: each cause is looked for before it is named.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use itertools::Itertools;

use crate::params::hub::cache;

/// How a file begins that is something else, what it is, and what to do.
const BEGINNINGS: [(&[u8], &str); 6] = [
    (
        b"version https://git-lfs",
        "is a pointer of Git LFS, not the file itself: run `git lfs install` and `git lfs pull` in its folder",
    ),
    (b"<!DOCTYPE", "is a web page, not the file itself: download the file"),
    (b"<!doctype", "is a web page, not the file itself: download the file"),
    (b"<html", "is a web page, not the file itself: download the file"),
    (b"PK\x03\x04", "is a file of torch.save under another name: convert it to safetensors"),
    (b"GGUF", "is a GGUF file under another name: take the model's safetensors"),
];

/// Endings of files whose download has not ended.
const UNFINISHED: [&str; 5] = [".incomplete", ".part", ".crdownload", ".aria2", ".download"];

/// Files in which other programs have weights, by the beginning or the end of their names, and what they are.
const OTHERS: [(&str, &str); 5] = [
    (".gguf", "llama.cpp's GGUF"),
    (".h5", "TensorFlow's"),
    (".msgpack", "Flax's"),
    (".pth", "Meta's or torch.save's"),
    (".onnx", "ONNX"),
];

/// Why a file that is there cannot be what it is called; `None` where it may be.
pub fn other_content(path: &Path) -> Option<String> {
    let mut beginning = [0; 32];
    let read = File::open(path).and_then(|mut file| file.read(&mut beginning)).ok()?;
    let name = path.display();
    if read == 0 {
        return Some(format!("{name} is empty: its download or copy has not ended; get it again"));
    }
    let found = BEGINNINGS.iter().find(|(start, _)| beginning[..read].starts_with(start));
    found.map(|(_, what)| format!("{name} {what}"))
}

/// Whether the folder of a model is there.
///
/// # Errors
/// What is there in its place, and what to do.
pub fn folder(folder: &Path) -> Result<(), String> {
    let name = folder.display();
    if folder.is_dir() {
        return Ok(());
    }
    if folder.exists() {
        return Err(format!("{name} is a file; name the folder that holds it with its config.json"));
    }
    if is_link(folder) {
        return Err(format!("{name} is a link to something that is not there; name the folder itself"));
    }
    if folder.starts_with("~") {
        return Err(format!(
            "there is no folder {name}: here no shell puts the home folder in the place of ~; write it out"
        ));
    }
    Err(format!("there is no folder {name}; name one that holds config.json and *.safetensors"))
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// Why a folder lacks a file, and what to do.
pub fn lacks(folder: &Path, name: &str) -> String {
    let file = folder.join(name);
    if is_link(&file) {
        return format!(
            "{} is a link to a file that is not there: its download has not ended, or the cache was emptied; download it \
             again",
            file.display()
        );
    }
    let lacks = format!("{} holds no {name}", folder.display());
    if let Some(snapshot) = cache::any_snapshot(folder) {
        let snapshot = snapshot.display();
        return format!(
            "{lacks}: it is a folder of Hugging Face's cache; name the snapshot in it, {snapshot}"
        );
    }
    if folder.join("adapter_config.json").exists() && name == "config.json" {
        return format!(
            "{lacks}: the folder holds an adapter without its model; name the model's own folder, and this one in \
             tuning.adapter, or with --adapter"
        );
    }
    if let Some(unfinished) = unfinished(folder, name) {
        return format!(
            "{lacks}, but {}: its download has not ended; download it again",
            unfinished.display()
        );
    }
    let names = names(folder);
    if let Some((other, what)) = names.iter().find_map(|name| Some((name, other_format(name)?))) {
        return format!(
            "{lacks}; it holds {other}, which is {what}: the runner reads safetensors, with their config.json"
        );
    }
    match inner(folder, name) {
        Some(inner) => format!("{lacks}; there is one in {}: name that folder", inner.display()),
        None => format!("{lacks}; name a folder that holds config.json and *.safetensors"),
    }
}

/// A file that a download of this one has left: beside it, or where `hf download --local-dir` keeps its own.
fn unfinished(folder: &Path, name: &str) -> Option<PathBuf> {
    let stem = name.split('.').next().unwrap_or(name);
    let in_folder = |folder: PathBuf, any: bool| {
        let is_of = move |name: &String| {
            (any || name.starts_with(stem)) && UNFINISHED.iter().any(|ending| name.ends_with(ending))
        };
        names(&folder).into_iter().find(is_of).map(|name| folder.join(name))
    };
    let cache = folder.join(".cache/huggingface/download");
    in_folder(folder.to_path_buf(), false).or_else(|| in_folder(cache, true))
}

fn other_format(name: &str) -> Option<&'static str> {
    OTHERS.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, what)| *what)
}

/// A folder in this one that holds the file.
fn inner(folder: &Path, name: &str) -> Option<PathBuf> {
    names(folder).into_iter().map(|inner| folder.join(inner)).find(|inner| inner.join(name).is_file())
}

/// What is in a folder, in alphabetical order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).sorted().collect()
}

/// Why a folder has no file of weights, and what to do.
pub fn no_weights(folder: &Path, weights: &str, index: &str) -> String {
    if is_link(&folder.join(weights)) {
        return lacks(folder, weights);
    }
    let name = folder.display();
    let names = names(folder);
    let is_pickled = |name: &&String| {
        name.starts_with("pytorch_model") && (name.ends_with(".bin") || name.ends_with(".bin.index.json"))
    };
    if let Some(pickled) = names.iter().find(is_pickled) {
        return format!(
            "{name} holds {pickled}, which can run code when it is read, and no {weights}. Convert it with transformers, and \
             only if you trust where it comes from:\n  from transformers import AutoModelForCausalLM\n  \
             model = AutoModelForCausalLM.from_pretrained(\"{name}\", torch_dtype=\"auto\")\n  \
             model.save_pretrained(\"{name}\", safe_serialization=True)"
        );
    }
    let is_shard = |name: &&String| name.starts_with("model-") && name.ends_with(".safetensors");
    if let Some(first) = names.iter().find(is_shard) {
        return format!(
            "{name} holds {first} without {index}, which says where each tensor is: download that file too"
        );
    }
    if let Some(other) =
        names.iter().find(|name| name.ends_with(".safetensors") && !name.starts_with("adapter"))
    {
        return format!(
            "{name} holds {other}, but no {weights} and no {index}; call the file {weights} if it is the model"
        );
    }
    lacks(folder, weights)
}

#[cfg(test)]
#[path = "found_tests.rs"]
mod tests;

//! Folders and files that are something else than a model, each told apart.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use crate::model::config::from_hugging_face;
use crate::params::weights::Weights;

/// A folder with these files.
fn place(files: &[(&str, &str)]) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    place
}

const GPT2: &str = r#"{ "model_type": "gpt2", "vocab_size": 6, "n_embd": 4, "n_layer": 1, "n_head": 1 }"#;
const LFS: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 134515008\n";

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(message.contains(part), "`{part}` is not in: {message}"));
}

#[track_caller]
fn config(folder: &Path, parts: &[&str]) {
    says(&from_hugging_face(folder).map(|_| ()).unwrap_err(), parts);
}

#[track_caller]
fn weights(folder: &Path, parts: &[&str]) {
    says(&Weights::open(folder).map(|_| ()).unwrap_err(), parts);
}

#[test]
fn names_that_are_no_folder() {
    let place = place(&[("a/b.txt", "")]);
    let lost = from_hugging_face(&place.path().join("a/lost")).map(|_| ()).unwrap_err();
    says(&lost, &["there is no folder", "name one that holds config.json"]);
    // It has a folder of its owner: no name of the hub is meant, nor is it in a longer path.
    assert!(!lost.contains("Hub"), "{lost}");
    config(Path::new("~/models/x"), &["no shell puts the home folder"]);
    config(&place.path().join("a/b.txt"), &["is a file; name the folder"]);
    symlink("nowhere", place.path().join("link")).unwrap();
    config(&place.path().join("link"), &["is a link to something that is not there"]);
}

#[test]
fn files_that_hold_something_else() {
    for (text, expected) in [
        (LFS, "is a pointer of Git LFS, not the file itself: run `git lfs install` and `git lfs pull`"),
        ("", "is empty"),
        ("<!DOCTYPE html><html>", "is a web page"),
        ("PK\u{3}\u{4}archive/data.pkl", "is a file of torch.save"),
    ] {
        let folder = place(&[("config.json", GPT2), ("model.safetensors", text)]);
        weights(folder.path(), &["model.safetensors", expected]);
    }
    config(place(&[("config.json", LFS)]).path(), &["config.json is a pointer of Git LFS"]);
    config(place(&[("config.json", "")]).path(), &["config.json is empty"]);
    config(place(&[("config.json", "{ \"a\": ")]).path(), &["config.json is not a JSON object"]);
    let index = place(&[("config.json", GPT2), ("model.safetensors.index.json", LFS)]);
    weights(index.path(), &["model.safetensors.index.json is a pointer of Git LFS"]);
}

#[test]
fn other_formats_and_downloads_that_have_not_ended() {
    let of = |name: &str| place(&[("config.json", GPT2), (name, "")]);
    for name in ["pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"] {
        let folder = of(name);
        let own = folder.path().display().to_string();
        weights(
            folder.path(),
            &[
                name,
                "from transformers import AutoModelForCausalLM\n",
                &format!("from_pretrained(\"{own}\""),
                &format!("save_pretrained(\"{own}\", safe_serialization=True)"),
            ],
        );
    }
    for (name, expected) in [
        ("tf_model.h5", "TensorFlow's"),
        ("model.q4.gguf", "GGUF"),
        ("model.safetensors.incomplete", "its download has not ended"),
        ("model.safetensors.part", "its download has not ended"),
        (".cache/huggingface/download/4d7a.incomplete", "its download has not ended"),
        ("model-00001-of-00002.safetensors", "without model.safetensors.index.json"),
        ("model.fp16.safetensors", "holds model.fp16.safetensors, but no model.safetensors"),
        ("notes.txt", "holds no model.safetensors; name a folder"),
    ] {
        weights(of(name).path(), &[expected]);
    }
    let map = r#"{ "weight_map": { "a": "model-1.safetensors" } }"#;
    let folder = of("model-1.safetensors.incomplete");
    fs::write(folder.path().join("model.safetensors.index.json"), map).unwrap();
    weights(folder.path(), &["the shard model-1.safetensors is missing", "its download has not ended"]);
    config(place(&[("adapter_config.json", "{}")]).path(), &["holds an adapter without its model"]);
    config(place(&[("inner/config.json", GPT2)]).path(), &["there is one in", "inner: name that folder"]);
}

#[test]
fn the_cache_of_the_hub_names_its_snapshot() {
    let cache = place(&[
        ("models--a--b/refs/main", "222"),
        ("models--a--b/snapshots/222/config.json", GPT2),
        ("models--a--b/snapshots/333/config.json", GPT2),
    ]);
    let model = cache.path().join("models--a--b");
    let snapshot = model.join("snapshots/222");
    config(&model, &["a folder of Hugging Face's cache", &snapshot.display().to_string()]);
    config(&model.join("snapshots"), &[&snapshot.display().to_string()]);
    // The snapshot itself has links to what was downloaded.
    symlink("../../blobs/4d7a", snapshot.join("model.safetensors")).unwrap();
    weights(&snapshot, &["model.safetensors is a link to a file that is not there"]);
}

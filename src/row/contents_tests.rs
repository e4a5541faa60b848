//! Checksums follow the files that are read, and no others.

use std::fs;

use super::*;
use crate::recipe::{Recipe, Source};

/// A cell that reads weights, text and a tokenizer of `folder`.
fn cell(folder: &Path, eval: bool) -> Cell {
    let at = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "title = \"t\"\n[model]\nkind = \"gpt2\"\nweights = \"{}\"\n[data]\ncorpus = \"{}\"\n\
         tokenizer = \"{}\"\n[train]\nbatch_size = 1\nseq_len = 4\n{}",
        at("model"),
        at("text"),
        at("model"),
        if eval { "[eval]\nevery = 1\n" } else { "" },
    );
    let source = Source { path: "r.toml".into(), text };
    Recipe::parse_finished(&source, true).unwrap().cells.remove(0)
}

/// A folder with weights, a tokenizer and text in it.
fn place() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["model", "text"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gpt2/config.json");
    fs::copy(config, folder.path().join("model/config.json")).unwrap();
    for name in ["model/model.safetensors", "model/tokenizer.json", "text/train.txt", "text/valid.txt"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    folder
}

fn inputs(cell: &Cell) -> Inputs {
    Contents::new(&|_| {}).inputs(cell)
}

#[test]
fn the_files_that_a_cell_reads_decide_and_no_others() {
    let place = place();
    let cell = cell(place.path(), false);
    let first = inputs(&cell);
    assert_eq!(first.keys().collect::<Vec<_>>(), ["data.corpus", "data.tokenizer", "model.weights"]);
    for (name, key) in [
        ("model/model.safetensors", Some("model.weights")),
        ("model/tokenizer.json", Some("data.tokenizer")),
        ("model/tokenizer_config.json", Some("data.tokenizer")),
        ("text/train.txt", Some("data.corpus")),
        ("text/more.txt", Some("data.corpus")),
        // Held-out text is not read without [eval].
        ("text/valid.txt", None),
        ("text/notes.md", None),
        ("model/README.md", None),
    ] {
        let before = inputs(&cell);
        fs::write(place.path().join(name), "another content").unwrap();
        let after = inputs(&cell);
        let changed: Vec<&str> =
            before.keys().map(String::as_str).filter(|key| before[*key] != after[*key]).collect();
        assert_eq!(changed, key.into_iter().collect::<Vec<_>>(), "{name}");
    }
    let evaluated = self::cell(place.path(), true);
    let before = inputs(&evaluated);
    fs::write(place.path().join("text/valid.txt"), "a third content").unwrap();
    assert_ne!(inputs(&evaluated)["data.corpus"], before["data.corpus"]);
}

#[test]
fn shards_count_as_the_index_names_them() {
    let place = place();
    let cell = cell(place.path(), false);
    let at = |name: &str| place.path().join("model").join(name);
    fs::rename(at("model.safetensors"), at("a.safetensors")).unwrap();
    fs::write(at("b.safetensors"), "b").unwrap();
    fs::write(at("model.safetensors.index.json"), r#"{"weight_map": {"x": "a.safetensors"}}"#).unwrap();
    let one = inputs(&cell)["model.weights"].clone();
    fs::write(at("b.safetensors"), "another").unwrap();
    assert_eq!(inputs(&cell)["model.weights"], one, "no tensor lies in it");
    fs::write(at("a.safetensors"), "another").unwrap();
    assert_ne!(inputs(&cell)["model.weights"], one);
}

#[test]
fn a_missing_file_has_no_checksum_until_it_is_there() {
    let place = place();
    let cell = cell(place.path(), false);
    let path = place.path().join("model/tokenizer.json");
    fs::remove_file(&path).unwrap();
    assert!(!inputs(&cell).contains_key("data.tokenizer"));
    fs::write(&path, "there").unwrap();
    assert!(inputs(&cell).contains_key("data.tokenizer"));
}

/// Its files are not read whole before it begins.
#[test]
fn a_corpus_that_is_read_in_buffers_is_known_by_the_ends_of_its_files() {
    let place = place();
    let mut cell = cell(place.path(), false);
    let sum = |cell: &Cell| inputs(cell)["data.corpus"].clone();
    let whole = sum(&cell);
    let Data::Text { shuffle_buffer, .. } = &mut cell.data else { panic!("not text") };
    *shuffle_buffer = Some(8);
    let ends = sum(&cell);
    assert!(ends != whole && ends == sum(&cell));
}

#[test]
fn a_chat_template_decides_where_it_is_a_file() {
    let place = place();
    let (mut cell, file) = (cell(place.path(), false), place.path().join("chat.jinja"));
    let mut with = |name: &str| {
        let Data::Text { template, .. } = &mut cell.data else { panic!("not text") };
        *template = Some(name.to_string());
        inputs(&cell).get("data.template").cloned()
    };
    assert_eq!(with("chatml"), None);
    assert_eq!(with(&file.display().to_string()), None);
    fs::write(&file, "a").unwrap();
    let first = with(&file.display().to_string());
    fs::write(&file, "b").unwrap();
    assert!(first.is_some() && first != with(&file.display().to_string()));
}

//! What a user gives a cell: sizes, folders of weights, texts and tokenizers, through the binary.

mod texts;

use std::path::Path;

use serde_json::{Value, json};

use crate::language::copied;
use crate::place::{Ended, Place, SMALL, TINY, changed};

/// Trains the weights of the folder `qwen2` on generated text.
const TUNED: &str = r#"title = "tuned"
[model]
kind = "qwen2"
weights = "qwen2"
[data]
corpus = "generated"
size = "20 KiB"
[train]
batch_size = 2
seq_len = 16
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 1
steps = 1
"#;

#[track_caller]
fn refused(recipe: &str, parts: &[&str]) {
    let place = Place::new(recipe);
    for command in ["check", "plan", "run"] {
        place.runner(&[command, "recipe.toml"]).exits(2).says(parts);
    }
}

/// The only failed row has this reason, which speaks of what to change and not of the program.
#[track_caller]
fn failed(place: &Place, parts: &[&str]) {
    let ended = place.runner(&["run", "recipe.toml"]).exits(1).says(parts);
    let row = place.rows().into_iter().find(|row| row["status"] == "failed").expect("a failed row");
    let reason = row["reason"].as_str().expect("a reason");
    assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
    for text in [reason, &ended.out, &ended.err] {
        assert!(!text.contains("panicked"), "{text}");
    }
}

/// Changes keys of a folder's config.json.
fn configure(folder: &Path, changes: &Value) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    std::fs::write(path, config.to_string()).unwrap();
}

/// Ends at once and in little memory, whatever the sizes.
#[test]
fn sizes_beyond_every_machine_are_refused() {
    let change = |from, to| changed(SMALL, &[(from, to)]);
    let layers = change("num_hidden_layers = 2", "num_hidden_layers = 2000000000");
    refused(&layers, &["must be at most 65536, not 2000000000", "recipe.toml:6"]);
    refused(&TINY.replace("num_hidden_layers = 2", "num_hidden_layers = 2000000000"), &["at most 65536"]);
    let most = "hidden_size = 2147483644\nintermediate_size = 2147483647";
    for (from, to, largest) in [
        ("hidden_size = 32", most, "model.intermediate_size = 2147483647"),
        (
            "vocab_size = 300\nhidden_size = 32",
            &format!("vocab_size = 2147483647\n{most}"),
            "model.vocab_size",
        ),
        ("batch_size = 2", "batch_size = 2147483647\naccumulation_steps = 2147483646", "train.batch_size"),
    ] {
        refused(&change(from, to), &["more memory than any machine can address", largest]);
    }
    let swiglu = TINY.replace("hidden_size = 32", "hidden_size = 2147483647").replace("= 64", "= 1");
    let swiglu = swiglu.replace("[2, 4]", "[2, 2147483647]");
    refused(&swiglu.replace("seq_len = 16", "seq_len = 2147483647"), &["more memory than any machine"]);
}

#[test]
fn a_config_that_lies_is_named_with_its_keys() {
    for (changes, parts) in [
        (json!({ "num_hidden_layers": 2_000_000_000 }), vec!["num_hidden_layers", "must be at most 65536"]),
        (json!({ "hidden_size": 0 }), vec!["hidden_size must be at least 1, not 0"]),
        (json!({ "num_attention_heads": 3 }), vec!["num_attention_heads 3", "num_key_value_heads 2"]),
        (json!({ "vocab_size": 9_000_000_000_000_000_000u64 }), vec!["vocab_size must be"]),
        (json!({ "vocab_size": 511 }), vec!["model.embed_tokens.weight is [512, 64]", "(vocab_size"]),
        (json!({ "num_hidden_layers": 65_536 }), vec!["missing: model.layers.3.", "(num_hidden_layers)"]),
        (json!({ "vocab_size": 2_147_483_647, "hidden_size": 2_147_483_640 }), vec!["embed_tokens"]),
        (json!({ "num_key_value_heads": 4 }), vec!["k_proj", "num_key_value_heads"]),
    ] {
        let place = Place::new(TUNED);
        let folder = copied(&place, "qwen2");
        configure(&folder, &changes);
        let named = |ended: Ended| {
            let ended = ended.exits(1).says(&parts).says(&["config.json"]);
            assert!(!ended.err.contains("panicked") && ended.err.lines().count() < 60, "{}", ended.err);
        };
        named(place.runner(&["generate", "qwen2", "--ids", "1,2"]));
        named(place.runner(&["verify", "qwen2"]));
    }
}

/// The name of a tensor, in the header of a file of weights.
fn rename(file: &Path, from: &str, to: &str) {
    let bytes = std::fs::read(file).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().expect("the header's length");
    let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let tensor = header.remove(from).expect("a tensor of this name");
    header.insert(to.into(), tensor);
    let header = serde_json::to_vec(&header).unwrap();
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(file, [&length[..], &header, data].concat()).unwrap();
}

/// Names in files of others may hold what a terminal would obey: a new title, a cursor that goes back.
#[test]
fn names_in_foreign_files_reach_the_terminal_without_escapes() {
    const ESCAPE: &str = "\u{1b}]0;mine\u{7}\u{1b}[31mred\u{9b}2J\rback\u{202e}";
    let clean = |ended: Ended| {
        let text = ended.out + &ended.err;
        let bad = text.chars().find(|c| c.is_control() && !"\t\n".contains(*c) || *c == '\u{202e}');
        assert!(bad.is_none() && text.contains("mine"), "{text:?}");
    };
    let place = Place::new(&TUNED.replace("corpus = \"generated\"\nsize = \"20 KiB\"\n", ""));
    let folder = copied(&place, "qwen2");
    rename(&folder.join("model.safetensors"), "model.norm.weight", &format!("model.{ESCAPE}"));
    for args in [&["generate", "qwen2", "--ids", "1,2"][..], &["verify", "qwen2"], &["run", "recipe.toml"]] {
        clean(place.runner(args).exits(1));
    }
    configure(&folder, &json!({ "model_type": ESCAPE }));
    clean(place.runner(&["generate", "qwen2", "--ids", "1,2"]).exits(1));
    clean(place.runner(&["check", "recipe.toml"]).exits(2));
    // A recipe's own lines are shown too.
    place.write("mine.toml", &format!("title = \"mine{ESCAPE}\"\n"));
    clean(place.runner(&["check", "mine.toml"]).exits(2));
}

#[test]
fn weights_that_are_not_the_models_fail_their_cell_with_a_plain_reason() {
    let place = Place::new(&TUNED.replace("corpus = \"generated\"\nsize = \"20 KiB\"\n", ""));
    configure(&copied(&place, "qwen2"), &json!({ "vocab_size": 511 }));
    failed(&place, &["model.embed_tokens.weight is [512, 64], expected [511, 64]", "config.json"]);
}

#[test]
fn keys_without_effect_are_refused() {
    let idle = SMALL.replace("optimizer = { kind = \"adamw\", lr = 1e-3 }\n", "");
    let with = |key: &str| idle.replace("seq_len = 16\n", &format!("seq_len = 16\n{key}\n"));
    refused(&with("clip_norm = 1.0"), &["train.clip_norm has no effect", "recipe.toml:16"]);
    let cosine = with("schedule = { kind = \"cosine\", warmup_steps = 2 }");
    refused(&cosine, &["train.schedule has no effect", "train.optimizer", "recipe.toml:16"]);
    let held_out = SMALL.replace("size = \"100 KiB\"", "size = \"100 KiB\"\neval_split = \"test\"");
    refused(&held_out, &["data.eval_split has no effect without [eval]", "recipe.toml:12"]);
    Place::new(&format!("{held_out}[eval]\nevery = 1\n")).runner(&["check", "recipe.toml"]).exits(0);
    let trained_on = format!("{}[eval]\nevery = 1\n", held_out.replace("\"test\"", "\"train\""));
    refused(&trained_on, &["data.eval_split is data.train_split", "name another split"]);
}

/// A row's rates are of all micro-batches, and so are its losses.
#[test]
fn swiglu_accumulates() {
    let grid = TINY.find("[grid]").unwrap();
    let place = Place::new(&format!("{}[grid]\n\"train.accumulation_steps\" = [1, 8]\n", &TINY[..grid]));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["2 measured"]);
    let rows = place.rows();
    let number = |row: &Value, pointer: &str| row.pointer(pointer).and_then(Value::as_f64).expect("a number");
    for row in &rows {
        let steps = row["cell"]["train"].get("accumulation_steps").map_or(1.0, |n| n.as_f64().unwrap());
        let measured = row["measurement"]["step"]["seconds"].as_array().expect("a list").len() as f64;
        let seconds = number(row, "/measurement/run_seconds") / measured;
        let tokens = number(row, "/measurement/tokens_per_second") * seconds;
        assert!((tokens - 32.0 * steps).abs() < 1e-6, "{tokens} tokens in {steps} micro-batches");
        // Three products of 32 · 64 in each of two layers, a multiply-add counted as two.
        assert_eq!(number(row, "/flops/forward"), 32.0 * steps * 2.0 * 3.0 * 32.0 * 64.0 * 2.0);
    }
    // Eight problems are harder to learn than one of them.
    assert_ne!(rows[0]["measurement"]["loss"], rows[1]["measurement"]["loss"]);
}

#[test]
fn a_number_of_tokens_beyond_the_positions_is_refused() {
    let place = Place::new(SMALL);
    copied(&place, "qwen2");
    for tokens in ["127", "18446744073709551615", "18446744073709551614"] {
        place
            .runner(&["generate", "qwen2", "--ids", "1,2", "--tokens", tokens])
            .exits(1)
            .says(&["the model has 128 positions", "--tokens"]);
    }
}

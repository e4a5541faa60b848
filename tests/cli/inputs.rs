//! What a user gives a cell: sizes, folders of weights, texts and tokenizers, through the binary.

use std::path::Path;

use runner::data::Tokenizer;
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

/// `SMALL` on a text of files, without [eval].
fn on_text(corpus: &str) -> String {
    changed(SMALL, &[("\"generated\"\nsize = \"100 KiB\"", &format!("\"{corpus}\""))])
}

fn sentences(count: usize) -> String {
    (0..count).map(|n| format!("The {n}th fox jumps over {} lazy dogs.\n", n * 7)).collect()
}

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
fn loaded_weights_read_text_in_their_own_tokens() {
    let place = Place::new(TUNED);
    let folder = copied(&place, "qwen2");
    let lacks = ["qwen2 holds no tokenizer.json", "data.tokenizer", "recipe.toml:4"];
    place.runner(&["check", "recipe.toml"]).exits(2).says(&lacks);
    place.write("sized.toml", &TUNED.replace("size = \"20 KiB\"", "size = \"20 KiB\"\nvocab_size = 300"));
    place.runner(&["check", "sized.toml"]).exits(2).says(&["loaded weights come with their own"]);
    // A tokenizer that is named counts, whatever the folder has.
    let trained = "size = \"20 KiB\"\ntokenizer = \"train\"\nvocab_size = 300";
    place.write("trained.toml", &TUNED.replace("size = \"20 KiB\"", trained));
    place.runner(&["check", "trained.toml"]).exits(0);

    let texts = [sentences(100)];
    Tokenizer::train(&texts, 290).unwrap().save(&folder).unwrap();
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let row = place.rows().remove(0);
    assert_eq!(row["cell"]["data"]["tokenizer"], "qwen2");
    // And not one of 4096 tokens.
    assert_eq!(row["cell"]["data"]["vocab_size"], Value::Null);
}

#[test]
fn a_text_with_more_tokens_than_the_weights_is_refused() {
    let place = Place::new(TUNED);
    let folder = copied(&place, "qwen2");
    let words: String = (0..3000).map(|n| format!("word{n} word{n} ")).collect();
    Tokenizer::train(std::slice::from_ref(&words), 600).unwrap().save(&folder).unwrap();
    place.write("words.txt", &words);
    place.write("recipe.toml", &TUNED.replace("\"generated\"\nsize = \"20 KiB\"", "\"words.txt\""));
    failed(&place, &["the text has the token 5", "and the model has only 512 rows", "data.tokenizer"]);
}

#[test]
fn one_text_file_trains_where_nothing_is_evaluated() {
    let place = Place::new(&on_text("book.txt"));
    place.write("book.txt", &sentences(400));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let evaluated = format!("{}[eval]\nevery = 1\nbatches = 1\n", on_text("book.txt"));
    place.write("recipe.toml", &evaluated);
    for command in ["check", "plan", "run"] {
        place.runner(&[command, "recipe.toml"]).exits(2).says(&[
            "book.txt has no text for \"valid\"",
            "a held-out file such as valid.txt",
            "recipe.toml:10",
        ]);
    }
    place.write("recipe.toml", &on_text("held-out-test.txt"));
    place.write("held-out-test.txt", &sentences(400));
    place.runner(&["check", "recipe.toml"]).exits(2).says(&["no text for \"train\"", "data.train_split"]);
    // A recipe for another machine, where the text is.
    place.write("recipe.toml", &on_text("elsewhere"));
    place.runner(&["check", "recipe.toml"]).exits(0);
    place
        .runner(&["run", "recipe.toml"])
        .exits(1)
        .says(&["nothing was measured", "data.corpus = \"elsewhere\""]);
}

/// Every cell would fail for the same reason.
#[test]
fn files_that_are_not_there_are_named_before_the_first_cell_runs() {
    let grid = "[grid]\n\"train.batch_size\" = [1, 2]\n";
    let place = Place::new(&format!("{}{grid}", on_text("wiki")));
    let here = place.path().canonicalize().expect("it is there");
    let parts = ["data.corpus = \"wiki\"", here.to_str().expect("UTF-8"), "--set data.corpus=PATH"];
    let ended = place.runner(&["run", "recipe.toml"]).exits(1).says(&parts);
    assert!(!ended.err.contains("cell 1/2: "), "{}", ended.err);
    assert!(place.row_files().is_empty());
    // What does not read them runs.
    let grid = "[[grid]]\n\"train.batch_size\" = [1, 2]\n[[grid]]\n\"data.corpus\" = \"generated\"\n\"data.size\" = \"100 KiB\"\n";
    place.write("recipe.toml", &format!("{}{grid}", on_text("wiki")));
    let parts = ["2 cells will fail", "data.corpus = \"wiki\"", "3 measured", "2 failed"];
    place.runner(&["run", "recipe.toml"]).exits(1).says(&parts);
    // Once they are there all is well.
    std::fs::create_dir(place.path().join("wiki")).expect("a folder");
    place.write("wiki/train.txt", &sentences(400));
    place.runner(&["run", "recipe.toml", "--retry-failed"]).exits(0).says(&["2 measured"]);
}

#[test]
fn evaluations_that_read_their_text_repeatedly_say_so() {
    for (batches, repeatedly) in [(2, false), (900, true)] {
        let recipe = format!("{SMALL}[eval]\nevery = 5\nbatches = {batches}\n");
        let place = Place::new(&recipe.replace("seq_len = 16", "seq_len = 4"));
        place.runner(&["run", "recipe.toml"]).exits(0);
        let way = place.rows().remove(0)["measurement"]["paths"]["evaluation"].clone();
        assert_eq!(way.as_str().is_some_and(|way| way.contains("eval.batches = 900")), repeatedly, "{way}");
    }
}

#[test]
fn held_out_text_that_is_too_short_matters_to_those_who_evaluate() {
    for sampler in ["", "sampler = \"padded\"\n"] {
        let recipe = on_text("text").replace("[train]", &format!("{sampler}[train]"));
        let place = Place::new(&recipe);
        std::fs::create_dir(place.path().join("text")).unwrap();
        place.write("text/train.txt", &sentences(400));
        place.write("text/valid.txt", "\n");
        place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
        std::fs::remove_dir_all(place.path().join("results")).unwrap();
        place.write("recipe.toml", &format!("{recipe}[eval]\nevery = 1\n"));
        failed(&place, &["there is no text for \"valid\" in", "write some into it"]);
    }
    let place = Place::new(&format!("{}[eval]\nevery = 1\n", on_text("text")));
    std::fs::create_dir(place.path().join("text")).unwrap();
    place.write("text/train.txt", &sentences(400));
    place.write("text/valid.txt", "A fox.");
    failed(&place, &["\"valid\"", "less than one sequence of 16", "train.seq_len"]);
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

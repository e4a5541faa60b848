//! The key table and the structs that serde reads say the same.

use serde_json::{Map, json};

use super::super::{Cell, rules};
use super::*;
use crate::keys::key::DefaultValue;
use crate::keys::values::Values;

/// Dotted settings as nested JSON.
fn nested(settings: &Settings) -> Value {
    let mut root = Value::Object(Map::new());
    for (path, value) in settings {
        let at = path.split('.').fold(&mut root, |at, part| &mut at[part]);
        *at = value.clone();
    }
    root
}

fn cell(settings: &Settings) -> Result<Cell, String> {
    Cell::from_json(&nested(settings)).map_err(|e| format!("{:?}", miette::Report::new(e)))
}

/// Whether a recipe may say this.
fn is_valid(settings: &Settings) -> bool {
    cell(settings).is_ok_and(|cell| rules::check(&cell, |_| false).is_ok())
}

/// The keys that a cell with this section must have, and those without which it would have no effect.
fn least(section: &Section) -> Settings {
    let mut all = Settings::from([
        ("model.kind".to_string(), json!("gpt2")),
        ("train.optimizer.kind".into(), json!("adamw")),
    ]);
    if ["data", "data.columns"].contains(&section.path) {
        all.insert("data.corpus".into(), json!("a file"));
    }
    if section.path == "precision.scaler" {
        all.extend([
            ("precision.scaler.kind".into(), json!("static")),
            ("precision.compute".into(), json!("fp16")),
        ]);
    }
    if section.path == "eval" {
        all.insert("eval.every".into(), json!(1));
    }
    if section.path == "generate" {
        all.insert("data.corpus".into(), json!("generated"));
    }
    if section.path == "parallel" {
        all.extend([("parallel.data".into(), json!(2)), ("train.batch_size".into(), json!(16))]);
    }
    if section.path == "parallel.pipeline" {
        all.insert("parallel.pipeline.schedule".into(), json!("1f1b"));
    }
    if section.path == "task" {
        all.extend([
            ("task.kind".into(), json!("sums")),
            ("data.corpus".into(), json!("task")),
            ("data.sampler".into(), json!("standard")),
        ]);
    }
    if let Some(kind) = section.kind {
        let value = kinds(section.path, kind.key).into_iter().find(|value| kind.has(value));
        all.insert(section.path_of(kind.key), value.into());
    }
    if all.get("model.kind") == Some(&json!("gptj")) {
        // Its default of 64 is larger than the heads of these sizes.
        all.insert("model.rotary_dim".into(), json!(2));
    }
    // What is required follows from the kinds that are chosen so far.
    for entry in super::all() {
        let optional = ["eval", "generate", "parallel.pipeline", "precision.scaler", "task"]
            .contains(&entry.section.path);
        let has = !optional || entry.section.path == section.path;
        if has && entry.is_of(&all) && entry.key.default.is_required() && !all.contains_key(&entry.path) {
            let value = match entry.key.values {
                Values::Text => json!("text"),
                Values::Texts => json!(["text"]),
                _ if entry.path.ends_with("heads") => json!(2),
                _ => json!(16),
            };
            all.insert(entry.path.clone(), value);
        }
    }
    all
}

#[test]
fn every_key_of_the_table_is_read_and_has_its_default() {
    for entry in all() {
        let least = least(entry.section);
        let json = cell(&least).unwrap_or_else(|e| panic!("{}: {e}", entry.path)).to_json();
        let value = json.pointer(&format!("/{}", entry.path.replace('.', "/"))).unwrap_or(&Value::Null);
        match entry.key.default {
            DefaultValue::Required => {
                let mut without = least.clone();
                without.remove(&entry.path);
                // A section that nothing of is written is not there.
                let there = match entry.section.path {
                    "eval" => Some(("eval.batches", json!(1))),
                    "log" => Some(("log", json!({}))),
                    "generate" => Some(("generate.max_new_tokens", json!(1))),
                    "task" => Some(("task.examples", json!(1))),
                    _ => None,
                };
                without.extend(there.map(|(key, value)| (key.to_string(), value)));
                let message = cell(&without).expect_err(&entry.path);
                assert!(
                    message.contains(entry.key.name) && message.contains("missing"),
                    "{}: {message}",
                    entry.path
                );
            }
            DefaultValue::Nothing if least.contains_key(&entry.path) => {}
            DefaultValue::Nothing => assert!(value.is_null(), "{} is {value}", entry.path),
            DefaultValue::Depends(_) => {}
            _ if least.contains_key(&entry.path) => {}
            // Absent in rows from before there was the key, and so in every cell with its default.
            _ if [
                "train.mode",
                "train.clip",
                "train.graph",
                "train.optimizer.store_param_remainders",
                "parallel.engine",
                "offload.optimizer_state",
                "parallel.shard",
                "model.initializer_range",
                "tuning.use_rslora",
                "tuning.use_dora",
                "tuning.bias",
            ]
            .contains(&entry.path.as_str()) =>
            {
                assert!(value.is_null());
            }
            default => assert!(same(value, &default.value().unwrap()), "{} is {value}", entry.path),
        }
        assert!(entry.key.doc.ends_with('.'), "{}", entry.path);
    }
    // A kind that is not written is the default of its key.
    let json =
        cell(&Settings::from_iter(least(&TOP).into_iter().filter(|(key, _)| key != "train.optimizer.kind")));
    let settings = json.unwrap().settings();
    for path in ["train.optimizer.kind", "train.schedule.kind", "offload.strategy", "data.corpus"] {
        assert_eq!(settings.get(path), find(path).unwrap().key.default.value().as_ref(), "{path}");
    }
}

#[test]
fn every_value_of_a_cell_has_its_key() {
    for section in sections() {
        let settings = cell(&least(section)).unwrap().settings();
        for path in settings.keys() {
            assert!(of(path, &settings).is_some(), "{path} of {}", section.doc);
        }
    }
}

#[test]
fn values_are_refused_where_the_table_ends() {
    for entry in all() {
        let least = least(entry.section);
        let with = |value: Value| {
            let mut settings = least.clone();
            settings.insert(entry.path.clone(), value);
            settings
        };
        let refused = |value: Value| assert!(!is_valid(&with(value.clone())), "{} = {value}", entry.path);
        let mut words = match entry.key.values {
            Values::Words(words) => words.to_vec(),
            Values::Kinds => kinds(entry.section.path, entry.key.name),
            _ => Vec::new(),
        };
        match entry.key.values {
            Values::Whole { least, most } | Values::WholeOr { least, most, .. } => {
                refused((least - 1).into());
                refused((most + 1).into());
                refused(1.5.into());
                refused("nothing of the kind".into());
            }
            Values::Number(range) => {
                for number in [-1.0, 0.0, 1.0] {
                    assert!(
                        range.contains(number) || !is_valid(&with(number.into())),
                        "{} {number}",
                        entry.path
                    );
                }
            }
            Values::Scale => refused(0.0.into()),
            Values::Numbers(numbers) => {
                refused(0.25.into());
                assert!(numbers.iter().all(|number| cell(&with((*number).into())).is_ok()), "{}", entry.path);
            }
            Values::Bool | Values::BoolOr(_) => {
                refused("yes".into());
                assert!(
                    cell(&with(true.into())).is_ok()
                        || ["attention_bias", "tie_word_embeddings"].contains(&entry.key.name),
                    "{}",
                    entry.path
                );
            }
            Values::Bytes => refused("much".into()),
            Values::Text | Values::Texts | Values::Path(_) => refused(1.into()),
            Values::Words(_) | Values::Kinds => {
                // serde lists the values that there are.
                let message = cell(&with("nothing of the kind".into())).expect_err(&entry.path);
                let listed = message.split("valid values here:").nth(1).unwrap_or_default();
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let mut listed: Vec<&str> =
                    listed.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect();
                words.sort_unstable();
                listed.sort_unstable();
                assert_eq!(listed, words, "{}: {message}", entry.path);
            }
        }
    }
}

#[test]
fn keys_of_one_path_read_alike() {
    for entry in all() {
        let first = find(&entry.path).unwrap();
        assert_eq!(entry.key.role, first.key.role, "{}", entry.path);
        assert_eq!(entry.key.label(), first.key.label(), "{}", entry.path);
        for other in entry.key.follows.iter().chain(&entry.key.times) {
            assert!(find(other).is_some(), "{} speaks of {other}", entry.path);
        }
    }
}

#[test]
fn what_has_its_default_is_not_swept() {
    let of = |pairs: &[(&str, Value)]| -> Settings {
        pairs.iter().map(|(key, value)| (key.to_string(), value.clone())).collect()
    };
    let padded = [("data.sampler", json!("padded")), ("data.num_workers", json!(1))];
    let packed = [
        ("data.sampler", json!("packed")),
        ("data.num_workers", json!(1)),
        ("data.last_sample", json!("cut")),
    ];
    assert_eq!(swept(&[of(&[]), of(&padded), of(&packed)]), ["data.sampler"]);
    let mut two = packed.clone();
    two[1].1 = json!(2);
    two[2].1 = json!("drop");
    let settings = [of(&padded), of(&two)];
    assert_eq!(swept(&settings), ["data.last_sample", "data.num_workers", "data.sampler"]);
    assert!(goes_along("data.last_sample", &settings), "only packed has it");
    assert!(!goes_along("data.num_workers", &settings), "every sampler has it");
}

#[test]
fn what_one_kind_has_written_does_not_follow_from_the_kind() {
    let of = |method: &str, rank: i64| -> Settings {
        let pairs = [("tuning.method", json!(method)), ("tuning.rank", json!(rank))];
        pairs.map(|(key, value)| (key.to_string(), value)).into_iter().collect()
    };
    assert!(
        !goes_along("tuning.rank", &[of("lora", 16), of("qlora", 8)]),
        "QLoRA has its default, LoRA has not"
    );
    assert!(goes_along("tuning.rank", &[of("lora", 16), of("qlora", 32)]), "both are written");
    assert!(goes_along("tuning.rank", &[of("lora", 8), of("qlora", 8)]), "neither is");
}

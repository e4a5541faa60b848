//! Families whose gradients rounding moves far, in 16 bits: they pass, and formulas that are wrong do not.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::*;
use crate::verify::{Options, passes, table, verify};

/// Those of which gradients in bf16 miss the table's limit.
const FAR: [&str; 7] = ["qwen3", "gemma2", "gemma3_text", "gpt2_relu", "olmo2", "qwen2_window", "qwen2_yarn"];

fn family(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families").join(name)
}

fn verified(folder: &Path, settings: &[&str]) -> Vec<Check> {
    let settings = ["device=cpu"].iter().chain(settings).map(|setting| setting.parse().unwrap());
    verify(folder, &Options { settings: settings.collect(), atol: None }).unwrap()
}

#[test]
fn families_are_verified_in_16_bits() {
    for name in FAR {
        for settings in [&["precision.compute=bf16"][..], &["precision.compute=fp16"]] {
            let checks = verified(&family(name), settings);
            assert!(passes(&checks), "{name} {settings:?}\n{}", table(&checks));
        }
    }
}

/// The gradients at the last step, of fp32 weights.
#[test]
fn gradients_under_autocast_are_held_to_rounding_too() {
    for name in ["qwen2_yarn", "gpt2_relu"] {
        let checks = verified(&family(name), &["precision.compute=bf16", "precision.autocast=true"]);
        assert!(passes(&checks), "{name}\n{}", table(&checks));
        assert!(checks.iter().any(|check| check.is_compared() && check.name.contains("step3_grad.")));
    }
}

/// A copy of a family's folder with other fields in its `config.json`.
fn changed(name: &str, fields: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(family(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (key, value) in fields.as_object().unwrap() {
        assert_ne!(config[key], *value, "{name}: {key} is no change");
        config[key] = value.clone();
    }
    fs::write(path, config.to_string()).unwrap();
    folder
}

fn fails(what: &str, folder: &Path) {
    for compute in ["bf16", "fp16"] {
        let checks = verified(folder, &[&format!("precision.compute={compute}")]);
        let wrong = checks.iter().filter(|check| !check.passes() && check.name.contains("grad."));
        assert!(wrong.count() > 0, "{what} in {compute}\n{}", table(&checks));
    }
}

/// Each is the formula of another model: the reference is of the fields as they were.
#[test]
fn a_wrong_formula_fails_in_16_bits() {
    for (name, fields) in [
        ("gemma2", json!({ "attn_logit_softcapping": 50.0 })),
        ("gemma2", json!({ "final_logit_softcapping": null })),
        ("gemma2", json!({ "query_pre_attn_scalar": 4 })),
        ("gemma3_text", json!({ "sliding_window": 9 })),
        ("qwen3", json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 100.0 } })),
        ("qwen2_window", json!({ "sliding_window": 8 })),
        ("gpt2_relu", json!({ "activation_function": "gelu" })),
        ("olmo2", json!({ "rms_norm_eps": 0.1 })),
    ] {
        fails(&format!("{name} with {fields}"), changed(name, &fields).path());
    }
}

/// Norms by w in the place of 1 + w.
#[test]
fn norms_without_their_one_fail_in_16_bits() {
    let folder = changed("gemma2", &json!({}));
    let path = folder.path().join("model.safetensors");
    let mut file = fs::read(&path).unwrap();
    let norms: Vec<std::ops::Range<usize>> = {
        let tensors = SafeTensors::deserialize(&file).unwrap();
        let of_norms = tensors.tensors().into_iter().filter(|(name, _)| name.ends_with("norm.weight"));
        let place = |data: &[u8]| data.as_ptr() as usize - file.as_ptr() as usize;
        of_norms.map(|(_, norm)| place(norm.data())..place(norm.data()) + norm.data().len()).collect()
    };
    assert_eq!(norms.len(), 13);
    for value in norms.into_iter().flat_map(|place| place.step_by(4)) {
        let bytes = &mut file[value..value + 4];
        let less = f32::from_le_bytes((&*bytes).try_into().unwrap()) - 1.0;
        bytes.copy_from_slice(&less.to_le_bytes());
    }
    fs::write(&path, file).unwrap();
    fails("gemma2 without one", folder.path());
}

//! What a folder's `generation_config.json` asks of generation that `runner generate` does not do by itself.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::common::text::printable;
use crate::params::companions::GENERATION;

/// Keys that choose among drawn tokens, with what transformers takes for an absent one. They count with `do_sample` alone.
const DRAWING: [(&str, f64); 4] = [("temperature", 1.0), ("top_k", 50.0), ("top_p", 1.0), ("typical_p", 1.0)];

/// Keys that change the text also where the most probable token is taken; such a value changes nothing.
fn of_any_choice() -> [(&'static str, Value); 16] {
    [
        ("bad_words_ids", Value::Null),
        ("begin_suppress_tokens", Value::Null),
        ("encoder_repetition_penalty", json!(1.0)),
        ("exponential_decay_length_penalty", Value::Null),
        ("forced_bos_token_id", Value::Null),
        ("forced_eos_token_id", Value::Null),
        ("guidance_scale", json!(1.0)),
        ("min_length", json!(0)),
        ("min_new_tokens", json!(0)),
        ("min_p", json!(0.0)),
        ("no_repeat_ngram_size", json!(0)),
        ("num_beams", json!(1)),
        ("penalty_alpha", json!(0.0)),
        ("repetition_penalty", json!(1.0)),
        ("sequence_bias", Value::Null),
        ("suppress_tokens", Value::Null),
    ]
}

/// A sentence for the user; `None` where the file asks for nothing else. `given`: keys for which the command line has a flag
/// that was written.
pub fn notice(folder: &Path, given: &[&str]) -> Option<String> {
    let file = folder.join(GENERATION);
    let config: Map<String, Value> = serde_json::from_slice(&std::fs::read(&file).ok()?).ok()?;
    let value = |key: &str| config.get(key).filter(|value| !value.is_null());
    let is = |key: &str, neutral: &Value| match (value(key), neutral.as_f64()) {
        (None, _) => true,
        (Some(value), Some(neutral)) => value.as_f64() == Some(neutral),
        (Some(value), None) => value.as_array().is_some_and(Vec::is_empty),
    };
    let samples = value("do_sample") == Some(&Value::Bool(true));
    let drawing =
        DRAWING.iter().filter(|(key, neutral)| samples && !is(key, &json!(neutral))).map(|(key, _)| *key);
    let sample = samples.then_some("do_sample").filter(|_| !given.contains(&"temperature"));
    let always = of_any_choice();
    let always = always.iter().filter(|(key, neutral)| !is(key, neutral)).map(|(key, _)| *key);
    let keys = sample.into_iter().chain(drawing).chain(always).filter(|key| !given.contains(key));
    let asked: Vec<String> = keys.map(|key| printable(&format!("{key} = {}", config[key]))).collect();
    (!asked.is_empty()).then(|| {
        format!(
            "{} has {}, which is not applied: without --temperature the most probable token is taken, and --top-k alone limits \
             what is drawn",
            file.display(),
            asked.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_applied_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let of = |config: Value, given: &[&str]| {
            std::fs::write(folder.path().join(GENERATION), config.to_string()).unwrap();
            notice(folder.path(), given)
        };
        assert_eq!(notice(folder.path(), &[]), None, "no file");
        for nothing in [
            json!({ "eos_token_id": 2, "pad_token_id": 0, "transformers_version": "5.0" }),
            json!({ "do_sample": false, "temperature": 0.6, "top_p": 0.9 }),
            json!({ "do_sample": true, "temperature": 1.0, "repetition_penalty": 1 }),
        ] {
            let told = of(nothing.clone(), &["temperature"]);
            assert_eq!(told, None, "{nothing}");
        }
        let qwen = json!({ "do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1 });
        let told = of(qwen.clone(), &[]).unwrap();
        for part in
            ["do_sample = true", "temperature = 0.7", "top_k = 20", "top_p = 0.8", "repetition_penalty = 1.1"]
        {
            assert!(told.contains(part), "{told}");
        }
        let told = of(qwen, &["temperature", "top_k"]).unwrap();
        assert!(
            !told.contains("do_sample") && !told.contains("top_k = 20") && told.contains("top_p"),
            "{told}"
        );
    }
}

//! Models that the runner does not read, by what they are, and what to take in their place.

use serde_json::Value;

use super::ConfigFile;
use crate::model::Model;

/// Fields of a `config.json` whose model reads more than text, and what.
const OTHER_INPUTS: [(&str, &str); 3] =
    [("vision_config", "pictures"), ("audio_config", "sound"), ("speech_config", "sound")];

/// Fields with the number of experts.
const EXPERTS: [&str; 5] =
    ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts"];

/// Why a model of this kind, which is none of the runner's, is not read.
pub fn reason(kind: &str, file: &ConfigFile) -> String {
    let is_there = |key: &str| file.get(key).is_some_and(|value| *value != Value::Bool(false));
    let supported = format!("supported are {}", Model::LANGUAGE.join(", "));
    if let Some((field, what)) = OTHER_INPUTS.iter().find(|(field, _)| is_there(field)) {
        let text_kind = file.get("text_config").and_then(|text| text.get("model_type"));
        let text_kind = text_kind.and_then(Value::as_str).filter(|kind| Model::LANGUAGE.contains(kind));
        let instead = match text_kind {
            Some(text_kind) => {
                format!(
                    "its text model is a {text_kind}: save that alone, as docs/language_models.md shows with transformers"
                )
            }
            None => supported,
        };
        return format!("model_type {kind} is not supported: it reads {what} too ({field}); {instead}");
    }
    if kind.contains("moe") || EXPERTS.iter().any(|field| is_there(field)) {
        return format!(
            "model_type {kind} is not supported: it is a mixture of experts; take a dense model: {supported}"
        );
    }
    if is_there("is_encoder_decoder") {
        return format!(
            "model_type {kind} is not supported: it has an encoder and a decoder; take a decoder: {supported}"
        );
    }
    format!("model_type {kind} is not supported; {supported}")
}

/// # Errors
/// When the weights of the file's model are quantized, by any method.
pub fn quantized(file: &ConfigFile) -> Result<(), String> {
    let Some(config) = file.get("quantization_config") else { return Ok(()) };
    let method = config.get("quant_method").and_then(Value::as_str).unwrap_or("quantization_config");
    Err(format!(
        "its weights are quantized ({method}), which is not supported: take the model in bf16 or fp16; QLoRA packs its \
         weights into 4 bits itself (tuning.method = \"qlora\")"
    ))
}

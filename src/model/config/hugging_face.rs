//! Dimensions from a Hugging Face `config.json`: keys are read as transformers reads them, and a
//! key that would change what the model computes is refused.
//!
//! Dropout rates are read by no one: the runner trains without dropout.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::gpt2::Gpt2Keys;
use super::llama::LlamaKeys;
use super::{Architecture, ConfigError};
use crate::words::values::{MAX_COUNT, MAX_LAYERS};

/// Reads `folder/config.json` of model_type qwen2, llama or gpt2.
///
/// # Errors
/// A missing or damaged file, a missing key, or a key whose value is not supported, named.
pub fn from_hugging_face(folder: &Path) -> Result<Architecture, ConfigError> {
    let config = ConfigFile::read(folder.join("config.json"))?;
    let kind = config.0.get("model_type").and_then(Value::as_str);
    let resolved = match kind {
        Some("qwen2") => config.llama_like("qwen2").map(Architecture::Qwen2),
        Some("llama") => config.llama_like("llama").map(Architecture::Llama),
        Some("gpt2") => config.gpt2().map(Architecture::Gpt2),
        other => Err(ConfigError::new(format!(
            "model_type {} is not supported; supported are qwen2, llama and gpt2",
            other.unwrap_or("(missing)")
        ))),
    };
    resolved.map_err(|e| ConfigError::new(format!("{}: {e}", config.1.display())))
}

/// The keys of a `config.json`, and its path.
struct ConfigFile(Map<String, Value>, PathBuf);

impl ConfigFile {
    fn read(path: PathBuf) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(&path).map_err(|e| {
            ConfigError::new(format!(
                "cannot read {}: {e}; name a folder that holds config.json and *.safetensors",
                path.display()
            ))
        })?;
        let keys = serde_json::from_str(&text)
            .map_err(|e| ConfigError::new(format!("{} is not a JSON object: {e}", path.display())))?;
        Ok(Self(keys, path))
    }

    fn llama_like(&self, kind: &str) -> Result<super::LlamaConfig, ConfigError> {
        self.only("hidden_act", json!("silu"))?;
        self.only("use_sliding_window", json!(false))?;
        self.only("mlp_bias", json!(false))?;
        self.only("quantization_config", Value::Null)?;
        if kind == "llama" {
            // Llama's key covers the output projection too, which Qwen2 has without a bias.
            self.only("attention_bias", json!(false))?;
        }
        for layer in self.0.get("layer_types").and_then(Value::as_array).into_iter().flatten() {
            refuse_unless("layer_types", layer, &json!("full_attention"))?;
        }
        let key_value_heads = match self.0.get("num_key_value_heads") {
            // transformers' default for an absent key; a null means as many as query heads.
            None if kind == "qwen2" => Some(32),
            _ => self.count("num_key_value_heads")?,
        };
        let keys = LlamaKeys {
            vocab_size: self.required("vocab_size")?,
            hidden_size: self.required("hidden_size")?,
            intermediate_size: self.required("intermediate_size")?,
            num_hidden_layers: self.layers("num_hidden_layers")?,
            num_attention_heads: self.required("num_attention_heads")?,
            num_key_value_heads: key_value_heads,
            head_dim: self.count("head_dim")?,
            max_position_embeddings: self.count("max_position_embeddings")?,
            rope_theta: self.rope_theta()?,
            rms_norm_eps: number(&self.0, "rms_norm_eps")?,
            tie_word_embeddings: self.flag("tie_word_embeddings")?,
            ..LlamaKeys::default()
        };
        keys.finish(kind)
    }

    fn gpt2(&self) -> Result<super::Gpt2Config, ConfigError> {
        self.only("activation_function", json!("gelu_new"))?;
        self.only("scale_attn_weights", json!(true))?;
        self.only("scale_attn_by_inverse_layer_idx", json!(false))?;
        self.only("reorder_and_upcast_attn", json!(false))?;
        self.only("add_cross_attention", json!(false))?;
        self.only("quantization_config", Value::Null)?;
        let keys = Gpt2Keys {
            vocab_size: self.required("vocab_size")?,
            hidden_size: self.required("n_embd")?,
            intermediate_size: self.count("n_inner")?,
            num_hidden_layers: self.layers("n_layer")?,
            num_attention_heads: self.required("n_head")?,
            max_position_embeddings: self.count("n_positions")?,
            layer_norm_eps: number(&self.0, "layer_norm_epsilon")?,
            tie_word_embeddings: self.flag("tie_word_embeddings")?,
            ..Gpt2Keys::default()
        };
        keys.finish()
    }

    /// `rope_theta` stands at the top level in older files and under `rope_parameters` in newer
    /// ones; `rope_scaling` is the older name of that table.
    fn rope_theta(&self) -> Result<Option<f64>, ConfigError> {
        let mut theta = number(&self.0, "rope_theta")?;
        for name in ["rope_scaling", "rope_parameters"] {
            let table = match self.0.get(name) {
                None | Some(Value::Null) => continue,
                Some(Value::Object(table)) => table,
                Some(other) => return Err(wrong_type(name, other, "a table")),
            };
            for (key, value) in table {
                match key.as_str() {
                    "rope_type" | "type" => {
                        refuse_unless(&format!("{name}.{key}"), value, &json!("default"))?
                    }
                    "rope_theta" => {
                        let inner = number(table, key)?;
                        if theta.is_some() && inner.is_some() && theta != inner {
                            return Err(ConfigError::new(format!(
                                "{name}.rope_theta and rope_theta differ; remove the wrong one"
                            )));
                        }
                        theta = inner.or(theta);
                    }
                    "partial_rotary_factor" => refuse_unless(&format!("{name}.{key}"), value, &json!(1.0))?,
                    // Parameters of other rope types, or one table for each type of layer.
                    _ => {
                        return Err(ConfigError::new(format!(
                            "{name}.{key} is not supported; only rope_type \"default\" is"
                        )));
                    }
                }
            }
        }
        Ok(theta)
    }

    /// Refuses every value of a key but `supported`, which transformers' default is too.
    fn only(&self, key: &str, supported: Value) -> Result<(), ConfigError> {
        self.0.get(key).map_or(Ok(()), |value| refuse_unless(key, value, &supported))
    }

    fn required(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        present(key, self.count(key)?)
    }

    fn layers(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        present(key, self.whole(key, MAX_LAYERS)?)
    }

    fn count(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        self.whole(key, MAX_COUNT)
    }

    /// A whole number from one to `most`.
    fn whole(&self, key: &str, most: i64) -> Result<Option<usize>, ConfigError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_i64() {
                Some(n) if (1..=most).contains(&n) => Ok(Some(n as usize)),
                _ => Err(wrong_type(key, value, &format!("a whole number from 1 to {most}"))),
            },
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(wrong_type(key, other, "true or false")),
        }
    }
}

fn present(key: &str, count: Option<usize>) -> Result<Option<usize>, ConfigError> {
    match count {
        None => Err(ConfigError::new(format!("the key `{key}` is missing"))),
        some => Ok(some),
    }
}

/// A finite number above zero.
fn number(table: &Map<String, Value>, key: &str) -> Result<Option<f64>, ConfigError> {
    match table.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            Some(x) if x > 0.0 => Ok(Some(x)),
            _ => Err(wrong_type(key, value, "a number above 0")),
        },
    }
}

fn refuse_unless(key: &str, value: &Value, supported: &Value) -> Result<(), ConfigError> {
    let same_number = value.is_number() && value.as_f64() == supported.as_f64();
    if value.is_null() || value == supported || same_number {
        return Ok(());
    }
    let supported = if supported.is_null() { "its absence".into() } else { supported.to_string() };
    Err(ConfigError::new(format!("{key} = {value} is not supported; only {supported} is")))
}

fn wrong_type(key: &str, value: &Value, expected: &str) -> ConfigError {
    ConfigError::new(format!("{key} must be {expected}, not {value}"))
}

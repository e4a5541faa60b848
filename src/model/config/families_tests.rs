//! Every family's `config.json`: what becomes of its fields, and what is written of it.

use std::path::Path;

use serde_json::Value;

use super::fields::DROPOUT;
use super::fields::Fate::{Dropout, Harmless, Read, Unknown};
use super::*;
use crate::model::families::Family;
use crate::params::tuning::{Bottleneck, Method};

/// A folder's file, of which nothing has been looked at, and its family.
fn read(folder: &Path) -> Option<(&'static Family, ConfigFile)> {
    let kind = ConfigFile::read(folder).ok()?.get("model_type").and_then(Value::as_str)?.to_string();
    Some((Family::of_kind(&kind).expect("a family"), ConfigFile::read(folder).ok()?))
}

const T5: &str = "d_model d_kv d_ff num_layers num_decoder_layers num_heads relative_attention_num_buckets \
     relative_attention_max_distance layer_norm_epsilon feed_forward_proj scale_decoder_outputs decoder_start_token_id \
     is_decoder is_encoder_decoder";
const T5_HARMLESS: &str = "classifier_dropout dense_act_fn initializer_factor is_gated_act";

/// Own fields of each family's configuration class of transformers 5.24, as in a fixture: those that are read, and the harmless
/// ones. What is listed nowhere is a rate of dropout.
const OWN: [(&str, &str, &str); 18] = [
    (
        "llama_bias",
        "attention_bias mlp_bias head_dim num_key_value_heads rms_norm_eps hidden_act",
        "pretraining_tp",
    ),
    (
        "qwen2_window",
        "use_sliding_window sliding_window max_window_layers layer_types num_key_value_heads rms_norm_eps hidden_act",
        "",
    ),
    (
        "qwen3",
        "attention_bias use_sliding_window sliding_window layer_types head_dim num_key_value_heads rms_norm_eps hidden_act",
        "max_window_layers",
    ),
    ("mistral", "sliding_window head_dim num_key_value_heads rms_norm_eps hidden_act", ""),
    (
        "smollm3",
        "no_rope_layers no_rope_layer_interval use_sliding_window layer_types attention_bias mlp_bias num_key_value_heads \
         rms_norm_eps hidden_act",
        "sliding_window",
    ),
    ("olmo2", "attention_bias num_key_value_heads rms_norm_eps hidden_act", ""),
    (
        "granite",
        "embedding_multiplier attention_multiplier residual_multiplier logits_scaling attention_bias mlp_bias \
         num_key_value_heads rms_norm_eps hidden_act",
        "",
    ),
    (
        "gemma",
        "use_bidirectional_attention attention_bias head_dim num_key_value_heads rms_norm_eps hidden_act",
        "",
    ),
    (
        "gemma2",
        "attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar sliding_window layer_types hidden_activation \
         use_bidirectional_attention attention_bias head_dim num_key_value_heads rms_norm_eps",
        "",
    ),
    (
        "gemma3_text",
        "_sliding_window_pattern attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar sliding_window \
         layer_types hidden_activation use_bidirectional_attention attention_bias head_dim num_key_value_heads rms_norm_eps",
        "",
    ),
    ("phi", "qk_layernorm layer_norm_eps num_key_value_heads hidden_act", ""),
    (
        "phi3_longrope",
        "original_max_position_embeddings sliding_window num_key_value_heads rms_norm_eps hidden_act",
        "",
    ),
    ("starcoder2", "use_bias norm_epsilon sliding_window num_key_value_heads hidden_act", ""),
    (
        "gpt_neox",
        "attention_bias use_parallel_residual layer_norm_eps hidden_act",
        "classifier_dropout is_decoder",
    ),
    (
        "opt",
        "_remove_final_layer_norm activation_function do_layer_norm_before enable_bias ffn_dim \
         layer_norm_elementwise_affine word_embed_proj_dim",
        "init_std",
    ),
    ("t5", T5, T5_HARMLESS),
    ("t5_gated", T5, T5_HARMLESS),
    (
        "gpt2_relu",
        "activation_function add_cross_attention layer_norm_epsilon n_embd n_head n_inner n_layer n_positions \
         reorder_and_upcast_attn scale_attn_by_inverse_layer_idx scale_attn_weights",
        "summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj",
    ),
];

#[test]
fn every_field_of_the_fixtures_of_families_has_a_fate() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families");
    let common = "hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings vocab_size \
                  tie_word_embeddings initializer_range rope_parameters";
    for (folder, own, harmless) in OWN {
        let (family, file) = read(&folders.join(folder)).unwrap();
        for (key, fate) in file.fates(family).unwrap() {
            let is_in = |names: &str| names.split_whitespace().any(|name| name == key);
            let expected = match key {
                "pad_token_id" if family.pads => Read,
                _ if is_in(own) || is_in(common) => Read,
                _ if DROPOUT.contains(&key) => Dropout,
                _ if is_in(harmless) => Harmless,
                "architectures"
                | "bos_token_id"
                | "dtype"
                | "eos_token_id"
                | "model_type"
                | "pad_token_id"
                | "transformers_version"
                | "use_cache" => Harmless,
                _ => Unknown,
            };
            assert!(fate == expected && fate != Unknown, "{folder}: {key} is {fate:?}, not {expected:?}");
        }
    }
}

/// What the runner writes beside weights of its own is the model that it read.
#[test]
fn a_config_that_is_written_is_read_as_the_same_model() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families");
    for folder in std::fs::read_dir(folders).unwrap().map(|entry| entry.unwrap().path()) {
        let Some((family, file)) = read(&folder) else { continue };
        let config = file.model(family, &folder).unwrap();
        let written = to_hugging_face((family, &config), None, burn::tensor::DType::F32, None, None);
        let again = ConfigFile::parse(&written.to_string()).unwrap().model(family, &folder);
        assert_eq!(again, Ok(config), "{}: {written}", folder.display());
    }
}

/// The small network of an adapter stands after attention and after the MLP.
#[test]
fn a_block_of_every_family_has_two_bottlenecks() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families");
    for folder in std::fs::read_dir(folders).unwrap().map(|entry| entry.unwrap().path()) {
        if read(&folder).is_none() {
            continue;
        }
        let model = from_hugging_face(&folder).unwrap();
        let method = Bottleneck { bottleneck: 2 };
        let columns = model.language().unwrap().architecture().hidden_size;
        let adapted = model.linear_layers().into_iter().filter(|(name, _)| method.adapts(name));
        let outputs: Vec<usize> = adapted.map(|(_, [_, outputs])| outputs).collect();
        assert_eq!(outputs, [columns; 2], "{}", folder.display());
    }
}

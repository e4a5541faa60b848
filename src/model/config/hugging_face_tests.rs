//! Keys of `config.json`: transformers' defaults, both spellings, and what is refused.

use serde_json::{Value, json};

use super::*;
use crate::model::Model;

/// `base` with `changes` over it, read as a config.json.
fn read(base: &Value, changes: Value) -> Result<Model, String> {
    let mut keys = base.clone();
    for (key, value) in changes.as_object().unwrap() {
        keys[key] = value.clone();
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), keys.to_string()).unwrap();
    from_hugging_face(folder.path()).map_err(|e| e.to_string())
}

fn llama() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4
    })
}

fn gpt2() -> Value {
    json!({ "model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4 })
}

#[test]
fn absent_keys_take_the_defaults_of_transformers() {
    let model = read(&llama(), json!({})).unwrap();
    let config = &model.language().expect("a llama").config;
    assert_eq!(
        (config.num_key_value_heads(), config.head_dim(), config.max_position_embeddings()),
        (4, 8, 2048)
    );
    assert_eq!((config.rope_theta(), config.rms_norm_eps()), (1e4, 1e-6));
    assert!(!config.tie_word_embeddings() && !config.attention_bias());
    let model = read(&gpt2(), json!({ "n_inner": null })).unwrap();
    let config = &model.language().expect("a gpt2").config;
    assert_eq!((config.intermediate_size(), config.max_position_embeddings()), (128, 1024));
    assert!(config.tie_word_embeddings());
}

#[test]
fn the_rotary_base_is_found_in_both_places() {
    for changes in [
        json!({ "rope_theta": 5e5 }),
        json!({ "rope_theta": 500_000, "rope_scaling": null }),
        json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 5e5 } }),
        json!({ "rope_theta": 5e5, "rope_scaling": { "type": "default" } }),
    ] {
        let model = read(&llama(), changes).unwrap();
        assert_eq!(model.language().expect("a llama").config.rope_theta(), 5e5);
    }
}

#[test]
fn keys_that_would_change_the_model_are_refused() {
    for (base, changes, expected) in [
        (
            llama(),
            json!({ "hidden_act": "gelu" }),
            "hidden_act = \"gelu\" is not supported; only \"silu\" is",
        ),
        (llama(), json!({ "partial_rotary_factor": 0.5 }), "partial_rotary_factor = 0.5 is not supported"),
        (llama(), json!({ "pad_token_id": 64 }), "pad_token_id = 64 is no row"),
        (llama(), json!({ "pruned_heads": { "0": [1] } }), "pruned_heads is not supported"),
        (llama(), json!({ "quantization_config": { "bits": 4 } }), "QLoRA packs its weights"),
        (llama(), json!({ "quantization_config": { "quant_method": "gptq" } }), "quantized (gptq)"),
        (
            llama(),
            json!({ "model_type": "qwen3_moe", "num_experts": 128 }),
            "a mixture of experts; take a dense model",
        ),
        (llama(), json!({ "model_type": "mixtral", "num_local_experts": 8 }), "a mixture of experts"),
        (llama(), json!({ "model_type": "bart", "is_encoder_decoder": true }), "an encoder and a decoder"),
        (
            llama(),
            json!({ "model_type": "bert", "is_encoder_decoder": false }),
            "model_type bert is not supported; supp",
        ),
        (
            llama(),
            json!({ "model_type": "llava", "vision_config": {}, "text_config": { "model_type": "llama" } }),
            "reads pictures too (vision_config); its text model is a llama: save",
        ),
        (
            llama(),
            json!({ "model_type": "qwen2_audio", "audio_config": {}, "text_config": { "model_type": "mamba" } }),
            "reads sound too (audio_config); supported are",
        ),
        (llama(), json!({ "rope_scaling": { "rope_type": "llama3" } }), "rope_scaling: `factor` is missing"),
        (llama(), json!({ "rope_scaling": { "factor": 8.0 } }), "`factor` = 8.0 is no key"),
        (llama(), json!({ "rope_theta": 1e4, "rope_parameters": { "rope_theta": 1e5 } }), "differ"),
        (llama(), json!({ "rope_parameters": { "full_attention": {} } }), "`full_attention` = {} is no key"),
        (llama(), json!({ "layer_types": ["full_attention", "sliding_attention"] }), "sliding_attention"),
        (llama(), json!({ "layer_types": "sliding_attention" }), "layer_types must be a list"),
        (llama(), json!({ "is_causal": false }), "is_causal = false is not supported"),
        (gpt2(), json!({ "num_attention_heads": 8 }), "num_attention_heads and n_head differ"),
    ] {
        refused(&base, &changes, expected);
    }
}

#[test]
fn sizes_that_are_no_sizes_are_refused() {
    for (base, changes, expected) in [
        // Absent, transformers takes 32 of them.
        (llama(), json!({ "model_type": "qwen2" }), "num_key_value_heads 32"),
        (llama(), json!({ "model_type": "mamba" }), "model_type mamba is not supported"),
        (llama(), json!({ "hidden_size": null }), "the key `hidden_size` is missing"),
        (llama(), json!({ "hidden_size": -4 }), "hidden_size must be at least 1, not -4"),
        (llama(), json!({ "hidden_size": 0 }), "hidden_size must be at least 1, not 0"),
        (llama(), json!({ "vocab_size": 1e300 }), "vocab_size must be a whole number of at least 1, not 1e"),
        (llama(), json!({ "vocab_size": u64::MAX }), "vocab_size must be at most 2147483647"),
        (llama(), json!({ "num_attention_heads": 5 }), "not a multiple"),
        (
            llama(),
            json!({ "num_hidden_layers": 2_000_000_000 }),
            "num_hidden_layers must be at most 65536, not 2000000000",
        ),
        (gpt2(), json!({ "n_layer": 2_000_000_000 }), "n_layer must be at most 65536"),
        (llama(), json!({ "rms_norm_eps": "small" }), "rms_norm_eps must be a number above 0, not \"small\""),
        (gpt2(), json!({ "activation_function": "tanh" }), "only \"gelu_new\", \"gelu\", \"relu\""),
        (gpt2(), json!({ "scale_attn_weights": false }), "scale_attn_weights"),
        (
            gpt2(),
            json!({ "model_type": "gptj", "rotary_dim": null }),
            "rotary_dim is null, which transformers does not load either",
        ),
        (gpt2(), json!({ "n_layer": null }), "the key `n_layer` is missing"),
    ] {
        refused(&base, &changes, expected);
    }
}

fn refused(base: &Value, changes: &Value, expected: &str) {
    let message = read(base, changes.clone()).unwrap_err();
    assert!(message.contains(expected) && message.contains("config.json"), "{changes}\n-> {message}");
}

fn gemma3() -> Value {
    json!({
        "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "bfloat16",
        "eos_token_id": [1, 106], "boi_token_index": 255_999, "image_token_index": 262_144, "mm_tokens_per_image": 256,
        "vision_config": { "hidden_size": 1152, "torch_dtype": "float32" },
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34,
            "rope_scaling": { "factor": 8.0, "rope_type": "linear" }, "sliding_window": 1024
        }
    })
}

/// The fields of google/gemma-3-4b-it, which leaves out transformers' defaults.
#[test]
fn the_text_part_of_a_gemma_3_is_the_preset() {
    let whole = read(&gemma3(), json!({})).unwrap();
    let preset: Model = toml::from_str("[gemma3_text]\npreset = \"gemma-3-4b\"").unwrap();
    let [whole, preset] = [whole, preset].map(|model| model.language().expect("a gemma3_text").clone());
    assert_eq!(whole.config, preset.config);
    assert_eq!(whole.common.pad_token_id, Some(0));
}

#[test]
fn what_a_gemma_3_computes_otherwise_is_refused() {
    for (changes, expected) in [
        (json!({ "quantization_config": { "quant_method": "bitsandbytes" } }), "quantized (bitsandbytes)"),
        (json!({ "text_config": { "final_logit_softcapping": 30.0 } }), "final_logit_softcapping = 30.0"),
        (
            json!({ "text_config": { "model_type": "mamba" } }),
            "model_type gemma3 is not supported: it reads pictures",
        ),
        (json!({ "text_config": null }), "model_type gemma3 is not supported: it reads pictures"),
        (json!({ "model_type": "gemma3n" }), "model_type gemma3n is not supported: it reads pictures"),
    ] {
        let message = read(&gemma3(), changes.clone()).unwrap_err();
        assert!(message.contains(expected), "{changes}\n-> {message}");
    }
}

/// The head is the embedding where the whole says so, as in transformers.
#[test]
fn the_whole_decides_whether_the_head_is_tied() {
    for (tied, of_text, expected) in [(json!(null), false, true), (json!(false), true, false)] {
        let mut text = gemma3()["text_config"].clone();
        text["tie_word_embeddings"] = json!(of_text);
        let model = read(&gemma3(), json!({ "tie_word_embeddings": tied, "text_config": text })).unwrap();
        assert_eq!(model.language().unwrap().config.tie_word_embeddings(), expected);
    }
}

/// All fields stay but those of the type of the weights, who wrote them, and the tokens of another tokenizer.
#[test]
fn a_saved_config_is_that_of_the_whole() {
    let family = crate::model::families::Family::of_kind("gemma3_text").unwrap();
    let base = ConfigFile::parse(&gemma3().to_string()).unwrap();
    let dimensions = base.model(family, std::path::Path::new(".")).unwrap();
    let notices = base.notices(family, true);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].contains("the text part of a gemma3, which is read alone; what is saved has the other")
    );
    let dtype = burn::tensor::DType::F32;
    let saved = to_hugging_face((family, &dimensions), Some(0), dtype, Some(base), Some(&[7]));
    let mut expected = gemma3();
    expected["torch_dtype"] = json!("float32");
    expected["written_by"] = json!("runner");
    for key in ["bos_token_id", "eos_token_id"] {
        expected[key] = json!(7);
        expected["text_config"][key] = json!(7);
    }
    assert_eq!(saved, expected);
}

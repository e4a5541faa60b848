//! What becomes of every field of a `config.json`, family by family.

use serde_json::{Value, json};

use super::fields::Fate::{self, Dropout, Harmless, Read, Unknown};
use super::*;
use crate::model::families::Family;

fn family(kind: &str) -> &'static Family {
    Family::of_kind(kind).expect("a family")
}

fn fates(family: &'static Family, text: &Value) -> Vec<(String, Fate)> {
    let file = ConfigFile::parse(&text.to_string()).expect("a JSON object");
    let fates = file.fates(family).unwrap_or_else(|e| panic!("{}: {e}", family.kind));
    fates.into_iter().map(|(key, fate)| (key.to_string(), fate)).collect()
}

/// The fields that the configuration class of transformers 5.24 writes for the family, or 4 wrote, beside those of every
/// family, each with what becomes of it.
fn check(kind: &str, sizes: Value, own: &[(&str, Value, Fate)]) {
    let family = family(kind);
    let common = [
        ("architectures", json!(["SomethingForCausalLM"]), Harmless),
        ("bos_token_id", json!(1), Harmless),
        ("eos_token_id", json!([2, 3]), Harmless),
        ("model_type", json!(family.kind), Harmless),
        ("dtype", json!("bfloat16"), Harmless),
        ("torch_dtype", json!("bfloat16"), Harmless),
        ("transformers_version", json!("5.24.0"), Harmless),
        ("use_cache", json!(true), Harmless),
        ("_name_or_path", json!("x"), Harmless),
        ("id2label", json!({ "0": "LABEL_0" }), Harmless),
        ("label2id", json!({ "LABEL_0": 0 }), Harmless),
        ("chunk_size_feed_forward", json!(0), Harmless),
        ("is_encoder_decoder", json!(false), Harmless),
        ("output_attentions", json!(false), Harmless),
        ("output_hidden_states", json!(false), Harmless),
        ("problem_type", Value::Null, Harmless),
        ("return_dict", json!(true), Harmless),
        ("task_specific_params", json!({ "text-generation": { "do_sample": true } }), Harmless),
        ("temperature", json!(0.7), Harmless),
        ("initializer_range", json!(0.02), Read),
        ("is_causal", json!(true), Read),
        ("pruned_heads", json!({}), Read),
        ("quantization_config", Value::Null, Read),
        ("tie_word_embeddings", json!(false), Read),
        ("vocab_size", json!(64), Read),
        ("layer_norm_eps", json!(1e-3), Unknown),
        ("attn_logit_softcapping", json!(30.0), Unknown),
    ];
    let mut file = sizes;
    let all: Vec<_> = common.iter().chain(own).collect();
    all.iter().for_each(|(key, value, _)| file[*key] = value.clone());
    let fates = fates(family, &file);
    for (key, _, expected) in all {
        let found = fates.iter().find(|(found, _)| found == key).map(|(_, fate)| *fate);
        assert_eq!(found, Some(*expected), "{} {key}", family.kind);
    }
    for (key, fate) in &fates {
        let listed = common.iter().chain(own).any(|(listed, ..)| listed == key);
        assert!(listed, "{}: what becomes of {key}? It is {fate:?}", family.kind);
    }
}

fn llama() -> Vec<(&'static str, Value, Fate)> {
    vec![
        ("attention_dropout", json!(0.1), Dropout),
        ("head_dim", json!(8), Read),
        ("hidden_act", json!("silu"), Read),
        ("hidden_size", json!(32), Read),
        ("intermediate_size", json!(48), Read),
        ("layer_types", json!(["full_attention", "full_attention"]), Read),
        ("max_position_embeddings", json!(64), Read),
        ("mlp_bias", json!(false), Read),
        ("num_attention_heads", json!(4), Read),
        ("num_hidden_layers", json!(2), Read),
        ("num_key_value_heads", json!(2), Read),
        ("pad_token_id", json!(0), Read),
        ("partial_rotary_factor", json!(1.0), Read),
        ("rms_norm_eps", json!(1e-5), Read),
        ("rope_parameters", json!({ "rope_type": "default", "rope_theta": 1e4 }), Read),
        ("rope_scaling", Value::Null, Read),
        ("rope_theta", json!(1e4), Read),
        ("use_sliding_window", json!(false), Read),
        ("use_mrope", json!(false), Read),
    ]
}

fn gpt2() -> Vec<(&'static str, Value, Fate)> {
    vec![
        ("activation_function", json!("gelu_new"), Read),
        ("attn_pdrop", json!(0.1), Dropout),
        ("embd_pdrop", json!(0.1), Dropout),
        ("resid_pdrop", json!(0.1), Dropout),
        ("layer_norm_epsilon", json!(1e-5), Read),
        ("n_ctx", json!(16), Harmless),
        ("n_embd", json!(32), Read),
        ("n_head", json!(4), Read),
        ("n_inner", Value::Null, Read),
        ("n_layer", json!(2), Read),
        ("n_positions", json!(16), Read),
        ("hidden_size", json!(32), Read),
        // Its embedding has no padding_idx.
        ("pad_token_id", json!(0), Harmless),
        ("summary_activation", Value::Null, Harmless),
        ("summary_first_dropout", json!(0.1), Harmless),
        ("summary_proj_to_labels", json!(true), Harmless),
        ("summary_type", json!("cls_index"), Harmless),
        ("summary_use_proj", json!(true), Harmless),
    ]
}

#[test]
fn every_field_of_every_family_has_a_fate() {
    check(
        "llama",
        json!({}),
        &[
            llama(),
            vec![
                ("attention_bias", json!(false), Read),
                ("pretraining_tp", json!(1), Harmless),
                ("rope_interleaved", json!(false), Harmless),
                ("is_llama_config", json!(true), Harmless),
                ("sliding_window", Value::Null, Harmless),
            ],
        ]
        .concat(),
    );
    check(
        "qwen2",
        json!({}),
        &[llama(), vec![("max_window_layers", json!(28), Harmless), ("sliding_window", Value::Null, Read)]]
            .concat(),
    );
    let attention = vec![
        ("add_cross_attention", json!(false), Read),
        ("reorder_and_upcast_attn", json!(false), Read),
        ("scale_attn_by_inverse_layer_idx", json!(false), Read),
        ("scale_attn_weights", json!(true), Read),
    ];
    check("gpt2", json!({}), &[gpt2(), attention].concat());
    let rotary = vec![
        ("rotary", json!(true), Read),
        ("rotary_dim", json!(8), Read),
        ("scale_attn_weights", json!(true), Harmless),
    ];
    check("gptj", json!({}), &[gpt2(), rotary].concat());
}

/// The user is told of what training leaves out, and of what nobody has looked at.
#[test]
fn what_is_left_out_is_told() {
    let file = |more: Value| {
        let mut file =
            json!({ "model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4 });
        more.as_object().unwrap().iter().for_each(|(key, value)| file[key] = value.clone());
        ConfigFile::parse(&file.to_string()).unwrap()
    };
    assert_eq!(
        file(json!({ "attn_pdrop": 0.0, "torch_dtype": "float16" })).notices(family("gpt2"), true),
        [""; 0]
    );
    let dropout = json!({ "attn_pdrop": 0.1, "resid_pdrop": 0, "layer_norm_eps\u{1b}": 1.0 });
    let told = file(dropout.clone()).notices(family("gpt2"), true);
    assert_eq!(told.len(), 2);
    assert!(told[0].starts_with("attn_pdrop = 0.1: the runner trains without dropout"), "{}", told[0]);
    assert!(told[1].contains("layer_norm_eps\u{fffd}"), "{}", told[1]);
    assert_eq!(file(dropout).notices(family("gpt2"), false).len(), 1, "generation has no dropout");
}

#[test]
fn padding_and_the_range_of_random_weights_are_read() {
    let common = |pad: Value| {
        let file = json!({ "pad_token_id": pad, "initializer_range": 0.5 });
        Common::read(family("llama"), &ConfigFile::parse(&file.to_string()).unwrap(), 10)
    };
    for (pad, row) in [(json!(9), Some(9)), (json!(-1), Some(9)), (json!(-10), Some(0)), (Value::Null, None)]
    {
        assert_eq!(common(pad), Ok(Common { initializer_range: 0.5, pad_token_id: row }));
    }
    for pad in [json!(10), json!(-11), json!([2]), json!(1.5)] {
        let message = common(pad.clone()).unwrap_err();
        assert!(message.contains(&format!("pad_token_id = {pad} is no row")), "{message}");
    }
    let gpt2 = ConfigFile::parse(r#"{ "pad_token_id": 50256 }"#).unwrap();
    assert_eq!(Common::read(family("gpt2"), &gpt2, 10), Ok(Common::default()));
}

/// Keys of a config.json that changes stay apart from what no training changes.
#[test]
fn a_saved_config_keeps_what_its_base_says() {
    let config = |text: Value| {
        let base = ConfigFile::parse(&text.to_string()).unwrap();
        let dimensions = base.model(family("llama"), std::path::Path::new(".")).unwrap();
        (dimensions, base)
    };
    let base = json!({
        "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "bos_token_id": 7, "eos_token_id": [8, 9], "pad_token_id": 5, "dtype": "float32",
        "rope_parameters": { "rope_type": "default", "rope_theta": 5e5 }, "attention_dropout": 0.1, "own": { "key": 1 },
        "architectures": ["LlamaModel"], "transformers_version": "5.24.0",
    });
    let saved = |ends: Option<&[u32]>| {
        let (dimensions, base) = config(base.clone());
        to_hugging_face((family("llama"), &dimensions), None, burn::tensor::DType::BF16, Some(base), ends)
    };
    let mut expected = base.clone();
    expected["dtype"] = json!("bfloat16");
    expected["architectures"] = json!(["LlamaForCausalLM"]);
    expected["written_by"] = json!("runner");
    assert_eq!(saved(None), expected);
    // A tokenizer of its own has other tokens.
    (expected["bos_token_id"], expected["eos_token_id"]) = (json!(1), json!(1));
    assert_eq!(saved(Some(&[1])), expected);
}

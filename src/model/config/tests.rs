//! Counts of parameters, keys of `config.json`, and the recipe section.

use std::path::{Path, PathBuf};

use burn::tensor::DType;

use super::*;
use crate::common::{Compute, DeviceId};
use crate::device::drawing;
use crate::model::language::Computation;
use crate::model::{Model, Parts};
use crate::ops::dense::Arithmetic;
use crate::ops::{Checkpoint, Ops};
use crate::params::named::value;
use crate::params::table::Tuning;

fn parse(text: &str) -> Result<Model, String> {
    toml::from_str(text).map_err(|e| e.message().to_string())
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// What is counted from one block is what is listed of all.
#[test]
fn parameters_are_those_of_the_tensors() {
    let llama = "vocab_size = 7\nhidden_size = 12\nintermediate_size = 10\nnum_hidden_layers = 3\n\
                 num_attention_heads = 6\nnum_key_value_heads = 2\nhead_dim = 4\n";
    let gpt2 = "vocab_size = 7\nhidden_size = 12\nintermediate_size = 10\nnum_hidden_layers = 3\n\
                num_attention_heads = 6\nmax_position_embeddings = 5\n";
    let gptj = format!("{gpt2}rotary_dim = 2\n");
    for (kind, keys) in [("qwen2", llama), ("llama", llama), ("gpt2", gpt2), ("gptj", gptj.as_str())] {
        for more in ["tie_word_embeddings = true", "tie_word_embeddings = false"] {
            if kind == "gptj" && more.ends_with("true") {
                continue;
            }
            let model = parse(&format!("[{kind}]\n{keys}{more}")).unwrap();
            let table = model.table(DType::F32, &Tuning::default()).unwrap();
            assert_eq!(u128::from(model.parameters()), table.elements(|_| true), "{kind} {more}");
        }
    }
}

/// No product of sizes wraps: what no 64 bits count is as many as they can.
#[test]
fn counting_does_not_wrap() {
    let most = "vocab_size = 2147483647\nhidden_size = 2147483646\nintermediate_size = 2147483647\n\
                num_hidden_layers = 65536\nnum_attention_heads = 2147483646\n";
    for (kind, more) in [("qwen2", "head_dim = 2147483646"), ("gpt2", "")] {
        assert_eq!(parse(&format!("[{kind}]\n{most}{more}")).unwrap().parameters(), u64::MAX, "{kind}");
    }
}

#[test]
fn a_written_key_overrides_the_presets() {
    let model =
        parse("[qwen2]\npreset = \"qwen2.5-0.5b\"\nnum_hidden_layers = 2\nhidden_size = 1792").unwrap();
    let config = &model.language().expect("a qwen2").config;
    assert_eq!((config.num_hidden_layers(), config.hidden_size()), (2, 1792));
    assert_eq!(config.head_dim(), 128, "follows the hidden size");
    assert_eq!(config.vocab_size(), 151_936);
}

#[test]
fn a_resolved_section_reads_back_as_itself() {
    let folder = fixture("qwen2").display().to_string();
    for text in [
        "[qwen2]\npreset = \"qwen2.5-7b\"\nnum_hidden_layers = 1".to_string(),
        "[llama]\nvocab_size = 64\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\n\
         num_attention_heads = 4\nnum_key_value_heads = 2"
            .into(),
        "[gpt2]\npreset = \"gpt2\"\npositions = \"sinusoidal\"".into(),
        format!("[qwen2]\nweights = \"{folder}\""),
    ] {
        let model = parse(&text).unwrap();
        let json = serde_json::to_value(&model).unwrap();
        assert_eq!(serde_json::from_value::<Model>(json.clone()).unwrap(), model, "{json}");
    }
}

#[test]
fn sinusoidal_positions_are_no_parameters() {
    let learned = parse("[gpt2]\npreset = \"gpt2\"").unwrap();
    let fixed = parse("[gpt2]\npreset = \"gpt2\"\npositions = \"sinusoidal\"").unwrap();
    assert_eq!(learned.parameters() - fixed.parameters(), 1024 * 768);
}

#[test]
fn impossible_sections_say_what_to_change() {
    let folder = fixture("qwen2").display().to_string();
    for (text, expected) in [
        ("[qwen2]\npreset = \"qwen2.5-0.5\"".to_string(), "did you mean \"qwen2.5-0.5b\"?"),
        ("[llama]\npreset = \"gpt2\"".into(), "its presets are: smollm2-135m"),
        ("[qwen2]\nhidden_size = 64".into(), "dimensions are missing: intermediate_size, num_hidden_layers"),
        ("[gpt2]\npreset = \"gpt2\"\nrope_theta = 1.0".into(), "unknown field `rope_theta`"),
        ("[gpt2]\npreset = \"gpt2\"\nnum_attention_heads = 7".into(), "not a multiple"),
        ("[qwen2]\npreset = \"qwen2.5-0.5b\"\nnum_key_value_heads = 3".into(), "not a multiple"),
        ("[qwen2]\npreset = \"qwen2.5-0.5b\"\nhead_dim = 7".into(), "head_dim 7 is odd"),
        ("[qwen2]\npreset = \"qwen2.5-0.5b\"\nattention_bias = false".into(), "attention_bias is true"),
        (
            "[gpt2]\npreset = \"gpt2\"\nactivation = \"silu\"".into(),
            "activation = \"silu\" is none of kind = \"gpt2\"",
        ),
        (
            "[llama]\npreset = \"smollm2-135m\"\nrope_scaling = \"2\"".into(),
            "rope_scaling: it is no table of JSON",
        ),
        (
            "[qwen3]\npreset = \"qwen3-0.6b\"\nlayer_types = '[\"full_attention\"]'".into(),
            "1 types of 28 layers",
        ),
        (
            "[smollm3]\npreset = \"smollm3-3b\"\nno_rope_layers = \"[2]\"".into(),
            "1 or 0 of each of 36 layers",
        ),
        (
            "[qwen2]\nweights = \"no/such/folder\"".into(),
            "there is no folder no/such/folder; name one that holds",
        ),
        (
            "[gpt2]\npreset = \"gpt2\"\npad_token_id = 1".into(),
            "pad_token_id has no effect on kind = \"gpt2\"",
        ),
        ("[llama]\npreset = \"smollm2-135m\"\npad_token_id = 49152".into(), "beyond vocab_size = 49152"),
        (format!("[qwen2]\nweights = \"{folder}\"\npad_token_id = 3"), "pad_token_id = 3 contradicts"),
        (format!("[gpt2]\nweights = \"{folder}\""), "holds a qwen2 model; write kind = \"qwen2\""),
        (format!("[qwen2]\nweights = \"{folder}\"\nhidden_size = 32"), "hidden_size = 32 contradicts"),
        (format!("[qwen2]\nweights = \"{folder}\"\npreset = \"qwen2.5-0.5b\""), "or the preset qwen2.5-0.5b"),
    ] {
        let message = parse(&text).unwrap_err();
        assert!(message.contains(expected), "{text}\n-> {message}");
    }
}

#[test]
fn sizes_that_are_written_count_where_the_weights_are_not() {
    let sizes = "vocab_size = 50\nhidden_size = 8\nnum_hidden_layers = 2\nnum_attention_heads = 2\n\
                 max_position_embeddings = 16";
    let [planned, drawn] =
        ["[gpt2]\nweights = \"no/such\"", "[gpt2]"].map(|model| parse(&format!("{model}\n{sizes}")).unwrap());
    assert_eq!(planned.parameters(), drawn.parameters());
    assert_eq!(planned.weights_folder(), Some(std::path::Path::new("no/such")));
}

/// A folder as PEFT saves adapters.
#[test]
fn a_folder_of_an_adapter_alone_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("adapter_config.json"), "{}").unwrap();
    let message = parse(&format!("[qwen2]\nweights = \"{}\"", folder.path().display())).unwrap_err();
    assert!(message.contains("an adapter without its model"), "{message}");
}

#[test]
fn reads_the_reference_configs() {
    let model = from_hugging_face(&fixture("qwen2")).unwrap();
    let qwen2 = &model.language().expect("a qwen2").config;
    assert_eq!((qwen2.hidden_size(), qwen2.head_dim(), qwen2.num_key_value_heads()), (64, 16, 2));
    assert_eq!((qwen2.rope_theta(), qwen2.rms_norm_eps()), (1e6, 1e-6));
    assert!(qwen2.tie_word_embeddings() && qwen2.attention_bias());

    let model = from_hugging_face(&fixture("gpt2")).unwrap();
    let gpt2 = &model.language().expect("a gpt2").config;
    assert_eq!((gpt2.hidden_size(), gpt2.intermediate_size(), gpt2.max_position_embeddings()), (48, 192, 64));
    assert!(gpt2.tie_word_embeddings());
}

/// Of the deviation that is written, with the same random numbers.
#[test]
fn random_weights_have_the_written_deviation() {
    let sizes = "vocab_size = 7\nhidden_size = 12\nnum_hidden_layers = 2\nnum_attention_heads = 6\n\
                 max_position_embeddings = 5\n";
    let weight = |more: &str, name: &str| {
        let model = parse(&format!("[gpt2]\n{sizes}{more}")).unwrap();
        let model = model.language().expect("a gpt2").clone();
        let tuning = Tuning::default();
        let _drawing = drawing();
        DeviceId::Cpu.burn().seed(3);
        let source = model.source(DeviceId::Cpu, DType::F32, &tuning).unwrap();
        let computation =
            Computation::new(Arithmetic::of(Compute::Fp32), Ops::default(), Checkpoint::default());
        let network = model.network(5, &source, computation, (None, None), Parts::Whole);
        value(&network, name).expect("a parameter").try_into_vec::<f32>().unwrap()
    };
    for name in
        ["transformer.wte.weight", "transformer.h.1.mlp.c_proj.weight", "transformer.h.0.attn.c_attn.weight"]
    {
        let [plain, wide] = ["", "initializer_range = 0.08\n"].map(|more| weight(more, name));
        assert!(plain.iter().zip(&wide).all(|(a, b)| (4.0 * a - b).abs() < 1e-6), "{name}");
    }
}

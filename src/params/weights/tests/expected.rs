//! Whether a folder holds the tensors that a model expects.

use std::path::PathBuf;

use burn::tensor::DType;

use super::{Tensors, elements, floats, single};
use crate::model::config::from_hugging_face;
use crate::params::table::{Entry, Group, Table, Tuning};
use crate::params::weights::Weights;
use crate::params::weights::check::HEAD;

fn table(list: &[(&str, &[usize])]) -> Table {
    let entry = |(name, shape): &(&str, &[usize])| Entry {
        name: name.to_string(),
        shape: shape.to_vec(),
        dtype: DType::F32,
        trainable: true,
        group: Group::Head,
        packed: false,
        split: None,
    };
    Table { entries: list.iter().map(entry).collect() }
}

/// Whether none of them is a head of its own.
fn tied(expected: &[(&str, &[usize])]) -> bool {
    !expected.iter().any(|(name, _)| *name == HEAD)
}

fn check(tensors: Tensors, expected: &[(&str, &[usize])]) -> Result<(), String> {
    let folder = single(tensors);
    let weights = Weights::open(folder.path()).unwrap();
    weights.check(&table(expected), tied(expected))
}

#[test]
fn one_error_names_every_mismatch() {
    let message =
        check(&[("a", &[2], &[0.0, 0.0]), ("x", &[1], &[0.0])], &[("a", &[1, 2]), ("b", &[3]), ("c", &[4])])
            .unwrap_err();
    for expected in
        ["wrong shape: a is [2], expected [1, 2]", "missing: b [3]", "missing: c [4]", "unexpected: x"]
    {
        assert!(message.contains(expected), "{message}");
    }
}

/// Which key of config.json gives each size, and no more than a page of them.
#[test]
fn mismatches_name_the_keys_of_the_config() {
    let embedding: (&str, &[usize], &[f32]) = ("model.embed_tokens.weight", &[2], &[1.0, 2.0]);
    let many: Vec<String> = (0..100).map(|n| format!("model.layers.{n}.input_layernorm.weight")).collect();
    let mut expected: Vec<(&str, &[usize])> = vec![("model.embed_tokens.weight", &[3])];
    expected.extend(many.iter().map(|name| (name.as_str(), [4].as_slice())));
    let message = check(&[embedding], &expected).unwrap_err();
    for part in [
        "model.embed_tokens.weight is [2], expected [3] (vocab_size, hidden_size)",
        "missing: model.layers.0.input_layernorm.weight [4] (num_hidden_layers)",
        "and 81 more",
        "correct the keys of",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(message.lines().count() < 30, "{message}");
}

#[test]
fn a_tied_head_may_stand_in_the_file_if_it_is_the_embedding() {
    let expected: &[(&str, &[usize])] = &[("model.embed_tokens.weight", &[2])];
    let embedding: (&str, &[usize], &[f32]) = ("model.embed_tokens.weight", &[2], &[1.0, 2.0]);
    assert_eq!(check(&[embedding, ("lm_head.weight", &[2], &[1.0, 2.0])], expected), Ok(()));
    let message = check(&[embedding, ("lm_head.weight", &[2], &[1.0, 3.0])], expected).unwrap_err();
    assert!(message.contains("lm_head.weight is not equal to model.embed_tokens.weight"), "{message}");
}

/// A classifier is in the place of the head, of which GPT-J has a weight and a bias.
#[test]
fn a_classifier_needs_no_head_of_the_file() {
    let folder = single(&[
        ("wte.weight", &[2], &[1.0, 2.0]),
        ("lm_head.weight", &[2], &[3.0, 4.0]),
        ("lm_head.bias", &[1], &[5.0]),
    ]);
    let weights = Weights::open(folder.path()).unwrap();
    let mut expected = table(&[("wte.weight", &[2]), ("score.weight", &[2])]);
    let message = weights.check(&expected, true).unwrap_err();
    assert!(message.contains("unexpected: lm_head.bias"), "{message}");
    expected.entries[1].group = Group::Classifier;
    assert_eq!(weights.check(&expected, true), Ok(()));
}

#[test]
fn original_gpt2_files_have_no_prefix_and_carry_masks() {
    let tensors: Tensors = &[
        ("wte.weight", &[2], &[1.0, 2.0]),
        ("h.0.attn.bias", &[1], &[1.0]),
        ("h.0.attn.c_attn.bias", &[1], &[1.0]),
    ];
    let expected: &[(&str, &[usize])] =
        &[("transformer.wte.weight", &[2]), ("transformer.h.0.attn.c_attn.bias", &[1])];
    assert_eq!(check(tensors, expected), Ok(()));
    let folder = single(tensors);
    let weights = Weights::open(folder.path()).unwrap();
    assert_eq!(floats(&weights.get("transformer.wte.weight").unwrap()), [1.0, 2.0]);
}

/// transformers fills an embedding from the head that it is tied to.
#[test]
fn of_a_tied_pair_the_head_alone_is_enough() {
    let head: Tensors = &[("lm_head.weight", &[2], &[1.0, 2.0])];
    for name in ["model.embed_tokens.weight", "transformer.wte.weight"] {
        let expected: &[(&str, &[usize])] = &[(name, &[2])];
        assert_eq!(check(head, expected), Ok(()));
        let folder = single(head);
        let weights = Weights::open(folder.path()).unwrap();
        assert_eq!(floats(&weights.get(name).unwrap()), [1.0, 2.0]);
        // A head of its own says nothing of an embedding.
        let message = check(head, &[(name, &[2]), (HEAD, &[2])]).unwrap_err();
        assert!(
            message.contains(&format!("missing: {name}")) && !message.contains("unexpected"),
            "{message}"
        );
    }
}

#[test]
fn a_model_that_was_saved_without_its_head_is_read() {
    let tensors: Tensors =
        &[("embed_tokens.weight", &[2], &[1.0, 2.0]), ("layers.0.norm.weight", &[1], &[1.0])];
    let expected: &[(&str, &[usize])] =
        &[("model.embed_tokens.weight", &[2]), ("model.layers.0.norm.weight", &[1])];
    assert_eq!(check(tensors, expected), Ok(()));
    let message = check(tensors, &[expected, &[(HEAD, &[2])]].concat()).unwrap_err();
    assert!(message.contains("missing: lm_head.weight"), "{message}");
    assert!(
        message.contains("saved from the model without its head: save it from AutoModelForCausalLM"),
        "{message}"
    );
}

#[test]
fn constants_of_older_files_are_passed_by() {
    let names = [
        "model.rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.cos_cached",
        "transformer.h.0.attn.bias",
        "transformer.h.0.attn.masked_bias",
        "transformer.h.0.attn.embed_positions",
        "position_ids",
    ];
    let of = |name: &'static str| (name, [1].as_slice(), [0.5].as_slice());
    let tensors: Vec<_> = names.into_iter().chain(["model.norm.weight"]).map(of).collect();
    assert_eq!(check(&tensors, &[("model.norm.weight", &[1])]), Ok(()));
    let message = check(&[of("model.norm.weight"), of("h.0.attn.c.bias")], &[("model.norm.weight", &[1])]);
    assert!(message.unwrap_err().contains("unexpected: h.0.attn.c.bias"));
}

#[test]
fn the_reference_models_are_what_their_configs_say() {
    for (name, first) in [("qwen2", "model.embed_tokens.weight"), ("gpt2", "transformer.wte.weight")] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let model = from_hugging_face(&folder).unwrap();
        let weights = Weights::open(&folder).unwrap();
        let table = model.table(DType::F32, &Tuning::default()).unwrap();
        weights.check(&table, model.decoder().unwrap().tied).unwrap();
        let elements: usize = weights.names().map(|name| elements(&weights.get(name).unwrap())).sum();
        assert_eq!(elements as u64, model.parameters(), "{name}");
        assert!(floats(&weights.get(first).unwrap()).iter().all(|x| x.is_finite()));
    }
}

//! Folders of adapters that would be read as something else than what they hold.

use std::collections::HashMap;

use burn::tensor::DType;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize_to_file};

use super::*;

#[test]
fn an_adapter_that_goes_with_other_weights_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let read = |init: Value| {
        let config = json!({
            "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "init_lora_weights": init,
        });
        fs::write(folder.path().join(CONFIG), config.to_string()).unwrap();
        method(folder.path())
    };
    for init in [Value::Null, true.into(), "gaussian".into(), "eva".into()] {
        assert!(read(init.clone()).is_ok(), "{init}");
    }
    for init in ["pissa", "pissa_niter_16", "OLoRA", "loftq", "corda"] {
        let message = read(init.into()).unwrap_err();
        assert!(message.contains("changes the model's own weights") && message.contains(init), "{message}");
    }
}

/// Two numbers in a byte are no whole number of bytes each.
#[test]
fn virtual_tokens_of_another_type_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = TensorView::new(Dtype::F4, vec![2, 6], &[0; 6]).unwrap();
    let tensors = HashMap::from([("prompt_embeddings", tensor)]);
    serialize_to_file(tensors, None, &folder.path().join(TENSORS)).unwrap();
    let entry = Entry {
        name: "prompt_encoder.embedding.weight".into(),
        shape: vec![2, 6],
        dtype: DType::F32,
        trainable: true,
        group: Group::Adapter,
        packed: false,
        split: None,
    };
    let message = AdapterFile::open(folder.path(), &Table { entries: vec![entry] }).unwrap_err();
    assert!(message.contains("wrong dtype: prompt_embeddings is F4"), "{message}");
}

fn entry(name: &str, shape: [usize; 2], group: Group) -> Entry {
    let (name, dtype) = (name.to_string(), DType::F32);
    Entry { name, shape: shape.to_vec(), dtype, trainable: true, group, packed: false, split: None }
}

const A: &str = "model.layers.0.self_attn.q_proj.lora_A.weight";
const B: &str = "model.layers.0.self_attn.q_proj.lora_B.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// A model of three tokens with an adapter, whose head is its embedding or its own.
fn model(tied: bool) -> Table {
    let mut entries = vec![
        entry(EMBEDDING, [3, 2], Group::Embedding),
        entry(A, [1, 2], Group::Adapter),
        entry(B, [2, 1], Group::Adapter),
    ];
    entries.extend((!tied).then(|| entry(HEAD, [3, 2], Group::Head)));
    Table { entries }
}

/// A folder with A and B and these tensors of the model, each of one value.
fn folder(own: &[(&str, [usize; 2], u8)], config: Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let all = [&[(A, [1, 2], 0), (B, [2, 1], 0)], own].concat();
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = all
        .iter()
        .map(|(name, shape, value)| {
            (format!("{WRAPPED}{name}"), shape.to_vec(), vec![*value; 4 * shape[0] * shape[1]])
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    serialize_to_file(views.collect::<HashMap<_, _>>(), None, &folder.path().join(TENSORS)).unwrap();
    fs::write(folder.path().join(CONFIG), config.to_string()).unwrap();
    folder
}

/// Of `modules_to_save`, and of an embedding that was saved with the adapter.
#[test]
fn an_adapter_may_have_rows_of_the_model() {
    let lora = json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"] });
    let with = |key: &str, value: Value| {
        let mut lora = lora.clone();
        lora[key] = value;
        lora
    };
    let both = [(EMBEDDING, [3, 2], 7), (HEAD, [3, 2], 8)];
    let modules = with("modules_to_save", json!(["embed_tokens", "lm_head"]));
    for config in [&lora, &modules] {
        let place = folder(&both, config.clone());
        assert!(method(place.path()).is_ok());
        let file = AdapterFile::open(place.path(), &model(false)).unwrap();
        let first = |name: &str| file.get(name).map(|tensor| tensor.data()[0]);
        assert_eq!([EMBEDDING, HEAD, A].map(first), [Some(7), Some(8), Some(0)]);
        let table = model(false);
        let own: Vec<&str> =
            AdapterFile::own(place.path(), &table).unwrap().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(own, [EMBEDDING, HEAD]);
        // What is tied is equal.
        let message = AdapterFile::open(place.path(), &model(true)).unwrap_err();
        assert!(message.contains("lm_head.weight is not equal to model.embed_tokens.weight"), "{message}");
    }
    let mut one = with("modules_to_save", json!(["embed_tokens"]));
    let alone = vec![(EMBEDDING, [3, 2], 7)];
    let message = AdapterFile::open(folder(&alone, one.clone()).path(), &model(true)).unwrap_err();
    assert!(
        message.contains("modules_to_save has only one of") && message.contains("ensure_weight_tying"),
        "{message}"
    );
    one["ensure_weight_tying"] = json!(true);
    let equal = vec![(EMBEDDING, [3, 2], 7), (HEAD, [3, 2], 7)];
    for (own, config) in [(equal, &modules), (alone, &one), (vec![(HEAD, [3, 2], 7)], &lora)] {
        let place = folder(&own, config.clone());
        let file = AdapterFile::open(place.path(), &model(true)).unwrap();
        assert_eq!(file.get(EMBEDDING).map(|tensor| tensor.data()[0]), Some(7));
    }
}

#[test]
fn what_an_adapter_lacks_is_named_by_its_cause() {
    let config = |modules: Value| json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"], "modules_to_save": modules });
    let message = |own: &[(&str, [usize; 2], u8)], modules: Value| {
        AdapterFile::open(folder(own, config(modules)).path(), &model(false)).unwrap_err()
    };
    let larger = message(&[(EMBEDDING, [5, 2], 7)], Value::Null);
    for part in ["model.embed_tokens.weight is [5, 2], expected [3, 2]", "model.resize_token_embeddings(5)"] {
        assert!(larger.contains(part), "{larger}");
    }
    let lost = message(&[(EMBEDDING, [3, 2], 7)], json!(["embed_tokens", "lm_head"]));
    assert!(lost.contains("missing: the weights of lm_head (modules_to_save)"), "{lost}");
    let other = message(&[("score.weight", [3, 2], 7)], Value::Null);
    assert!(other.contains("does not fit the model") && other.contains("unexpected: "), "{other}");
    let rank = Table { entries: vec![entry(A, [4, 2], Group::Adapter), entry(B, [2, 4], Group::Adapter)] };
    let rank = AdapterFile::open(folder(&[], config(Value::Null)).path(), &rank).unwrap_err();
    assert!(rank.contains("is of another rank than its adapter_config.json says"), "{rank}");
    let mut more = model(false);
    more.entries.push(entry(&A.replace(".0.", ".1."), [1, 2], Group::Adapter));
    let some = AdapterFile::open(folder(&[], config(Value::Null)).path(), &more).unwrap_err();
    assert!(some.contains("only some of the layers") && !some.contains("unexpected"), "{some}");
}

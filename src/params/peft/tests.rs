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

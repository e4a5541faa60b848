//! References in other types, and such as hold what cannot be compared.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, TensorData};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{Check, Options, passes, table, verify};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn verified(folder: &Path) -> miette::Result<Vec<Check>> {
    verify(folder, &Options { settings: vec!["device=cpu".parse().unwrap()], atol: None })
}

fn failed(checks: &[Check]) -> Vec<&str> {
    checks.iter().filter(|check| !check.passes()).map(|check| check.name.as_str()).collect()
}

/// A tensor's type, shape and bytes.
type Stored = (Dtype, Vec<usize>, Vec<u8>);

/// A copy of a fixture whose `golden.safetensors` is changed, by the names of its tensors.
fn changed(name: &str, change: impl Fn(&str, &mut Stored)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(name).join(file), folder.path().join(file)).unwrap();
    }
    let bytes = std::fs::read(fixture(name).join("golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors: Vec<(String, Stored)> = file
        .iter()
        .map(|(name, view)| {
            let mut tensor = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            change(name, &mut tensor);
            (name.to_string(), tensor)
        })
        .collect();
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("golden.safetensors"), bytes).unwrap();
    folder
}

fn stored_as(dtype: DType, (kind, shape, bytes): &mut (Dtype, Vec<usize>, Vec<u8>)) {
    let data = TensorData::from_bytes_vec(bytes.clone(), shape.clone(), DType::F32);
    *bytes = data.convert_dtype(dtype).as_bytes().to_vec();
    *kind = if dtype == DType::BF16 { Dtype::BF16 } else { Dtype::F16 };
}

/// Gradients in bf16 are compared with what bf16 holds of them, and wrong ones fail.
#[test]
fn references_in_few_bits_are_read() {
    for dtype in [DType::BF16, DType::F16] {
        let gradients = |name: &str| name.starts_with("grad.");
        let rounded = changed("gpt2", |name, tensor| {
            if gradients(name) {
                stored_as(dtype, tensor);
            }
        });
        let checks = verified(rounded.path()).unwrap();
        assert!(passes(&checks), "{dtype:?}\n{}", table(&checks));
        let compared = checks.iter().filter(|check| check.is_compared() && gradients(&check.name));
        assert_eq!(compared.count(), 40);
        let wrong = changed("gpt2", |name, tensor| {
            if gradients(name) {
                stored_as(dtype, tensor);
            }
            if name == "grad.transformer.ln_f.weight" {
                // A bit of the exponent.
                tensor.2.chunks_exact_mut(2).for_each(|value| value[1] ^= 0x04);
            }
        });
        let checks = verified(wrong.path()).unwrap();
        assert_eq!(failed(&checks), ["grad.transformer.ln_f.weight"]);
    }
    let ids = changed("gpt2", |name, (kind, _, bytes)| {
        if name == "input_ids" {
            *kind = Dtype::I32;
            *bytes = bytes.chunks_exact(8).flat_map(|id| id[..4].to_vec()).collect();
        }
    });
    assert!(passes(&verified(ids.path()).unwrap()));
}

#[test]
fn what_cannot_be_compared_fails_by_its_name() {
    let folder = changed("gpt2", |name, (kind, shape, bytes)| match name {
        "grad.transformer.ln_f.weight" => {
            // Of another size.
            bytes.truncate(4 * 12);
            *shape = vec![12];
        }
        "grad.transformer.ln_f.bias" => {
            (*kind, *shape) = (Dtype::U8, vec![bytes.len()]);
        }
        _ => (),
    });
    std::fs::write(folder.path().join("golden.json"), "{}").unwrap();
    let checks = verified(folder.path()).unwrap();
    assert!(!passes(&checks));
    assert_eq!(
        failed(&checks),
        [
            "grad.transformer.ln_f.weight",
            "step3.transformer.ln_f.bias",
            "step3.transformer.ln_f.weight",
            "grad.transformer.ln_f.bias",
            "golden.json"
        ]
    );
    let text = table(&checks);
    for part in ["FAIL: grad.transformer.ln_f.bias: its values are U8", "has the shape [12], and ours has 48"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_reference_that_is_not_the_models_is_an_error() {
    let ids = |value: i64| {
        changed("gpt2", move |name, (_, _, bytes)| {
            if name == "input_ids" {
                bytes[..8].copy_from_slice(&value.to_le_bytes());
            }
        })
    };
    let error = |folder: &tempfile::TempDir, part: &str| {
        let error = verified(folder.path()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    error(&ids(512), "input_ids of the reference holds 512, and the model has the 512 tokens");
    error(&ids(-1), "input_ids of the reference holds -1");
    let reshaped = |which: &'static str, to: Vec<usize>| {
        changed("gpt2", move |name, (_, shape, _)| {
            if name == which {
                shape.clone_from(&to);
            }
        })
    };
    error(&reshaped("input_ids", vec![48]), "must be [sequences, tokens]");
    error(&reshaped("labels", vec![4, 12]), "labels of the reference have the shape [4, 12]");
    error(&reshaped("generate.prompt", vec![6, 1]), "must be a row of generate.prompt and more");
    let damaged = changed("gpt2", |_, _| ());
    std::fs::write(damaged.path().join("config.json"), "{").unwrap();
    error(&damaged, "config.json is not a JSON object");
    std::fs::remove_file(damaged.path().join("config.json")).unwrap();
    error(&damaged, "config.json");
}

/// A loss that is 5e-6 off, as of a softmax in fp32 with a coarse exponential, is reported; the fixture's own
/// follows from its logits.
#[test]
fn a_reference_with_a_rounded_loss_is_told_of() {
    let digits = "the last digits of gradients";
    let names = |folder: &Path| {
        verified(folder).unwrap().into_iter().map(|check| check.name).collect::<Vec<String>>()
    };
    assert!(!names(&fixture("qwen2")).iter().any(|name| name.ends_with(digits)));
    let rounded = changed("qwen2", |name, (_, _, bytes)| {
        if name == "loss" {
            let loss = f32::from_le_bytes(bytes[..4].try_into().unwrap()) + 5e-6;
            *bytes = loss.to_le_bytes().to_vec();
        }
    });
    assert!(names(rounded.path()).iter().any(|name| name.ends_with(digits)));
}

//! Every family's weights, written as they were read.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::place::{Place, fixture, losses};

fn families() -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(fixture("families")).expect("the fixtures").map(|entry| entry.unwrap().path());
    let others = ["qwen2", "gpt2", "gptj"].map(|name| PathBuf::from(fixture(name)));
    entries.filter(|path| path.is_dir()).chain(others).collect()
}

/// A step of this precision that changes nothing: the rate is 0 in fp32.
fn recipe(kind: &str, weights: &Path, precision: &str, saved: &str) -> String {
    format!(
        "title = \"unchanged\"\ndevice = \"cpu\"\n[model]\nkind = \"{kind}\"\nweights = \"{}\"\n[train]\nbatch_size = 2\n\
         seq_len = 18\noptimizer = {{ kind = \"sgd\", lr = 1e-50 }}\n[precision]\ncompute = \"{precision}\"\n[measure]\n\
         repeats = 1\nwarmup = 0\nsteps = 2\n[save]\nweights = \"{saved}\"\n",
        weights.display()
    )
}

type Tensors = Vec<(String, Dtype, Vec<usize>, Vec<u8>)>;

fn tensors(folder: &Path) -> Tensors {
    let file = std::fs::read(folder.join("model.safetensors")).expect("weights");
    let tensors = SafeTensors::deserialize(&file).expect("safetensors");
    let of = |(name, tensor): (String, safetensors::tensor::TensorView<'_>)| {
        (name, tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec())
    };
    let mut all: Tensors = tensors.tensors().into_iter().map(of).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// fp32 tensors in 16 bits.
fn rounded(all: &Tensors, dtype: Dtype) -> Tensors {
    let to_16_bits = |bytes: &[u8]| {
        let x = f32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        if dtype == Dtype::BF16 { bf16::from_f32(x).to_le_bytes() } else { f16::from_f32(x).to_le_bytes() }
    };
    let of = |(name, _, shape, bytes): &(String, Dtype, Vec<usize>, Vec<u8>)| {
        (name.clone(), dtype, shape.clone(), bytes.chunks_exact(4).flat_map(to_16_bits).collect())
    };
    all.iter().map(of).collect()
}

/// The fields of `config.json` that the first folder has, but for those that say who wrote it.
fn same_config(ours: &Path, first: &Path) {
    let read = |folder: &Path| -> Value {
        serde_json::from_slice(&std::fs::read(folder.join("config.json")).expect("a config")).expect("JSON")
    };
    let (ours, first) = (read(ours), read(first));
    for (key, value) in first.as_object().expect("fields") {
        if !["dtype", "torch_dtype", "transformers_version"].contains(&key.as_str()) {
            assert_eq!(&ours[key], value, "{key}");
        }
    }
}

/// From fp32, and of two families from what was rounded to 16 bits: the names, shapes, types and bytes of all tensors, and the losses.
#[test]
fn weights_that_are_not_trained_are_saved_as_they_were() {
    for family in families() {
        let config = std::fs::read(family.join("config.json")).expect("a config");
        let config: Value = serde_json::from_slice(&config).expect("JSON");
        let kind = config["model_type"].as_str().expect("a kind");
        // What is rounded has the same path in all.
        let of_16_bits = match kind {
            "gemma2" => Some(("fp16", Dtype::F16)),
            "gpt_neox" => Some(("bf16", Dtype::BF16)),
            _ => None,
        };
        for (precision, dtype) in [("fp32", Dtype::F32)].into_iter().chain(of_16_bits) {
            let place = Place::new(&recipe(kind, &family, precision, "first"));
            place.runner(&["run", "recipe.toml"]).exits(0);
            let first = tensors(&place.path().join("first"));
            let source = tensors(&family);
            let expected = if dtype == Dtype::F32 { source } else { rounded(&source, dtype) };
            assert!(first == expected, "{} in {precision}", family.display());
            same_config(&place.path().join("first"), &family);
            if dtype == Dtype::F32 {
                continue;
            }
            place.write("recipe.toml", &recipe(kind, Path::new("first"), precision, "second"));
            place.runner(&["run", "recipe.toml"]).exits(0);
            assert!(
                tensors(&place.path().join("second")) == first,
                "{} again in {precision}",
                family.display()
            );
            let losses: Vec<_> = place.rows().iter().map(losses).collect();
            assert_eq!(losses[0], losses[1], "{}", family.display());
        }
    }
}

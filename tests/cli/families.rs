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
fn recipe(weights: &Path, precision: &str, saved: &str) -> String {
    format!(
        "title = \"unchanged\"\ndevice = \"cpu\"\n[model]\nweights = \"{}\"\n[train]\nbatch_size = 2\n\
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
            let place = Place::new(&recipe(&family, precision, "first"));
            place.runner(&["run", "recipe.toml"]).exits(0);
            let first = tensors(&place.path().join("first"));
            let source = tensors(&family);
            let expected = if dtype == Dtype::F32 { source } else { rounded(&source, dtype) };
            assert!(first == expected, "{} in {precision}", family.display());
            same_config(&place.path().join("first"), &family);
            if dtype == Dtype::F32 {
                continue;
            }
            place.write("recipe.toml", &recipe(Path::new("first"), precision, "second"));
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

/// PEFT's names on the whole model, whose text part is trained; the adapter goes on, and merges into the whole file.
#[test]
fn an_adapter_on_a_text_part_has_the_names_of_the_whole() {
    let model = fixture("families/gemma3");
    let place = Place::new("title = \"none\"\n");
    let recipe = |adapter: &str, out: &str| {
        format!(
            "title = \"t\"\n[model]\nweights = \"{model}\"\n[train]\nbatch_size = 2\nseq_len = 9\noptimizer = {{ kind = \
             \"adamw\", lr = 1e-2 }}\n[measure]\nrepeats = 1\nwarmup = 0\nsteps = 2\n[tuning]\nmethod = \"lora\"\nrank = 3\n\
             target_modules = \"q_proj, down_proj\"\n{adapter}[save]\nadapter = \"{out}/adapter\"\nweights = \"{out}/merged\"\n"
        )
    };
    place.write("first.toml", &recipe("", "first"));
    let notices = ["the text part of a gemma3, which is read alone", "what is saved has the other parts"];
    place.runner(&["run", "first.toml"]).exits(0).says(&notices);
    let file =
        std::fs::read(place.path().join("first/adapter/adapter_model.safetensors")).expect("an adapter");
    let tensors_of_adapter = SafeTensors::deserialize(&file).expect("safetensors");
    let mut names: Vec<&str> = tensors_of_adapter.names();
    names.sort_unstable();
    let layer = "base_model.model.model.language_model.layers.0.";
    assert_eq!(names[0], format!("{layer}mlp.down_proj.lora_A.weight"));
    assert_eq!(names.len(), 2 * 2 * 3);
    let text = |folder: &str, more: &[&str]| {
        let ids = ["generate", folder, "--ids", "5,17,40", "--tokens", "10"];
        place.runner(&[&ids[..], more].concat()).exits(0).out
    };
    assert_eq!(text("first/merged", &[]), text(&model, &["--adapter", "first/adapter"]));
    let changed: Vec<String> = tensors(&place.path().join("first/merged"))
        .into_iter()
        .zip(tensors(Path::new(&model)))
        .filter(|(ours, first)| ours != first)
        .map(|(ours, first)| {
            assert_eq!((ours.0.as_str(), ours.1, &ours.2), (first.0.as_str(), first.1, &first.2));
            ours.0
        })
        .collect();
    assert!(changed.iter().all(|name| name.starts_with("language_model.model.layers.")), "{changed:?}");
    assert_eq!(changed.len(), 6, "{changed:?}");
    place.write("again.toml", &recipe("adapter = \"first/adapter\"\n", "again"));
    place.runner(&["run", "again.toml"]).exits(0).says(&["1 measured"]);
}

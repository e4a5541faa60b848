//! Language models through the binary: training, references, weights from a folder, generation.

use std::path::{Path, PathBuf};

use runner::verify::Golden;

use crate::place::{Place, SMALL, changed, fixture};

/// A copy of a fixture's files below `place`.
pub fn copied(place: &Place, name: &str) -> PathBuf {
    let folder = place.path().join(name);
    std::fs::create_dir(&folder).unwrap();
    for file in ["config.json", "model.safetensors", "golden.safetensors"] {
        std::fs::copy(Path::new(&fixture(name)).join(file), folder.join(file)).unwrap();
    }
    folder
}

/// 320 hidden, 7 layers, 2048 tokens: 7 · 12 · 320² + 2048 · 320 + biases are 9.3 million parameters, and
/// 128 positions.
#[test]
fn a_gpt2_of_ten_million_parameters_learns() {
    let recipe = SMALL
        .replace("vocab_size = 300", "vocab_size = 2048")
        .replace("hidden_size = 32", "hidden_size = 320")
        .replace("num_hidden_layers = 2", "num_hidden_layers = 7")
        .replace("max_position_embeddings = 32", "max_position_embeddings = 128")
        .replace("100 KiB", "1 MiB")
        .replace("batch_size = 2", "batch_size = 4\naccumulation_steps = 2\nclip_norm = 1.0")
        .replace("seq_len = 16", "seq_len = 32")
        .replace("\nsteps = 2\n", "\nsteps = 23\n[eval]\nevery = 12\nbatches = 2\n");
    let place = Place::new(&recipe);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let row = place.rows().remove(0);
    let losses: Vec<f64> =
        row["measurement"]["loss"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
    assert_eq!(losses.len(), 24);
    // Untrained, every token of 2048 is as likely as any other: ln 2048 = 7.62.
    assert!((losses[0] - 7.62).abs() < 0.3 && losses[23] < losses[0] - 1.0, "{losses:?}");
    let evaluations = row["measurement"]["evaluations"].as_array().unwrap();
    let held_out: Vec<f64> = evaluations.iter().map(|e| e["loss"].as_f64().unwrap()).collect();
    assert_eq!(
        held_out.len(),
        3,
        "before the first step, after the twelfth and after the last: {evaluations:?}"
    );
    assert!(held_out[2] < held_out[0] - 1.0, "{held_out:?}");
    let (estimate, memory) = (&row["estimate"], &row["measurement"]["memory"]);
    assert!(estimate["weights"].as_u64() > Some(4 * 9_000_000), "{estimate}");
    assert!(memory["live_peak"].as_u64() > Some(4 * 4 * 9_000_000), "{memory}");
}

/// The same seed, the same losses; another seed, other ones.
#[test]
fn a_run_is_reproducible_from_its_seed() {
    let losses = |seed: u32| {
        let place = Place::new(&SMALL.replace("[model]", &format!("seed = {seed}\n[model]")));
        place.runner(&["run", "recipe.toml"]).exits(0);
        place.rows()[0]["measurement"]["loss"].clone()
    };
    assert_eq!(losses(1), losses(1));
    assert_ne!(losses(1), losses(2));
}

/// Three micro-batches of 2 sequences and one of 6 are the same step: the mean is over all real tokens.
#[test]
fn accumulation_changes_nothing_but_memory() {
    let losses = |sizes: &str| {
        let recipe = SMALL
            .replace("batch_size = 2", sizes)
            .replace("corpus = \"generated\"\nsize = \"100 KiB\"\nvocab_size = 300", "corpus = \"random\"");
        let place = Place::new(&recipe);
        place.runner(&["run", "recipe.toml"]).exits(0);
        let row = place.rows().remove(0);
        let losses = row["measurement"]["loss"].as_array().unwrap().clone();
        losses.iter().map(|loss| loss.as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let (whole, parts) = (losses("batch_size = 6"), losses("batch_size = 2\naccumulation_steps = 3"));
    for (a, b) in whole.iter().zip(&parts) {
        assert!((a - b).abs() < 1e-5, "{whole:?} {parts:?}");
    }
}

#[test]
fn references_are_verified_and_a_changed_weight_is_noticed() {
    let place = Place::new(SMALL);
    for name in ["qwen2", "gpt2", "gptj"] {
        place.runner(&["verify", &fixture(name)]).exits(0).says(&["quantities pass"]);
    }
    let families = std::fs::read_dir(fixture("families")).unwrap().map(|entry| entry.unwrap().path());
    for folder in families.filter(|path| path.is_dir()) {
        place.runner(&["verify", folder.to_str().unwrap()]).exits(0).says(&["quantities pass"]);
    }
    let folder = copied(&place, "gpt2");
    let weights = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    // A sign in the last tensor.
    let last = bytes.len() - 1;
    bytes[last] ^= 0x80;
    std::fs::write(&weights, bytes).unwrap();
    place.runner(&["verify", "gpt2"]).exits(1).says(&["FAIL"]);
}

/// An adapter of another rank than its config says, and a folder of an adapter without its config.
#[test]
fn an_adapter_that_does_not_fit_is_named() {
    let place = Place::new(SMALL);
    let folder = copied(&place, "qwen2_lora").join("adapter");
    std::fs::create_dir(&folder).unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(Path::new(&fixture("qwen2_lora/adapter")).join(file), folder.join(file)).unwrap();
    }
    let config = folder.join("adapter_config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["r"] = (json["r"].as_u64().expect("a rank") + 1).into();
    std::fs::write(&config, json.to_string()).unwrap();
    let says = ["of another rank than its adapter_config.json says", "wrong shape"];
    place.runner(&["verify", "qwen2_lora"]).exits(1).says(&says);
    std::fs::remove_file(&config).unwrap();
    place.runner(&["verify", "qwen2_lora"]).exits(1).says(&["adapter_config.json"]);
}

#[test]
fn damaged_weights_are_named() {
    let place = Place::new(SMALL);
    let folder = copied(&place, "qwen2");
    let weights = folder.join("model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    place.runner(&["verify", "qwen2"]).exits(1).says(&["model.safetensors", "is cut short"]);
    std::fs::remove_file(&weights).unwrap();
    place
        .runner(&["verify", "qwen2"])
        .exits(1)
        .says(&["qwen2 holds golden.safetensors, but no model.safetensors"]);
}

#[test]
fn weights_of_a_folder_train_and_generate() {
    let place = Place::new(SMALL);
    copied(&place, "qwen2");
    place.write(
        "tuned.toml",
        "title = \"t\"\n[model]\nkind = \"qwen2\"\nweights = \"qwen2\"\n[train]\nbatch_size = 2\nseq_len = 8\n\
         [measure]\nrepeats = 1\nwarmup = 1\nsteps = 1\n",
    );
    place.runner(&["run", "tuned.toml"]).exits(0).says(&["1 measured"]);
    place.runner(&["generate", "qwen2", "--prompt", "a"]).exits(1).says(&["tokenizer.json", "--ids"]);
    place
        .runner(&["generate", "qwen", "--prompt", "a"])
        .exits(1)
        .says(&["there is no folder qwen", "config.json"]);
    let long = ["generate", "qwen2", "--ids", "7", "--tokens", "100000"];
    let ended =
        place.runner(&long).exits(1).says(&["the prompt has 1 token, and with its continuation 100001"]);
    assert!(!ended.err.contains("adapter"), "{}", ended.err);
    let golden = Golden::load(Path::new(&fixture("qwen2"))).unwrap();
    let ids = |name: &str| {
        let ids: Vec<String> = golden.get(name).data.iter().map(|id| format!("{id}")).collect();
        ids.join(",")
    };
    let prompt = ids("generate.prompt");
    let ended =
        place.runner(&["generate", "qwen2", "--tokens", "16", "--ids", &prompt, "--ids", "7"]).exits(0);
    assert_eq!(ended.out.lines().next(), Some(ids("generate.tokens").as_str()));
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let refused = |from: &str, to: &str, parts: &[&str]| {
        Place::new(&changed(SMALL, &[(from, to)])).runner(&["check", "recipe.toml"]).exits(2).says(parts);
    };
    refused("seq_len = 16", "seq_len = 64", &["longer than the model's 32 positions", "recipe.toml:15"]);
    refused("[train]", "[ops]\nrope = \"plain\"\n[train]", &["ops.rope", "does not have that operator"]);
    refused(
        "[train]",
        "[checkpoint]\nlevel = 1\n[train]",
        &["SwiGLU operator, which this network does not have"],
    );
    refused("[train]", "[precision]\nautocast = true\n[train]", &["autocast has no effect"]);
    refused("vocab_size = 300\nhidden_size = 32", "preset = \"gpt2-larg\"", &["gpt2-large"]);
    refused("corpus = \"generated\"", "corpus = \"random\"", &["no meaning with corpus = \"random\""]);
    let swiglu = crate::place::TINY.replace("[train]", "[data]\ncorpus = \"generated\"\n[train]");
    Place::new(&swiglu).runner(&["check", "recipe.toml"]).exits(2).says(&["`data` is for language models"]);
}

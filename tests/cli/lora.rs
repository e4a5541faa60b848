//! LoRA in PEFT's less usual settings: references, files, memory, refusals.

use std::path::Path;

use serde_json::Value;

use crate::place::{Place, estimated, fixture, losses, number, tuned};

const LORA: &str = tuned!("method = \"lora\"\nrank = 5\n");

const ALL: [&str; 7] =
    ["rslora_patterns", "bias_lora_only", "bias_all", "dora", "dora_gpt2", "t5_lora", "t5_dora"];

/// Logits, loss, gradients and three AdamW steps of PEFT's, with blocks where they are and elsewhere.
#[test]
fn peft_agrees_on_patterns_biases_modules_and_dora() {
    let place = Place::new(LORA);
    for name in ALL {
        let folder = fixture(&format!("peft/{name}"));
        place.runner(&["verify", &folder]).exits(0).says(&["quantities pass"]);
        for setting in ["checkpoint.blocks=1", "offload.strategy=overlap", "offload.strategy=checkpointed"] {
            place.runner(&["verify", &folder, "--set", setting]).exits(0).says(&["quantities pass"]);
        }
        let narrow = ["--set", "precision.compute=bf16", "--set", "precision.autocast=true"];
        place.runner(&[&["verify", &folder], &narrow[..]].concat()).exits(0).says(&["quantities pass"]);
    }
}

/// What is trained from an adapter of PEFT's is saved as one that goes on, and merged into weights that say the same.
#[test]
fn every_kind_of_adapter_is_saved_merged_and_read_again() {
    for (name, keys) in [
        (
            "rslora_patterns",
            "rank = 3\nalpha = 5\nuse_rslora = true\n\
             target_modules = '.*layers\\.[02]\\.(self_attn\\.(q|v)_proj|mlp\\.down_proj)'\n\
             rank_pattern = 'layers\\.0\\..*q_proj = 2, v_proj = 4'\nalpha_pattern = \"down_proj = 9\"\n",
        ),
        (
            "bias_lora_only",
            "rank = 2\nalpha = 3\ntarget_modules = \"q_proj, o_proj\"\nlayers_to_transform = \"0, 2\"\n\
             bias = \"lora_only\"\nmodules_to_save = \"embed_tokens\"\n",
        ),
        ("t5_lora", "rank = 3\nalpha = 5\ntarget_modules = \"q, v, wo\"\n"),
        ("bias_all", "rank = 3\nalpha = 4\ntarget_modules = \"c_attn, c_fc\"\nbias = \"all\"\n"),
        (
            "dora",
            "rank = 3\nalpha = 7\nuse_dora = true\ntarget_modules = \"all-linear\"\nbias = \"lora_only\"\n\
             modules_to_save = \"lm_head, model.norm\"\ndropout = 0.2\n",
        ),
    ] {
        let model = fixture(&format!("peft/{name}"));
        let kind = match name {
            "bias_all" => "gpt2",
            "t5_lora" => "t5",
            _ => "qwen2",
        };
        let place = Place::new(LORA);
        let recipe = |adapter: &str, out: &str| {
            format!(
                "title = \"t\"\n[model]\nkind = \"{kind}\"\nweights = \"{model}\"\n[train]\nbatch_size = 2\nseq_len = 8\n\
                 optimizer = {{ kind = \"adamw\", lr = 1e-2 }}\n[measure]\nrepeats = 1\nwarmup = 0\nsteps = 3\n[tuning]\n\
                 method = \"lora\"\nadapter = \"{adapter}\"\n{keys}[save]\nadapter = \"{out}/adapter\"\n\
                 weights = \"{out}/merged\"\n"
            )
        };
        place.write("tuned.toml", &recipe(&format!("{model}/adapter"), "out"));
        place.runner(&["run", "tuned.toml"]).exits(0).says(&["1 measured"]);
        let text = |folder: &str, more: &[&str]| {
            let ids = ["generate", folder, "--ids", "5,17,40", "--tokens", "10"];
            place.runner(&[&ids[..], more].concat()).exits(0).out
        };
        let (merged, wrapped) = (text("out/merged", &[]), text(&model, &["--adapter", "out/adapter"]));
        assert_eq!(merged, wrapped, "{name}");
        let [first, saved] = [Path::new(&model).join("adapter"), place.path().join("out/adapter")]
            .map(|folder| tensors(&folder.join("adapter_model.safetensors")));
        let lost = first.iter().filter(|tensor| !saved.contains(tensor));
        let lost: Vec<&str> = lost.map(|(tensor, _)| tensor.as_str()).collect();
        assert!(lost.is_empty(), "{name}: {lost:?} of {saved:?}");
        place.write("again.toml", &recipe("out/adapter", "again"));
        place.runner(&["run", "again.toml"]).exits(0).says(&["1 measured"]);
    }
}

/// Names and shapes.
fn tensors(file: &Path) -> Vec<(String, Vec<usize>)> {
    let bytes = std::fs::read(file).expect("an adapter");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    file.tensors().into_iter().map(|(name, tensor)| (name, tensor.shape().to_vec())).collect()
}

/// A first adapter of each kind begins as the model; masks are drawn alike wherever blocks live.
#[test]
fn dora_draws_the_same_masks_wherever_blocks_live() {
    let more = "use_dora = true\nbias = \"lora_only\"\ndropout = 0.2\n[[grid]]\n\"checkpoint.blocks\" = [0, 1]\n[[grid]]\n\
                \"offload.strategy\" = [\"naive\", \"overlap\"]\n";
    let recipe = LORA.replace("warmup = 1", "warmup = 0");
    let place = Place::new(&format!("{recipe}{more}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["4 measured"]);
    let rows = place.rows();
    let first = losses(&rows[0]);
    assert!(rows.iter().all(|row| losses(row) == first), "{first:?}");
    let without = Place::new(&recipe);
    without.runner(&["run", "recipe.toml"]).exits(0);
    let [dora, lora] = [first[0], losses(&without.rows()[0])[0]];
    assert!((dora - lora).abs() < 1e-4, "both begin as the model: {dora} and {lora}");
}

#[test]
fn memory_of_every_kind_is_estimated() {
    let grid = "[[grid]]\n\"tuning.use_dora\" = [false, true]\n\"tuning.bias\" = [\"none\", \"lora_only\", \"all\"]\n\
                [[grid]]\n\"tuning.modules_to_save\" = \"embed_tokens\"\n\"tuning.use_dora\" = [false, true]\n\
                [[grid]]\n\"tuning.use_dora\" = true\n\"tuning.dropout\" = 0.1\n";
    let recipe = LORA.replace("batch_size = 3", "batch_size = 24");
    let place = Place::new(&format!("{recipe}{grid}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["9 measured"]);
    for row in place.rows() {
        let ratio = estimated(&row) / number(&row, "/measurement/memory/live_peak");
        assert!((0.9..=1.1).contains(&ratio), "{ratio} of {}", row["cell"]["tuning"]);
        assert!(row["cell"]["tuning"].get("rank_pattern").is_none_or(Value::is_null));
    }
}

#[test]
fn what_peft_would_not_do_is_refused_with_what_to_write() {
    for (keys, parts) in [
        ("target_modules = \"(q_proj\"\n", vec!["is no regular expression"]),
        ("target_modules = '.*nothing'\n", vec!["names no layer", "q_proj"]),
        ("target_modules = \"layers.7.self_attn.q_proj\"\n", vec!["names layers.7.self_attn.q_proj"]),
        ("layers_to_transform = \"0, 9\"\n", vec!["names block 9, and the model has 3", "from 0 to 2"]),
        ("layers_to_transform = \"first\"\n", vec!["first is no number of a block"]),
        ("target_modules = '.*q_proj'\nlayers_to_transform = \"0\"\n", vec!["a regular expression"]),
        ("rank_pattern = \"q_proj 4\"\n", vec!["q_proj 4 is no pattern = number"]),
        ("rank_pattern = \"q_proj = 4.5\"\n", vec!["q_proj = 4.5 is no whole number"]),
        ("rank_pattern = \"down_proj = 4\"\n", vec!["down_proj is the end of no adapted layer's path"]),
        ("rank_pattern = \"q_proj = 4, .*_proj = 2\"\n", vec!["both q_proj and .*_proj fit"]),
        ("rank_pattern = \"k_proj = 23\"\n", vec!["tuning.rank = 23 is larger than k_proj"]),
        ("modules_to_save = \"wte\"\n", vec!["names a module that the model does not have: wte"]),
        ("modules_to_save = \"norm\"\n", vec!["names a module of blocks: norm"]),
        ("bias = \"some\"\n", vec!["lora_only"]),
        ("target_modules = \"o_proj\"\nbias = \"lora_only\"\n", vec!["there are no such biases"]),
    ] {
        Place::new(&format!("{LORA}{keys}")).runner(&["check", "recipe.toml"]).exits(2).says(&parts);
    }
    let even = LORA.replace("hidden_size = 66", "hidden_size = 64").replace("heads = 3", "heads = 2");
    let even = even.replace("heads = 1", "heads = 2").replace("151", "152").replace("307", "308");
    let place = Place::new(&format!("{even}use_dora = true\n[parallel]\ntensor = 2\n"));
    place.runner(&["check", "recipe.toml"]).exits(2).says(&["tuning.use_dora", "remove tuning.use_dora"]);
    // Two layers of one name.
    let gpt2 = format!(
        "title = \"t\"\n[model]\nkind = \"gpt2\"\nweights = \"{}\"\n[train]\nbatch_size = 2\nseq_len = 8\n[tuning]\n\
         method = \"lora\"\nrank = 2\ntarget_modules = \"attn.c_proj\"\n",
        fixture("peft/dora_gpt2")
    );
    Place::new(&gpt2).runner(&["check", "recipe.toml"]).exits(2).says(&["have one name"]);
}

//! QLoRA through the binary: the reference, memory, other places of blocks, saving.

use serde_json::Value;

use crate::place::{Place, fixture, losses, number, tuned};
use crate::ranks::weights;

/// Weights end within a block of codes.
const QLORA: &str = tuned!("method = \"qlora\"\nrank = 5\n");

/// Packed weights, logits, loss, gradients and three AdamW steps, with blocks where they are and elsewhere.
#[test]
fn peft_and_bitsandbytes_agree_with_every_way_to_hold_blocks() {
    let place = Place::new(QLORA);
    let folder = fixture("qwen2_qlora");
    let ended = place.runner(&["verify", &folder]);
    ended.exits(0).says(&["quantities pass"]);
    for setting in ["checkpoint.blocks=2", "offload.strategy=overlap", "offload.strategy=checkpointed"] {
        place.runner(&["verify", &folder, "--set", setting]).exits(0).says(&["quantities pass"]);
    }
    for compute in ["bf16", "fp16"] {
        let settings = [format!("precision.compute={compute}"), "precision.autocast=true".into()];
        let set = ["--set", &settings[0], "--set", &settings[1]];
        place.runner(&[&["verify", &folder], &set[..]].concat()).exits(0).says(&["quantities pass"]);
    }
}

/// Weights are as many bytes as they are said to be, fewer than LoRA's, and the whole is estimated within 5 %.
#[test]
fn memory_is_the_formulas() {
    let grid = "[[grid]]\n\"tuning.method\" = [\"lora\", \"qlora\"]\n\"checkpoint.blocks\" = [0, 1]\n[[grid]]\n\
                \"offload.strategy\" = [\"overlap\", \"naive\"]\n[[grid]]\nprecision = [{ compute = \"bf16\" }, \
                { compute = \"bf16\", autocast = true }]\n";
    // So many tokens and such weights that what the process holds besides tensors, 0.3 MB, is little.
    let recipe =
        QLORA.replace("batch_size = 3", "batch_size = 24").replace("= 66", "= 264").replace("151", "603");
    let place = Place::new(&format!("{recipe}{grid}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["8 measured"]);
    let rows = place.rows();
    for row in &rows {
        let parts = ["weights", "gradients", "optimizer", "activations", "workspace"];
        let estimate: f64 = parts.iter().map(|part| number(row, &format!("/estimate/{part}"))).sum();
        let ratio = estimate / number(row, "/measurement/memory/live_peak");
        // Of blocks as small as these, one that is computed again holds an input of 1 MB more than is said.
        let again = row["cell"]["checkpoint"]["blocks"] == 1 || row["cell"]["offload"]["strategy"] != "none";
        let least = if again { 0.92 } else { 0.95 };
        assert!((least..=1.05).contains(&ratio), "{ratio} of {}", row["cell"]);
    }
    let weights = |method: &str| {
        let is = |row: &&Value| {
            let resident =
                row["cell"]["offload"]["strategy"] == "none" && row["cell"]["precision"]["compute"] == "fp32";
            resident && row["cell"]["tuning"]["method"] == method
        };
        number(rows.iter().find(is).expect("a row"), "/estimate/weights")
    };
    let linear = 3.0 * (2.0 * 264.0 * 264.0 + 2.0 * 264.0 * 88.0 + 3.0 * 264.0 * 603.0);
    let saved = weights("lora") - weights("qlora");
    assert!((saved / linear - (4.0 - 0.516)).abs() < 0.002, "{saved} of {linear}");
}

/// The same losses wherever blocks live and however often they are computed.
#[test]
fn codes_move_as_other_weights_do() {
    let more = "dropout = 0.2\n[[grid]]\n\"checkpoint.blocks\" = [0, 1, 2]\n[[grid]]\n\"offload.strategy\" = [\"naive\", \
                \"checkpointed\", \"function\", \"overlap\"]\n[[grid]]\n\"offload.strategy\" = \"overlap\"\n\
                \"offload.resident_blocks\" = 1\n\"offload.optimizer\" = [\"host\", \"device\"]\n";
    let recipe = QLORA.replace("seq_len = 47", "seq_len = 47\naccumulation_steps = 2");
    let place = Place::new(&format!("{recipe}{more}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["9 measured"]);
    let rows = place.rows();
    let first = losses(&rows[0]);
    for row in &rows {
        let close = losses(row).iter().zip(&first).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close, "{:?} {first:?} {}", losses(row), row["cell"]);
    }
}

/// An adapter in PEFT's layout, and merged weights, which are those of a model without codes.
#[test]
fn an_adapter_is_saved_and_merged() {
    let place = Place::new(QLORA);
    let save = "[save]\nadapter = \"out/adapter\"\nweights = \"out/merged\"\n";
    place.write("saved.toml", &format!("{QLORA}{save}"));
    place.runner(&["run", "saved.toml"]).exits(0).says(&["1 measured"]);
    let merged = QLORA
        .replace("size = \"30 KiB\"\nvocab_size = 307", "size = \"30 KiB\"")
        .replace(
            "vocab_size = 307\nhidden_size = 66",
            "weights = \"out/merged\"\nvocab_size = 307\nhidden_size = 66",
        )
        .replace("method = \"qlora\"\nrank = 5", "method = \"full\"")
        .replace("optimizer = { kind = \"adamw\", lr = 1e-2 }", "");
    place.write("merged.toml", &merged);
    place.runner(&["run", "merged.toml"]).exits(0).says(&["1 measured"]);
    // Stages pack the same weights.
    let stages = "[parallel.pipeline]\nstages = 2\nschedule = \"1f1b\"\nmicro_batches = 3\n";
    let staged = save.replace("out/", "out/staged_");
    place.write("staged.toml", &format!("{QLORA}{stages}{staged}"));
    place.runner(&["run", "staged.toml"]).exits(0).says(&["1 measured"]);
    let [one, staged] =
        ["merged", "staged_merged"].map(|folder| weights(&place.path().join("out").join(folder)));
    assert_eq!(one.len(), staged.len());
    let apart = one.iter().zip(&staged).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-3, "{apart}");
}

#[test]
fn what_does_not_go_with_packed_weights_is_refused() {
    let refused = |more: &str, parts: &[&str]| {
        let place = Place::new(&format!("{QLORA}{more}"));
        place.runner(&["check", "recipe.toml"]).exits(2).says(parts);
    };
    refused("[checkpoint]\nlevel = 1\n", &["choices of the SwiGLU operator", "weights in 4 bits"]);
    refused("[ops]\nswiglu = \"plain\"\n", &["choices of the SwiGLU operator"]);
    refused("bits = 4\n", &["unknown"]);
}

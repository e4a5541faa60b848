//! Tuning of few parameters through the binary: references, memory, adapters read and written, bad input.

use std::path::Path;

use serde_json::Value;

use crate::place::{Place, estimated, fixture, losses, number, tuned};

/// A and B are trained.
const LORA: &str = tuned!("method = \"lora\"\nrank = 5\n");

/// Logits, loss, gradients and three AdamW steps of PEFT's, with blocks where they are and elsewhere.
#[test]
fn peft_agrees_with_every_way_to_hold_blocks() {
    let place = Place::new(LORA);
    let folder = fixture("qwen2_lora");
    place.runner(&["verify", &folder]).exits(0).says(&["quantities pass"]);
    for setting in ["checkpoint.blocks=2", "offload.strategy=overlap", "offload.strategy=checkpointed"] {
        place.runner(&["verify", &folder, "--set", setting]).exits(0).says(&["quantities pass"]);
    }
    for compute in ["bf16", "fp16"] {
        for autocast in [true, false] {
            let settings = [format!("precision.compute={compute}"), format!("precision.autocast={autocast}")];
            let set = ["--set", &settings[0], "--set", &settings[1]];
            place.runner(&[&["verify", &folder], &set[..]].concat()).exits(0).says(&["quantities pass"]);
        }
    }
}

/// What a rank costs is measured to the byte, and the whole is estimated within 5 %.
#[test]
fn memory_is_the_formulas() {
    let grid = "[grid]\n\"tuning.rank\" = [5, 21]\n\"tuning.dropout\" = [0, 0.1]\n";
    // So many tokens that what the process holds besides tensors, 0.3 MB, is little.
    let recipe = LORA.replace("batch_size = 3", "batch_size = 24");
    let place = Place::new(&format!("{recipe}{grid}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["4 measured"]);
    let rows = place.rows();
    for row in &rows {
        let ratio = estimated(row) / number(row, "/measurement/memory/live_peak");
        assert!((0.95..=1.05).contains(&ratio), "{ratio} of {}", row["cell"]);
    }
    let of = |rank: u64, dropout: f64| {
        let is = |row: &&Value| {
            row["cell"]["tuning"]["rank"] == rank && number(row, "/cell/tuning/dropout") == dropout
        };
        number(rows.iter().find(is).expect("a row"), "/measurement/memory/after_forward")
    };
    // A and B of each rank with two moments, and of each token s xAᵀ, in q, k, v and o of three layers.
    let parameters = (66 + 66) + (66 + 22) + (66 + 22) + (66 + 66);
    let expected = 16 * 3 * (3 * parameters + 4 * 24 * 47) * 4;
    for dropout in [0.0, 0.1] {
        let difference = of(21, dropout) - of(5, dropout);
        assert!((difference - f64::from(expected)).abs() < 1024.0, "{difference} and {expected}");
    }
    // No mask is kept: only a byte or so of bookkeeping differs.
    assert!((of(5, 0.1) - of(5, 0.0)).abs() < 1024.0);
}

/// The same losses wherever blocks live and however often they are computed, with dropout too.
#[test]
fn ways_to_save_memory_draw_the_same_masks() {
    let more = "dropout = 0.2\n[[grid]]\n\"checkpoint.blocks\" = [0, 1, 2]\n[[grid]]\n\"offload.strategy\" = [\"naive\", \
                \"checkpointed\", \"function\", \"overlap\"]\n";
    let recipe = LORA.replace("seq_len = 47", "seq_len = 47\naccumulation_steps = 2");
    let place = Place::new(&format!("{recipe}{more}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["7 measured"]);
    let rows = place.rows();
    let first = losses(&rows[0]);
    assert!(first.windows(2).any(|pair| pair[0] != pair[1]), "{first:?}");
    for row in &rows {
        assert_eq!(losses(row), first, "{}", row["cell"]);
    }
    let without = Place::new(&recipe);
    without.runner(&["run", "recipe.toml"]).exits(0);
    assert_ne!(losses(&without.rows()[0]), first, "dropout changes losses");
}

/// `[save]` writes an adapter that continues, and merged weights that say the same.
#[test]
fn an_adapter_is_saved_merged_and_read_again() {
    let place = Place::new(LORA);
    let model = fixture("qwen2_lora");
    let adapter = Path::new(&model).join("adapter").display().to_string();
    let tuned = format!(
        "title = \"t\"\n[model]\nkind = \"qwen2\"\nweights = \"{model}\"\n[train]\nbatch_size = 2\nseq_len = 16\n\
         optimizer = {{ kind = \"adamw\", lr = 1e-2 }}\n[measure]\nrepeats = 1\nwarmup = 0\nsteps = 3\n[tuning]\n\
         method = \"lora\"\nrank = 5\nalpha = 7\nadapter = \"{adapter}\"\n"
    );
    place.write(
        "tuned.toml",
        &format!("{tuned}[save]\nadapter = \"out/adapter\"\nweights = \"out/merged\"\n"),
    );
    place.runner(&["run", "tuned.toml"]).exits(0).says(&["1 measured"]);
    let ids = ["--ids", "5,17,100", "--tokens", "12"];
    let text = |folder: &str, more: &[&str]| {
        let ended = place.runner(&[&["generate", folder], &ids[..], more].concat());
        ended.exits(0).out
    };
    let (merged, wrapped) = (text("out/merged", &[]), text(&model, &["--adapter", "out/adapter"]));
    assert_eq!(merged, wrapped);
    assert_ne!(wrapped, text(&model, &[]), "the adapter changes what is said");
    // What was written is written over; what others have written is not.
    place.runner(&["run", "tuned.toml", "--force"]).exits(0);
    place.write("other.toml", &format!("{tuned}[save]\nadapter = \"{adapter}\"\n"));
    place.runner(&["run", "other.toml"]).exits(2).says(&["it is not written over", "name another folder"]);
    let own = place.path().join("own");
    std::fs::create_dir(&own).unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(Path::new(&adapter).join(file), own.join(file)).unwrap();
    }
    place.write("overwriting.toml", &format!("{tuned}[save]\nadapter = \"own\"\noverwrite = true\n"));
    place.runner(&["run", "overwriting.toml"]).exits(0).says(&["1 measured"]);
    place.write("again.toml", &tuned.replace(&adapter, "out/adapter"));
    place.runner(&["run", "again.toml"]).exits(0).says(&["1 measured"]);
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_write() {
    let refused = |recipe: &str, parts: &[&str]| {
        let place = Place::new(recipe);
        place.runner(&["check", "recipe.toml"]).exits(2).says(parts);
    };
    refused(&LORA.replace("rank = 5", "rank = 0"), &["must be at least 1, not 0"]);
    refused(
        &LORA.replace("rank = 5", "rank = 23"),
        &[
            "tuning.rank = 23 is larger than k_proj, which has 66 inputs and 22",
            "set tuning.rank to 22 or less",
        ],
    );
    refused(
        &format!("{LORA}target_modules = \"c_attn\"\n"),
        &["names c_attn", "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"],
    );
    refused(&format!("{LORA}size = 3\n"), &["unknown"]);
    refused(
        &format!("{LORA}target_modules = \"down_proj\"\n[checkpoint]\nlevel = 1\n"),
        &["choices of the SwiGLU operator", "checkpoint.blocks works with both"],
    );
    refused(
        &LORA.replace("\"qwen2\"", "\"llama\"").replace("rank = 5\n", "").replace("\"lora\"", "\"bitfit\""),
        &["trains no parameter of this model"],
    );
    refused(&LORA.replace("method = \"lora\"\n", ""), &["the key `method` is missing in `tuning`"]);
    refused(
        &LORA
            .replace("rank = 5", "")
            .replace("\"lora\"", "\"full\"")
            .replace("[tuning]", "[save]\nadapter = \"a\"\n[tuning]"),
        &["has no adapter that PEFT could read"],
    );
    let model = fixture("qwen2_lora");
    let of_folder = format!(
        "title = \"t\"\n[model]\nkind = \"qwen2\"\nweights = \"{model}\"\n[train]\nbatch_size = 2\nseq_len = 16\n\
         [tuning]\nmethod = \"lora\"\nrank = 4\nalpha = 7\nadapter = \"{model}/adapter\"\n"
    );
    refused(&of_folder, &["has tuning.rank = 5, and this cell 4", "write tuning.rank = 5"]);
    // An adapter of another model.
    let place = Place::new(&format!("{LORA}alpha = 7\nadapter = \"{model}/adapter\"\n"));
    place.runner(&["run", "recipe.toml"]).exits(1);
    let row = place.rows().remove(0);
    let reason = row["reason"].as_str().expect("a reason");
    assert!(reason.contains("wrong shape") && reason.contains("lora_A.weight"), "{reason}");
    let generate = ["generate", &fixture("gpt2"), "--ids", "5", "--adapter", &format!("{model}/adapter")];
    place.runner(&generate).exits(1).says(&["does not go with this model", "c_attn"]);
    let adapter = format!("{model}/adapter");
    let generate = ["generate", &adapter, "--prompt", "a"];
    place.runner(&generate).exits(1).says(&["the model's own folder, and this one in", "with --adapter"]);
    // One whose tensors are gone.
    let config = std::fs::read(format!("{model}/adapter/adapter_config.json")).unwrap();
    std::fs::create_dir(place.path().join("emptied")).unwrap();
    std::fs::write(place.path().join("emptied/adapter_config.json"), config).unwrap();
    let generate = ["generate", &model, "--ids", "5", "--adapter", "emptied"];
    place.runner(&generate).exits(1).says(&["adapter_model.safetensors", "save_pretrained has written"]);
}

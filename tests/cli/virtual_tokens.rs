//! Prompt and prefix tuning, and classifiers of a task, through the binary.

use serde_json::Value;

use crate::place::{Place, estimated, fixture, losses, tuned};

const FIXTURES: [&str; 4] = ["qwen2_prompt", "qwen2_prefix", "gpt2_prompt", "gpt2_prefix"];

/// Virtual tokens before packed samples.
const RECIPE: &str = tuned!("method = \"prefix\"\nnum_virtual_tokens = 7\n");

/// Logits, loss, gradients, three AdamW steps and text of PEFT's, with blocks where they are and elsewhere.
#[test]
fn peft_agrees_with_every_way_to_hold_blocks() {
    let place = Place::new(RECIPE);
    let text =
        ["data.corpus=generated", "data.tokenizer=train", "data.vocab_size=260", "data.size=\"30 KiB\""];
    let packed = [&text[..], &["data.sampler=packed"]].concat();
    for name in FIXTURES {
        let folder = fixture(name);
        let verify = |settings: &[&str]| {
            let set = settings.iter().flat_map(|setting| ["--set", setting]);
            let args: Vec<&str> = ["verify", folder.as_str()].into_iter().chain(set).collect();
            place.runner(&args).exits(0).says(&["quantities pass"]);
        };
        verify(&[]);
        verify(&["checkpoint.blocks=2"]);
        verify(&["offload.strategy=overlap"]);
        verify(&["offload.strategy=checkpointed", "train.accumulation_steps=2"]);
        verify(&["precision.compute=bf16", "precision.autocast=true"]);
        verify(&packed);
        verify(&[&packed[..], &["ops.attention=plain"]].concat());
    }
}

/// The same losses wherever blocks live, of packed samples too.
#[test]
fn ways_to_save_memory_change_no_loss() {
    let grids = "[[grid]]\n\"checkpoint.blocks\" = [0, 2]\n[[grid]]\n\"offload.strategy\" = [\"naive\", \"overlap\"]\n";
    for method in ["prompt", "prefix"] {
        let recipe = RECIPE.replace("\"prefix\"", &format!("\"{method}\""));
        let recipe =
            recipe.replace("vocab_size = 307\n[train]", "vocab_size = 307\nsampler = \"packed\"\n[train]");
        let place = Place::new(&format!("{recipe}{grids}"));
        place.runner(&["run", "recipe.toml"]).exits(0).says(&["4 measured"]);
        let rows = place.rows();
        let first = losses(&rows[0]);
        assert!(first.windows(2).any(|pair| pair[0] != pair[1]), "{first:?}");
        for row in &rows {
            assert_eq!(losses(row), first, "{}", row["cell"]);
        }
    }
}

fn estimate_over_peak(row: &Value) -> f64 {
    estimated(row) / row["measurement"]["memory"]["live_peak"].as_f64().expect("a peak")
}

#[test]
fn memory_is_estimated() {
    // So many tokens that what the process holds besides tensors, 0.3 MB, is little.
    let recipe = RECIPE.replace("batch_size = 3", "batch_size = 24");
    let (recipe, _) = recipe.split_once("[tuning]").expect("it has one");
    let grid = "[[grid]]\ntuning = [{ method = \"prompt\", num_virtual_tokens = 7 }, { method = \"prefix\", num_virtual_tokens = 7 }]\n\
                \"offload.strategy\" = [\"none\", \"overlap\"]\n[[grid]]\ntuning = [{ method = \"prefix\", num_virtual_tokens = 16 }]\n\
                \"checkpoint.blocks\" = [1]\n";
    let place = Place::new(&format!("{recipe}{grid}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["5 measured"]);
    for row in place.rows() {
        let ratio = estimate_over_peak(&row);
        assert!((0.95..=1.05).contains(&ratio), "{ratio} of {}", row["cell"]);
    }
}

/// PEFT's folder is read, written, and read again.
#[test]
fn virtual_tokens_are_saved_and_read_again() {
    for (name, method) in [("qwen2_prompt", "prompt"), ("gpt2_prefix", "prefix")] {
        let model = fixture(name);
        let recipe = |adapter: &str, steps: usize, save: &str| {
            format!(
                "title = \"t\"\n[model]\nkind = \"{}\"\nweights = \"{model}\"\n[train]\nbatch_size = 2\nseq_len = 16\n\
                 optimizer = {{ kind = \"adamw\", lr = 1e-2 }}\n[measure]\nrepeats = 1\nwarmup = 0\nsteps = {steps}\n[tuning]\n\
                 method = \"{method}\"\nnum_virtual_tokens = 5\nadapter = \"{adapter}\"\n[save]\nadapter = \"{save}\"\n",
                &name[..name.find('_').expect("a family")]
            )
        };
        let place = Place::new(&recipe(&format!("{model}/adapter"), 3, "trained"));
        place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
        place.write("again.toml", &recipe("trained", 1, "more"));
        place.runner(&["run", "again.toml"]).exits(0).says(&["1 measured"]);
        let text = |more: &[&str]| {
            let generate = ["generate", &model, "--ids", "5,17,100", "--ids", "9", "--tokens", "12"];
            place.runner(&[&generate, more].concat()).exits(0).out
        };
        let [first, trained] =
            [format!("{model}/adapter"), "trained".into()].map(|folder| text(&["--adapter", &folder]));
        assert!(first != text(&[]) && first != trained, "{first}");
        // Batched or alone, with padding on the left.
        let alone = ["generate", &model, "--ids", "9", "--tokens", "12", "--adapter", "trained"];
        assert_eq!(Some(place.runner(&alone).exits(0).out.trim()), trained.trim().lines().last());
        place.write("other.toml", &recipe("trained", 1, "x").replace("tokens = 5", "tokens = 6"));
        place.runner(&["check", "other.toml"]).exits(2).says(&["num_virtual_tokens = 5, and this cell 6"]);
        let other = ["generate", &fixture("qwen2"), "--ids", "5", "--adapter", "trained"];
        place.runner(&other).exits(1).says(&["does not fit the model", "wrong shape: prompt_embeddings"]);
    }
}

/// A classifier of topics from random weights, which each method trains.
const TOPICS: &str = r#"title = "topics"
[model]
kind = "qwen2"
vocab_size = 257
hidden_size = 32
intermediate_size = 40
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 1
max_position_embeddings = 24
[data]
corpus = "task"
vocab_size = 257
sampler = "standard"
[task]
kind = "topics"
sentences = 300
[train]
batch_size = 16
seq_len = 12
optimizer = { kind = "adamw", lr = 1e-2 }
[eval]
every = 10
batches = 2
feature_distance = true
[measure]
repeats = 1
warmup = 1
steps = 30
"#;

#[test]
fn a_probe_leaves_features_where_they_are_and_full_tuning_does_not() {
    let grid = "[grid]\ntuning = [{ method = \"linear_probe\" }, { method = \"lp_ft\", probe_steps = 20 }, { method = \"full\" }]\n\
                \"offload.strategy\" = [\"none\", \"overlap\"]\n";
    let place = Place::new(&format!("{TOPICS}{grid}"));
    let says = ["6 measured", "tuning lp_ft"];
    place.runner(&["run", "recipe.toml"]).exits(0).says(&says);
    let rows = place.rows();
    let of = |method: &str| -> Vec<&Value> {
        rows.iter().filter(|row| row["cell"]["tuning"]["method"] == method).collect()
    };
    for row in &rows {
        let sets: Vec<&str> = row["measurement"]["answers"]
            .as_array()
            .expect("answers")
            .iter()
            .map(|answers| answers["set"].as_str().expect("a name"))
            .collect();
        let both = ["in distribution", "out of distribution"];
        assert_eq!(sets, [both, both].concat());
    }
    let [probe, both, full] = ["linear_probe", "lp_ft", "full"].map(of);
    let distance = |row: &Value| row["measurement"]["feature_distance"]["l2"].as_f64().expect("a distance");
    assert!(distance(probe[0]) == 0.0 && distance(both[0]) > 0.0 && distance(full[0]) > distance(both[0]));
    for of_method in [&probe, &both, &full] {
        assert_eq!(losses(of_method[0]), losses(of_method[1]), "with offload and without");
    }
    // The probe is the first part of both.
    assert_eq!(losses(probe[0])[..20], losses(both[0])[..20]);
    assert_ne!(losses(probe[0])[21..], losses(both[0])[21..]);
    let report = std::fs::read_to_string(place.results().join("table.md")).expect("a report");
    assert!(!report.is_empty());
}

/// The traced step is one more update, which nothing that is measured may see.
#[test]
fn a_trace_changes_no_result() {
    let measured = |trace: &[&str]| {
        let place = Place::new(&TOPICS.replace("warmup = 1", "warmup = 1\ngradient_histogram = true"));
        place.runner(&[&["run", "recipe.toml"], trace].concat()).exits(0);
        let row = place.rows().remove(0);
        ["feature_distance", "gradient_histogram"].map(|key| row["measurement"][key].clone())
    };
    let without = measured(&[]);
    assert!(without.iter().all(|value| !value.is_null()));
    assert_eq!(measured(&["--trace"]), without);
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_write() {
    let refused = |recipe: &str, parts: &[&str]| {
        Place::new(recipe).runner(&["check", "recipe.toml"]).exits(2).says(parts);
    };
    refused(&RECIPE.replace("tokens = 7", "tokens = 0"), &["must be at least 1, not 0"]);
    refused(&RECIPE.replace("tokens = 7", "tokens = 18"), &["with 18 virtual tokens before it is longer"]);
    refused(
        &format!("{RECIPE}[save]\nweights = \"w\"\n"),
        &["cannot be merged into the model's own weights"],
    );
    refused(&format!("{RECIPE}adapter = \"{}/adapter\"\n", fixture("qwen2_lora")), &["has another method"]);
    let probe = RECIPE.replace("num_virtual_tokens = 7\n", "").replace("\"prefix\"", "\"linear_probe\"");
    refused(&probe, &["trains the classifier of a task, and this cell has none", "kind = \"topics\""]);
    refused(
        &format!("{TOPICS}[tuning]\nmethod = \"lp_ft\"\nprobe_steps = 30\n"),
        &["leaves none of the 30 steps for full tuning"],
    );
    let asked = TOPICS.replace("sentences = 300", "evaluate_generation = 5");
    refused(&asked, &["the numbers at the end of answers", "remove task.evaluate_generation"]);
    refused(&format!("{TOPICS}[save]\nweights = \"w\"\n"), &["whose head is the classifier of a task"]);
    refused(
        &format!("{TOPICS}[tuning]\nmethod = \"bitfit\"\n").replace("\"qwen2\"", "\"llama\""),
        &["trains no parameter of this model"],
    );
    let short = Place::new(&TOPICS.replace("seq_len = 12", "seq_len = 11"));
    short.runner(&["run", "recipe.toml"]).exits(1).says(&["a classifier reads it whole"]);
}

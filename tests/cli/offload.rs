//! Blocks on the host: the same training by every strategy, and what is refused.

mod optimizer;

use serde_json::Value;

use crate::place::{Place, estimated, fixture};

const RECIPE: &str = r#"title = "offload"
device = "cpu"
[model]
kind = "qwen2"
vocab_size = 64
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 5
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 64
[train]
batch_size = 2
seq_len = 16
accumulation_steps = 2
clip_norm = 0.5
optimizer = { kind = "adamw", lr = 3e-2 }
[measure]
repeats = 1
warmup = 1
steps = 4
[grid]
"offload.strategy" = ["none", "naive", "checkpointed", "function", "overlap"]
"#;

/// Strategy and loss of every step, by row.
fn losses(recipe: &str) -> Vec<(String, Vec<f64>)> {
    let place = Place::new(recipe);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let loss = |row: &Value| {
        let strategy = row["cell"]["offload"]["strategy"].as_str().unwrap_or("none").to_string();
        let losses = row["measurement"]["loss"].as_array().expect("losses");
        (strategy, losses.iter().map(|loss| loss.as_f64().expect("a number")).collect())
    };
    place.rows().iter().map(loss).collect()
}

fn all_equal(recipe: &str, relative: f64) {
    let rows = losses(recipe);
    assert_eq!(rows.len(), 5);
    let none = &rows.iter().find(|(strategy, _)| strategy == "none").expect("a baseline").1;
    // A step moves the loss by far more than is allowed: a lost update is noticed.
    let moved = none.iter().fold(0.0f64, |most, loss| most.max((loss - none[0]).abs()));
    assert!(moved > 4.0 * relative * none[0], "{none:?}");
    for (strategy, losses) in &rows {
        for (ours, reference) in losses.iter().zip(none) {
            assert!((ours - reference).abs() <= relative * reference, "{strategy}: {losses:?}, not {none:?}");
        }
    }
}

/// Two micro-batches a step, clipped gradients, AdamW: the losses follow the parameters of each step.
#[test]
fn every_strategy_trains_alike() {
    all_equal(RECIPE, 1e-5);
}

#[test]
fn every_strategy_trains_alike_under_autocast() {
    all_equal(&format!("{RECIPE}[precision]\ncompute = \"bf16\"\nautocast = true\n"), 1e-3);
}

#[test]
fn every_strategy_trains_alike_in_bf16_and_at_level_1() {
    let recipe = RECIPE.replace("adamw", "sgd").replace("3e-2", "2.0");
    all_equal(&format!("{recipe}[precision]\ncompute = \"bf16\"\n[checkpoint]\nlevel = 1\n"), 1e-3);
}

/// The recipe with other keys and another grid.
fn on_the_host(change: &[(&str, &str)], grid: &str) -> String {
    let recipe = change.iter().fold(RECIPE.to_string(), |recipe, (from, to)| {
        assert!(recipe.contains(from), "{from}");
        recipe.replace(from, to)
    });
    format!("{}{grid}", &recipe[..recipe.find("[grid]").expect("a grid")])
}

/// Rows with the same losses: the first is the device's.
fn equal_on_the_host(recipe: &str, relative: f64) {
    let place = Place::new(recipe);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    let losses = |row: &Value| -> Vec<f64> {
        let losses = row["measurement"]["loss"].as_array().expect("losses");
        losses.iter().map(|loss| loss.as_f64().expect("a number")).collect()
    };
    let is_device = |row: &&Value| {
        row["cell"]["offload"]["strategy"] == "none" && row["cell"]["offload"]["optimizer"] == "device"
    };
    let device = losses(rows.iter().find(is_device).expect("a baseline"));
    assert!(device.iter().any(|loss| (loss - device[0]).abs() > 4.0 * relative * device[0]), "{device:?}");
    for row in &rows {
        for (ours, reference) in losses(row).iter().zip(&device) {
            assert!((ours - reference).abs() <= relative * reference, "{row}\n{device:?}");
        }
    }
}

/// Inputs of blocks on the host, in training, with micro-batches, and in evaluation between steps.
#[test]
fn activations_on_the_host_train_alike() {
    let grid = r#"[eval]
every = 2
batches = 2
[[grid]]
"offload.strategy" = "none"
[[grid]]
"offload.strategy" = ["naive", "function", "overlap"]
"offload.activations" = "host"
"offload.optimizer" = ["device", "host"]
"#;
    equal_on_the_host(&on_the_host(&[], grid), 1e-4);
}

/// Of five blocks two, those that fit, and all: with inputs on the host, computed again or not, updated here or there.
#[test]
fn resident_blocks_train_alike() {
    let grid = r#"[[grid]]
"offload.strategy" = "none"
[[grid]]
"offload.strategy" = ["naive", "overlap"]
"offload.resident_blocks" = [2, "auto"]
"offload.optimizer" = ["device", "host"]
"checkpoint.blocks" = [0, 1]
[[grid]]
"offload.strategy" = "overlap"
"offload.resident_blocks" = 2
"offload.activations" = "host"
"checkpoint.blocks" = [0, 1]
"#;
    equal_on_the_host(&on_the_host(&[], grid), 1e-4);
    equal_on_the_host(
        &on_the_host(&[("accumulation_steps = 2\n", ""), ("clip_norm = 0.5\n", "")], grid),
        1e-4,
    );
}

/// As many blocks as the limit has room for by the estimate; the row says how many.
#[test]
fn resident_blocks_are_as_many_as_fit() {
    let grid = "[measure]\nrepeats = 1\nwarmup = 1\nsteps = 2\nmemory_limit = \"LIMIT\"\n[offload]\nstrategy = \"overlap\"\n\
                resident_blocks = \"auto\"\n[grid]\n\"checkpoint.blocks\" = [0, 1]\n";
    let measure = "[measure]\nrepeats = 1\nwarmup = 1\nsteps = 4\n";
    let sizes =
        [("hidden_size = 32", "hidden_size = 128"), ("intermediate_size = 64", "intermediate_size = 512")];
    let counts = |limit: &str| -> Vec<u64> {
        let place =
            Place::new(&on_the_host(&[sizes[0], sizes[1], (measure, "")], &grid.replace("LIMIT", limit)));
        place.runner(&["run", "recipe.toml"]).exits(0);
        let rows = place.rows();
        for row in &rows {
            let estimate = estimated(row);
            let measured = row["measurement"]["memory"]["live_peak"].as_f64().expect("bytes");
            assert!((0.75..1.25).contains(&(estimate / measured)), "{estimate} {measured} {}", row["cell"]);
            assert_eq!(row["cell"]["offload"]["resident_blocks"], "auto");
        }
        rows.iter().map(|row| row["measurement"]["resident_blocks"].as_u64().expect("a number")).collect()
    };
    assert_eq!(counts("1 GiB"), [5, 5]);
    let few = counts("22 MiB");
    assert!(few.iter().all(|count| (1..5).contains(count)), "{few:?}");
}

#[test]
fn what_has_no_effect_is_refused() {
    let grid = RECIPE.find("[grid]").expect("a grid");
    let with = |section: &str| format!("{}[offload]\n{section}\n", &RECIPE[..grid]);
    for (section, reason) in [
        ("strategy = \"function\"\nbuffers = 2", "`buffers` goes with offload.strategy"),
        ("strategy = \"overlap\"\nbuffers = 5", "must be at most 4, not 5"),
        ("strategy = \"overlapped\"", "overlap"),
        ("resident_blocks = 1", "has no effect with offload.strategy"),
        ("strategy = \"naive\"\nresident_blocks = 6", "resident_blocks = 6, and the network has 5 blocks"),
        ("strategy = \"naive\"\nresident_blocks = \"all\"", "auto"),
        ("strategy = \"overlap\"\nbufers = 3", "buffers"),
        ("activations = \"host\"", "keep more than their input"),
        ("strategy = \"checkpointed\"\nactivations = \"host\"", "the general checkpoint operator keeps"),
    ] {
        Place::new(&with(section)).runner(&["check", "recipe.toml"]).exits(2).says(&[reason]);
    }
    let sgd = with("optimizer = \"host\"").replace("adamw", "sgd");
    Place::new(&sgd).runner(&["check", "recipe.toml"]).exits(2).says(&["runs AdamW on the host"]);
    let place = Place::new(crate::place::TINY);
    place.write("swiglu.toml", &format!("{}[offload]\nstrategy = \"naive\"\n", crate::place::TINY));
    place.runner(&["check", "swiglu.toml"]).exits(2).says(&["the swiglu network has none"]);
}

/// What the host cannot hold is a row that says how much it was, before anything is allocated.
#[test]
fn a_host_that_is_too_small_is_told() {
    let grid = "[offload]\nstrategy = \"overlap\"\noptimizer = \"host\"\n";
    let large =
        [("hidden_size = 32", "hidden_size = 32768"), ("num_hidden_layers = 5", "num_hidden_layers = 9999")];
    let place = Place::new(&on_the_host(&large, grid));
    place.runner(&["run", "recipe.toml"]).exits(42);
    let row = place.rows().remove(0);
    let reason = row["reason"].as_str().expect("a reason");
    assert!(reason.contains("TiB are needed") && reason.contains("take a smaller model"), "{reason}");
}

/// On the CPU every buffer is ordinary memory: what is measured is what was estimated, but for biases and
/// norms.
#[test]
fn the_host_holds_what_was_estimated() {
    let sizes =
        [("hidden_size = 32", "hidden_size = 128"), ("intermediate_size = 64", "intermediate_size = 512")];
    let grid = r#"[[grid]]
"offload.strategy" = "overlap"
"offload.optimizer" = ["device", "host"]
"offload.activations" = ["device", "host"]
"train.accumulation_steps" = [1, 2]
"offload.resident_blocks" = [0, 3]
"#;
    let place = Place::new(&on_the_host(&[sizes[0], sizes[1], ("accumulation_steps = 2\n", "")], grid));
    place.runner(&["run", "recipe.toml"]).exits(0);
    for row in place.rows() {
        let estimate = row["estimate"]["host"].as_f64().expect("bytes");
        let measured = row["measurement"]["memory"]["host"].as_f64().expect("bytes");
        assert!((0.97..1.03).contains(&(estimate / measured)), "{estimate} {measured} {}", row["cell"]);
        let estimate = estimated(&row);
        let measured = row["measurement"]["memory"]["live_peak"].as_f64().expect("bytes");
        // Of a network this small the graph itself is an eighth.
        assert!((0.75..1.25).contains(&(estimate / measured)), "{estimate} {measured} {}", row["cell"]);
        let update = &row["measurement"]["host_update"]["median"];
        assert_eq!(update.as_f64().is_some_and(|s| s > 0.0), row["cell"]["offload"]["optimizer"] == "host");
    }
}

#[test]
fn verify_takes_a_strategy() {
    let place = Place::new(RECIPE);
    let folder = fixture("gpt2");
    let overlap = ["verify", &folder, "--set", "offload.strategy=overlap", "--set", "offload.optimizer=host"];
    place.runner(&overlap).exits(0).says(&["quantities pass"]);
    let gptj = fixture("gptj");
    place.runner(&["verify", &gptj, "--set", "offload.strategy=overlap"]).exits(0).says(&["quantities pass"]);
    let args = ["verify", &folder, "--set", "offload.activations=host"];
    place.runner(&args).exits(2).says(&["keep more than their input"]);
}

//! Replicas that divide optimizer state, gradients and weights among them: each has its part in memory, as estimated.

use serde_json::Value;

use crate::place::{Place, estimated};
use crate::ranks::setting;
use crate::zero::{TRAINED, mean, shard};

/// With AdamW there are two moments more than with SGD, and nothing else.
#[test]
fn a_rank_keeps_its_part_of_state_gradients_and_weights() {
    let text = TRAINED
        .replace("hidden_size = 32", "hidden_size = 128")
        .replace("num_hidden_layers = 3", "num_hidden_layers = 8")
        .replace("seq_len = 32", "seq_len = 8")
        .replace("steps = 50", "steps = 2");
    let grid = "[parallel]\ndata = 4\n[grid]\n\
                \"parallel.shard\" = [\"none\", \"optimizer\", \"gradients\", \"weights\"]\n\
                \"train.optimizer.kind\" = [\"sgd\", \"adamw\"]\n";
    let place = Place::new(&format!("{text}{grid}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["8 measured"]);
    let rows = place.rows();
    let peak = |stage: &str, optimizer: &str| {
        let is =
            |row: &&Value| shard(row) == stage && setting(row, "train", "optimizer")["kind"] == optimizer;
        mean(rows.iter().find(is).expect("a row"), "/memory/live_peak")
    };
    let all = f64::from(8 * (12 * 128 * 128 + 13 * 128) + 300 * 128 + 32 * 128 + 256);
    for stage in ["none", "optimizer", "gradients", "weights"] {
        let state = peak(stage, "adamw") - peak(stage, "sgd");
        let expected = if stage == "none" { 8.0 * all } else { 8.0 * all / 4.0 };
        // Messages of ranks that are ahead wait in memory.
        assert!((state / expected - 1.0).abs() < 0.25, "{stage}: {state} bytes, by the formula {expected}");
    }
    let peaks = ["none", "optimizer", "gradients", "weights"].map(|stage| peak(stage, "adamw"));
    assert!(peaks.windows(2).all(|pair| pair[1] < 0.9 * pair[0]), "each stage takes less memory: {peaks:?}");
    for row in rows.iter().filter(|row| shard(row) != "none") {
        let (measured, estimate) = (mean(row, "/memory/live_peak"), estimated(row));
        let apart = (measured / estimate - 1.0).abs();
        assert!(apart < 0.2, "{}: {measured} bytes, estimated {estimate}", shard(row));
    }
}

/// With a large embedding an update is the highest moment: its weights come from all ranks, and are put together.
#[test]
fn an_update_takes_the_memory_that_was_estimated() {
    let text = TRAINED.replace("vocab_size = 300", "vocab_size = 20000").replace("steps = 50", "steps = 2");
    let (before, after) = text.split_once("[data]").expect("a section");
    let text = format!("{before}{}", &after[after.find("[train]").expect("a section")..]);
    let grid = "[parallel]\ndata = 2\nshard = \"weights\"\n[grid]\n\
                offload = [{}, { strategy = \"overlap\", optimizer = \"host\" }]\n";
    let place = Place::new(&format!("{text}{grid}").replace("accumulation_steps = 2\n", ""));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["2 measured"]);
    for row in place.rows() {
        let (measured, estimate) = (mean(&row, "/memory/live_peak"), estimated(&row));
        let of = measured / estimate;
        assert!(
            (of - 1.0).abs() < 0.05,
            "{}: {measured} bytes, estimated {estimate}",
            row["cell"]["offload"]
        );
    }
}

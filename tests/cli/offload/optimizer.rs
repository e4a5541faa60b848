//! The optimizer on the host, its state in memory and on disk.

use serde_json::Value;

use super::{equal_on_the_host, on_the_host};
use crate::place::{Ended, Place, SMALL, changed};

const HOST: &str = r#"[[grid]]
"offload.strategy" = "none"
[[grid]]
"offload.strategy" = ["none", "naive", "checkpointed", "function", "overlap"]
"offload.optimizer" = "host"
"#;

/// Two micro-batches a step, and clipped gradients: updates begin after the last gradient.
#[test]
fn the_optimizer_on_the_host_trains_alike_with_clipping_and_accumulation() {
    equal_on_the_host(&on_the_host(&[], HOST), 1e-4);
}

/// Updates begin as gradients arrive, under a schedule.
#[test]
fn the_optimizer_on_the_host_trains_alike_behind_backward() {
    let schedule = ("clip_norm = 0.5", "schedule = { kind = \"cosine\", warmup_steps = 2 }");
    equal_on_the_host(&on_the_host(&[schedule], HOST), 1e-4);
}

/// Gradients take the place of the weights.
#[test]
fn the_optimizer_on_the_host_trains_alike_without_accumulation() {
    let once = ("accumulation_steps = 2\n", "");
    equal_on_the_host(&on_the_host(&[once], HOST), 1e-4);
    equal_on_the_host(&on_the_host(&[once, ("clip_norm = 0.5\n", "")], HOST), 1e-4);
}

/// The weights that move are fp32, as those of the device are.
#[test]
fn the_optimizer_on_the_host_trains_alike_under_autocast() {
    let autocast = ("[measure]", "[precision]\ncompute = \"bf16\"\nautocast = true\n[measure]");
    let grid = "[grid]\n\"offload.strategy\" = [\"none\", \"overlap\"]\n\"offload.optimizer\" = [\"device\", \"host\"]\n";
    equal_on_the_host(&on_the_host(&[autocast], grid), 1e-3);
}

/// Files hold the same numbers as memory, count as none of the host's, and are gone with the process.
#[test]
fn state_on_disk_trains_alike() {
    let recipe = changed(SMALL, &[("steps = 2", "steps = 6")])
        + "[offload]\noptimizer = \"host\"\n[grid]\n\"offload.strategy\" = [\"none\", \"overlap\"]\n\
           \"offload.optimizer_state\" = [\"memory\", \"disk\"]\n";
    let place = Place::new(&recipe);
    let cache = place.path().join("cache");
    let run = |cache: &std::path::Path| {
        Ended::from(
            place.command(&["run", "recipe.toml", "--force"]).env("RUNNER_CACHE", cache).output().unwrap(),
        )
    };
    run(&cache).exits(0).says(&["4 measured"]);
    let rows = place.rows();
    let on_disk = |row: &Value| row["cell"]["offload"]["optimizer_state"] == "disk";
    for row in rows.iter().filter(|row| on_disk(row)) {
        let same = |other: &&Value| {
            !on_disk(other) && other["cell"]["offload"]["strategy"] == row["cell"]["offload"]["strategy"]
        };
        let other = rows.iter().find(same).expect("a row with its state in memory");
        assert_eq!(row["measurement"]["loss"], other["measurement"]["loss"]);
        let number = |row: &Value, key: &str| row.pointer(key).and_then(Value::as_f64);
        let [host, of_memory] = [row, other].map(|row| number(row, "/estimate/host").expect("bytes"));
        let disk = number(row, "/measurement/memory/disk").expect("bytes");
        // 12 bytes a parameter, but for biases.
        assert!((0.95..1.05).contains(&((of_memory - host) / disk)), "{of_memory} {host} {disk}");
        assert!(number(row, "/measurement/disk_rate").is_some_and(|rate| rate > 0.0));
        assert!(number(other, "/measurement/disk_rate").is_none());
    }
    assert_eq!(std::fs::read_dir(cache.join("state")).expect("a folder").count(), 0, "files have no name");
    // A folder that cannot be made has no room either.
    place.write("taken", "");
    run(&place.path().join("taken")).exits(1).says(&["the disk has no", "RUNNER_CACHE"]);
}

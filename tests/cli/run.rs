//! `runner run` through the binary: results, resume, failures, interruption, concurrency.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::cuda::need_gpu;
use crate::place::{Ended, Place, TINY, files, runner, slow};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Every file below a folder with its content.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for path in files(folder) {
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let content = std::fs::read(&path).expect("a result can be read");
            all.insert(path, content);
        }
    }
    all
}

fn send(signal: Signal, pid: u32) {
    kill(Pid::from_raw(pid as i32), signal).expect("the process is there");
}

/// Processes of `runner cell` that `parent` started.
pub fn children(parent: u32) -> Vec<u32> {
    std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter(|pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.split(|byte| *byte == 0).nth(1) == Some(b"cell")
        })
        .collect()
}

pub fn alive(pid: u32) -> bool {
    // A zombie is dead too: its parent has only not asked yet.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_run_leaves_rows_tables_charts_and_reports() {
    let place = Place::new(TINY);
    let ended = place.runner(&["run", "recipe.toml"]).exits(0).says(&["4 measured"]);
    assert!(ended.out.contains("baseline"), "the table compares with the baseline:\n{}", ended.out);
    assert!(
        !ended.out.contains('\u{1b}') && !ended.err.contains('\u{1b}'),
        "no control characters in a pipe"
    );
    let results = place.results();
    for file in ["table.csv", "table.parquet", "table.md", "report.html", "report.pdf", "recipe.toml"] {
        let size = std::fs::metadata(results.join(file)).map(|m| m.len()).unwrap_or(0);
        assert!(size > 100, "{file} has {size} bytes");
        assert!(
            file == "recipe.toml" || ended.out.contains(file),
            "{file} is named in the output:\n{}",
            ended.out
        );
    }
    let charts = files(&results.join("charts"));
    for kind in ["svg", "png"] {
        let count = charts.iter().filter(|path| path.extension().is_some_and(|e| e == kind)).count();
        assert!(count >= 3, "{count} {kind} charts: {charts:?}");
    }
    assert_eq!(place.count("ok"), 4);
    for row in place.rows() {
        let m = &row["measurement"];
        assert_eq!(m["forward"]["seconds"].as_array().map(Vec::len), Some(3));
        assert_eq!(m["loss"].as_array().map(Vec::len), Some(4), "warm-up and measured steps");
        assert!(m["loss"][3].as_f64() < m["loss"][0].as_f64(), "training lowers the loss: {}", m["loss"]);
        let (low, mid, high) = (&m["backward"]["min"], &m["backward"]["median"], &m["backward"]["max"]);
        assert!(low.as_f64() <= mid.as_f64() && mid.as_f64() <= high.as_f64());
        assert!(m["memory"]["live_peak"].as_u64() > Some(2 * 3 * 32 * 64 * 4), "weights alone are 48 KiB");
    }
}

#[test]
fn a_second_run_measures_nothing_and_writes_the_same_report() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let first = contents(&place.results());
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["0 measured, 4 finished earlier"]);
    place.runner(&["report", place.results().to_str().expect("a UTF-8 path")]).exits(0);
    let second = contents(&place.results());
    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    for (path, content) in &first {
        assert!(*content == second[path], "{} changed", path.display());
    }
}

#[test]
fn force_measures_again() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    place.runner(&["run", "recipe.toml", "--force", "--cell", "2"]).exits(0).says(&["1 measured"]);
    place.runner(&["run", "recipe.toml", "--force"]).exits(0).says(&["4 measured"]);
}

#[test]
fn cells_and_shards_choose_what_runs() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml", "--cell", "5"]).exits(1).says(&["there is no cell 5"]);
    place
        .runner(&["run", "recipe.toml", "--cell", "3", "--dry-run"])
        .exits(0)
        .says(&["would run 1 of 4 cells: 3"]);
    assert!(!place.path().join("results").exists(), "a dry run writes nothing");
    place.runner(&["run", "recipe.toml", "--shard", "2/4"]).exits(0).says(&["1 measured"]);
    place.runner(&["run", "recipe.toml", "--dry-run"]).exits(0).says(&["would run 3 of 4 cells: 1, 3, 4"]);
    place.runner(&["run", "recipe.toml", "--shard", "5/4"]).exits(1).says(&["--shard i/n"]);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["3 measured, 1 finished earlier"]);
}

/// The levels change what is kept, not what is computed.
#[test]
fn every_level_and_plain_autodiff_train_alike() {
    let grid = TINY.replace("\"checkpoint.level\" = [0, 1]", "\"checkpoint.level\" = [0, 0.5, 1]");
    let recipe = format!("{}\n[[grid]]\n\"ops.swiglu\" = \"plain\"\n", grid.replace("[grid]", "[[grid]]"));
    let place = Place::new(&recipe.replace("[2, 4]", "[2]"));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let losses: Vec<Vec<f64>> = place
        .rows()
        .iter()
        .map(|row| serde_json::from_value(row["measurement"]["loss"].clone()).expect("losses are numbers"))
        .collect();
    assert_eq!(losses.len(), 4);
    for other in &losses[1..] {
        for (a, b) in losses[0].iter().zip(other) {
            assert!((a - b).abs() < 1e-5 * a, "{losses:?}");
        }
    }
}

#[test]
fn the_estimate_is_within_five_percent_of_the_measured_peak() {
    let recipe = r#"title = "estimate"
[model]
kind = "swiglu"
hidden_size = 192
intermediate_size = 640
num_hidden_layers = 3
[train]
batch_size = 8
seq_len = 128
optimizer = { kind = "adamw" }
[measure]
warmup = 0
steps = 2
[[grid]]
"checkpoint.level" = [0, 0.5, 1]
"train.batch_size" = [1, 8]
[[grid]]
"ops.swiglu" = "plain"
[[grid]]
"train.accumulation_steps" = [2, 5]
[[grid]]
"precision.compute" = "bf16"
"train.optimizer" = [{ kind = "sgd" }, { kind = "none" }]
"#;
    let place = Place::new(recipe);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    assert_eq!(rows.len(), 11);
    for row in rows {
        let parts = ["weights", "gradients", "optimizer", "activations", "workspace"];
        let estimate: u64 = parts.iter().map(|part| row["estimate"][part].as_u64().expect("bytes")).sum();
        let measured = row["measurement"]["memory"]["live_peak"].as_u64().expect("bytes");
        let ratio = estimate as f64 / measured as f64;
        assert!((0.95..1.05).contains(&ratio), "estimate/measured = {ratio:.3} for {}", row["cell"]);
    }
}

#[test]
fn out_of_memory_is_a_row_and_the_others_run() {
    let limited = TINY.replace("steps = 3", "steps = 3\nmemory_limit = \"200 KiB\"");
    let place = Place::new(&limited);
    place.runner(&["run", "recipe.toml"]).exits(42).says(&[
        "1 out of memory",
        "oom",
        "would have passed the limit of 204800 bytes",
    ]);
    assert_eq!((place.count("ok"), place.count("oom")), (3, 1));
    place.runner(&["run", "recipe.toml"]).exits(42).says(&["0 measured"]);
    place.runner(&["run", "recipe.toml", "--retry-failed"]).exits(42).says(&["1 measured"]);
}

#[test]
fn a_diverging_cell_is_a_row_and_the_others_run() {
    let grid = TINY.replace(
        "\"train.batch_size\" = [2, 4]",
        "\"train.optimizer\" = [{ kind = \"sgd\", lr = 1e30 }, { kind = \"sgd\", lr = 0.1 }]",
    );
    let place = Place::new(&grid);
    place.runner(&["run", "recipe.toml"]).exits(1).says(&["2 diverged", "step 2"]);
    assert_eq!((place.count("ok"), place.count("diverged")), (2, 2));
    let place = Place::new(&grid);
    place.runner(&["run", "recipe.toml", "--fail-fast"]).exits(1).says(&["1 measured", "3 still to measure"]);
}

#[test]
fn a_cell_past_its_time_limit_is_a_row() {
    let place =
        Place::new(&slow().replace("warmup = 1", "warmup = 1\ntimeout = 0.5").replace("[2, 4]", "[2]"));
    place.runner(&["run", "recipe.toml"]).exits(1).says(&["time limit", "measure.timeout"]);
    assert_eq!(place.count("failed"), 2);
}

#[test]
fn a_killed_cell_is_a_row_and_the_others_run() {
    let recipe = slow().replace("warmup = 1", "warmup = 1\ntimeout = 3").replace("[2, 4]", "[2]");
    let place = Place::new(&recipe);
    let run = place.start(&["run", "recipe.toml"]);
    let mut cells = Vec::new();
    place.wait("the first cell", || {
        cells = children(run.id());
        !cells.is_empty()
    });
    send(Signal::SIGKILL, cells[0]);
    let ended = Ended::from(run.wait_with_output().expect("the run ends"));
    ended.exits(1).says(&["SIGKILL", "time limit"]);
    assert_eq!(place.count("failed"), 2, "the killed cell and the one that ran into its time limit");
}

#[test]
fn ctrl_c_stops_cleanly_and_keeps_finished_rows() {
    let recipe = TINY
        .replace("steps = 3", "steps = 3\n")
        .replace("\"train.batch_size\" = [2, 4]", "\"measure.steps\" = [3, 1000000]");
    let place = Place::new(&recipe);
    let run = place.start(&["run", "recipe.toml"]);
    let mut cells = Vec::new();
    place.wait("two finished rows and a running cell", || {
        cells = children(run.id());
        place.row_files().len() == 2 && !cells.is_empty()
    });
    let before = contents(&place.results().join("rows"));
    send(Signal::SIGINT, run.id());
    let ended = Ended::from(run.wait_with_output().expect("the run ends"));
    ended.exits(130).says(&["2 measured", "interrupted"]);
    assert_eq!(contents(&place.results().join("rows")), before, "no row is lost and none is made up");
    place.wait("the cell's end", || !cells.iter().any(|pid| alive(*pid)));
}

#[test]
fn a_killed_run_leaves_no_process_and_resumes() {
    let recipe = TINY.replace("\"train.batch_size\" = [2, 4]", "\"measure.steps\" = [3, 1000000]");
    let place = Place::new(&recipe);
    let mut run = place.start(&["run", "recipe.toml"]);
    let mut cells = Vec::new();
    place.wait("two finished rows and a running cell", || {
        cells = children(run.id());
        place.row_files().len() == 2 && !cells.is_empty()
    });
    let before = contents(&place.results().join("rows"));
    send(Signal::SIGKILL, run.id());
    run.wait().expect("the run is dead");
    place.wait("the cell to end itself", || !cells.iter().any(|pid| alive(*pid)));
    // The same cells again, the unfinished ones small enough to end.
    place.write("recipe.toml", &recipe.replace("1000000", "4"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["2 measured, 2 finished earlier"]);
    let after = contents(&place.results().join("rows"));
    assert!(
        before.iter().all(|(path, content)| after.get(path) == Some(content)),
        "finished rows stay as they were"
    );
    assert_eq!(place.count("ok"), 4);
}

#[test]
fn two_runs_at_once_measure_each_cell_once() {
    let place = Place::new(TINY);
    let runs = [(); 2].map(|()| place.start(&["run", "recipe.toml"]));
    let mut measured = 0;
    for run in runs {
        let ended = Ended::from(run.wait_with_output().expect("the run ends")).exits(0);
        let line =
            ended.err.lines().find(|line| line.contains(" measured, ")).expect("a summary").to_string();
        measured += line.split(' ').next().and_then(|n| n.parse::<usize>().ok()).expect("a count");
    }
    assert_eq!(measured, 4);
    assert_eq!(place.count("ok"), 4);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["0 measured"]);
}

/// The same losses as a run that was not killed; the losses of a GPU are read a step late.
fn goes_on_from_its_state(device: &str) {
    let recipe = format!(
        "title = \"t\"\ndevice = \"{device}\"\n[model]\nkind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\n\
         num_hidden_layers = 1\nnum_attention_heads = 2\n[train]\nbatch_size = 2\nseq_len = 8\n\
         optimizer = {{ kind = \"adamw\", lr = 1e-3 }}\n[measure]\nwarmup = 1\nsteps = 600\n[save]\n\
         state = \"out/state\"\nevery = 20\n"
    );
    let [whole, killed] = [Place::new(&recipe), Place::new(&recipe)];
    let run = |place: &Place| {
        let arguments = ["run", "recipe.toml"];
        let on_cpu = device == "cpu";
        let mut run =
            if on_cpu { place.command(&arguments) } else { place.command_of(&runner(), &arguments) };
        run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts")
    };
    let ended = |run: Child| Ended::from(run.wait_with_output().expect("the run ends"));
    ended(run(&whole)).exits(0);
    let mut first = run(&killed);
    let mut cells = Vec::new();
    killed.wait("a state", || {
        cells = children(first.id());
        let mut states = std::fs::read_dir(killed.path().join("out/state")).into_iter().flatten().flatten();
        states.any(|state| state.file_name().to_string_lossy().starts_with("step-"))
    });
    send(Signal::SIGKILL, first.id());
    first.wait().expect("the run is dead");
    killed.wait("the cell to end itself", || !cells.iter().any(|pid| alive(*pid)));
    ended(run(&killed)).exits(0).says(&["1 measured"]);
    let measurement = |place: &Place| {
        let row = std::fs::read(&place.row_files()[0]).expect("a row");
        serde_json::from_slice::<serde_json::Value>(&row).expect("it is JSON")["measurement"].clone()
    };
    let [whole, killed] = [measurement(&whole), measurement(&killed)];
    assert_eq!(whole["loss"], killed["loss"]);
    assert!(whole["resumed"].is_null() && killed["resumed"][0].as_u64() >= Some(20), "{}", killed["resumed"]);
}

#[test]
fn a_killed_cell_goes_on_from_its_state() {
    goes_on_from_its_state("cpu");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_killed_cell_goes_on_from_its_state_on_a_gpu() {
    need_gpu();
    goes_on_from_its_state("cuda:0");
}

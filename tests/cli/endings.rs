//! How a cell or a run may end other than well: out of memory, diverged, too late, killed, interrupted; and
//! two runs at once.

use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cuda::need_gpu;
use crate::place::{Ended, Place, TINY, contents, slow};

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
    assert!(place.results().join("report.html").is_file(), "what is finished is reported");
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
         optimizer = {{ kind = \"adamw\", lr = 1e-3 }}\n[measure]\nrepeats = 1\nwarmup = 1\nsteps = 600\n[save]\n\
         state = \"out/state\"\nevery = 20\n"
    );
    let [whole, killed] = [Place::new(&recipe), Place::new(&recipe)];
    let run = |place: &Place| {
        let arguments = ["run", "recipe.toml"];
        let on_cpu = device == "cpu";
        let mut run = if on_cpu { place.command(&arguments) } else { place.command_on_gpu(&arguments) };
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

#[test]
fn more_threads_than_a_machine_can_run_are_refused_at_once() {
    let place = Place::new(TINY);
    let output = place.command(&["run", "recipe.toml"]).env("RAYON_NUM_THREADS", "1000000").output();
    let ended = Ended::from(output.expect("the binary starts"));
    ended.exits(1).says(&["RAYON_NUM_THREADS asks for 1000000 threads", "set RAYON_NUM_THREADS to"]);
    assert!(!place.path().join("results").exists(), "nothing runs");
}

//! `[log]`: the steps of each process in files, while it runs.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::place::{Ended, Place, SMALL, TINY, changed, files, losses};

const LOG: &str = "[log]\nfolder = \"logs\"\n";

/// The lines of the log of a row's process.
fn lines(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log.join("steps.jsonl")).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// Each row has a folder of its name, with the losses of the row and a file for TensorBoard.
fn logs_are_those_of_the_rows(place: &Place) {
    let logs = place.path().join("logs");
    assert_eq!(files(&logs).len(), place.row_files().len());
    for (path, row) in place.row_files().iter().zip(place.rows()) {
        let log = logs.join(path.file_stem().expect("a name"));
        let lines = lines(&log);
        let logged: Vec<f64> = lines.iter().map(|line| line["loss"].as_f64().expect("a loss")).collect();
        assert_eq!(logged, losses(&row), "{}", log.display());
        assert!(lines.iter().zip(1..).all(|(line, step)| line["step"] == step), "{lines:?}");
        let last = lines.last().expect("a step");
        assert!(
            last["tokens_per_second"].as_f64() > Some(0.0) && last["memory_bytes"].as_u64() > Some(1000),
            "{last}"
        );
        assert_eq!(
            files(&log).iter().filter(|path| path.to_string_lossy().contains(".tfevents.")).count(),
            1
        );
    }
}

#[test]
fn each_process_has_a_log_with_the_losses_of_its_row() {
    let recipe = changed(TINY, &[("repeats = 1", "repeats = 2"), ("\"checkpoint.level\" = [0, 1]\n", "")]);
    let place = Place::new(&format!("{recipe}{LOG}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["4 measured"]);
    logs_are_those_of_the_rows(&place);
    // A log is not of the cell: without one its rows count.
    place.write("recipe.toml", &recipe);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["0 measured"]);
    // Another run of a process takes the place of the earlier one.
    place
        .runner(&["run", "recipe.toml", "--force", "--set", "log.folder=logs"])
        .exits(0)
        .says(&["4 measured"]);
    logs_are_those_of_the_rows(&place);
}

#[test]
fn the_log_of_ranks_has_the_sum_of_their_losses_and_the_norm() {
    let recipe = changed(SMALL, &[("seq_len = 16", "seq_len = 16\nclip_norm = 0.5")]);
    let place = Place::new(&format!("{recipe}[parallel]\ndata = 2\n{LOG}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    logs_are_those_of_the_rows(&place);
    let log = lines(&files(&place.path().join("logs"))[0]);
    let norm = |line: &Value| line["gradient_norm"].as_f64().expect("a norm");
    assert!(log.iter().all(|line| norm(line) > 0.5 && line["learning_rate"] == 1e-3), "{log:?}");
}

#[test]
fn a_log_that_cannot_be_written_is_refused_before_anything_runs() {
    let place = Place::new(&format!("{TINY}{LOG}"));
    place.write("logs", "a file is in the way");
    place.runner(&["run", "recipe.toml"]).exits(1).says(&["nothing was measured", "logs", "log.folder"]);
    assert_eq!(place.rows().len(), 0);
    let place = Place::new(&format!("{TINY}[log]\nfolder = \"logs/{{no.key}}\"\n"));
    place.runner(&["check", "recipe.toml"]).exits(2).says(&["recipe.toml:19", "no.key"]);
    let place = Place::new(&format!("{TINY}[log]\n"));
    place.runner(&["check", "recipe.toml"]).exits(2).says(&["folder"]);
}

#[test]
fn a_full_disk_ends_the_log_and_not_the_run() {
    let place = Place::new(&changed(TINY, &[("[2, 4]", "[2]"), ("[0, 1]", "[0]")]));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let log = place.path().join("logs").join(place.row_files()[0].file_stem().expect("a name"));
    std::fs::create_dir_all(&log).unwrap();
    symlink("/dev/full", log.join("steps.jsonl")).unwrap();
    let run = ["run", "recipe.toml", "--set", "log.folder=logs"];
    place
        .runner(&[&run[..], &["--force"]].concat())
        .exits(1)
        .says(&["the log cannot be written", "1 not saved"]);
    let row = &place.rows()[0];
    let why = row["measurement"]["unsaved"][0].as_str().expect("a reason");
    assert!(row["status"] == "ok" && why.contains("No space left"), "{why}");
    std::fs::remove_file(log.join("steps.jsonl")).unwrap();
    place.runner(&[&run[..], &["--retry-failed"]].concat()).exits(0).says(&["1 measured"]);
    logs_are_those_of_the_rows(&place);
}

/// The state is saved in the middle, though its time has not come, and the log goes on behind it.
#[test]
fn ctrl_c_saves_the_state_and_the_log_goes_on_from_it() {
    let recipe = changed(SMALL, &[("\nsteps = 2", "\nsteps = 1500")]);
    let place = Place::new(&format!("{recipe}[save]\nstate = \"out\"\nevery = 100000\n{LOG}"));
    let run = place.start(&["run", "recipe.toml"]);
    let logs = place.path().join("logs");
    let is_begun =
        |log: &PathBuf| std::fs::metadata(log.join("steps.jsonl")).is_ok_and(|file| file.len() > 0);
    place.wait("a step", || files(&logs).iter().any(is_begun));
    kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).expect("the run is there");
    let ended = Ended::from(run.wait_with_output().expect("the run ends"));
    ended.exits(130).says(&["its state after step", "another run goes on from it", "interrupted"]);
    assert_eq!((place.rows().len(), files(&place.path().join("out")).len()), (0, 1));
    let stopped = lines(&files(&logs)[0]).len();
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    assert_eq!(place.rows()[0]["measurement"]["resumed"][0], stopped);
    logs_are_those_of_the_rows(&place);
}

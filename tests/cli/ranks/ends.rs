//! Every way in which ranks end.

use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::TRAINED;
use crate::endings::{alive, children};
use crate::faults::{deaths, sweep};
use crate::place::{Place, changed};

/// Cells of four ranks.
fn four(more: &str) -> String {
    TRAINED.split("[save]").next().expect("a beginning").to_string() + "[parallel]\ndata = 4\n" + more
}

/// Lets `end` do its work once the runner has so many ranks, and gives the row and the seconds from then to the runner's end.
pub fn ended_of(place: &Place, mut run: Child, count: usize, end: impl Fn(&[u32])) -> (Value, f64) {
    let runner = run.id();
    place.wait("all ranks", || children(runner).len() == count);
    let ranks = children(runner);
    end(&ranks);
    let start = Instant::now();
    let code = run.wait().expect("it ends");
    let took = start.elapsed().as_secs_f64();
    assert_eq!(code.code(), Some(1));
    place.wait("no rank is left", || ranks.iter().all(|rank| !alive(*rank)));
    (place.rows().remove(0), took)
}

/// Endless ones.
fn endless(more: &str) -> String {
    changed(&four(more), &[("steps = 50", "steps = 1000000")])
}

#[test]
fn a_killed_rank_ends_the_cell_with_a_row_that_names_it() {
    sweep(&four(""), &deaths(2, 1));
}

/// A hundred rows.
#[test]
#[ignore = "takes some minutes"]
fn each_rank_is_killed_at_25_moments() {
    sweep(&four(""), &deaths(25, 2));
}

#[test]
fn a_hung_rank_ends_the_cell_with_a_row_that_names_it() {
    let place = Place::new(&endless("timeout = 2.0\n"));
    let (row, took) = ended_of(&place, place.start(&["run", "recipe.toml"]), 4, |ranks| {
        std::thread::sleep(Duration::from_millis(1500));
        kill(Pid::from_raw(ranks[2] as i32), Signal::SIGSTOP).expect("it runs");
    });
    assert!(took < 15.0, "{took} s");
    let reason = row["reason"].as_str().expect("a reason");
    assert!(
        reason.starts_with("rank 2 of 4 does not answer") && reason.contains("parallel.timeout"),
        "{reason}"
    );
}

#[test]
fn a_rank_without_memory_ends_the_cell_as_out_of_memory_and_the_sweep_goes_on() {
    let text = changed(&four(""), &[("steps = 50", "steps = 2")]);
    let place = Place::new(&format!("{text}[grid]\n\"measure.memory_limit\" = [\"1 MB\", \"1 GB\"]\n"));
    place.runner(&["run", "recipe.toml"]).exits(42).says(&["2 measured", "1 out of memory"]);
    let rows = place.rows();
    let reason = rows.iter().find_map(|row| row["reason"].as_str()).expect("a reason");
    assert!(reason.starts_with("rank ") && reason.contains(" of 4: out of memory"), "{reason}");
}

#[test]
fn interrupting_the_run_ends_every_rank() {
    let place = Place::new(&endless(""));
    let mut run = place.start(&["run", "recipe.toml"]);
    place.wait("four ranks", || children(run.id()).len() == 4);
    let ranks = children(run.id());
    kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).expect("it runs");
    assert_eq!(run.wait().expect("it ends").code(), Some(130));
    place.wait("no rank is left", || ranks.iter().all(|rank| !alive(*rank)));
    assert!(place.row_files().is_empty());
    // The runner itself killed: the ranks see that it is gone.
    let mut run = place.start(&["run", "recipe.toml"]);
    place.wait("four ranks", || children(run.id()).len() == 4);
    let ranks = children(run.id());
    kill(Pid::from_raw(run.id() as i32), Signal::SIGKILL).expect("it runs");
    run.wait().expect("it ends");
    place.wait("no rank is left", || ranks.iter().all(|rank| !alive(*rank)));
}

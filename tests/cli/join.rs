//! `runner join` as launchers start it, by their variables: one host's ranks, and what they do not start.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::endings::{alive, children};
use crate::place::{Ended, Place, TINY, changed, losses};

/// Cells of one to four ranks.
pub const CELLS: &str = r#"title = "joined"
device = "cpu"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
max_position_embeddings = 64
[train]
batch_size = 4
seq_len = 32
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 0
steps = 3
[grid]
"parallel.data" = [1, 2, 4]
"#;

/// The variables that torchrun sets in one of four processes. `port`: of a start of its own.
fn torchrun(rank: usize, port: u32) -> Vec<(&'static str, String)> {
    vec![
        ("RANK", rank.to_string()),
        ("LOCAL_RANK", rank.to_string()),
        ("WORLD_SIZE", "4".into()),
        ("LOCAL_WORLD_SIZE", "4".into()),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", port.to_string()),
        ("TORCHELASTIC_RUN_ID", std::process::id().to_string()),
    ]
}

/// The same of srun.
fn srun(rank: usize, job: u32) -> Vec<(&'static str, String)> {
    vec![
        ("SLURM_PROCID", rank.to_string()),
        ("SLURM_LOCALID", rank.to_string()),
        ("SLURM_NTASKS", "4".into()),
        ("SLURM_JOB_ID", format!("{}{job}", std::process::id())),
        ("SLURM_STEP_ID", "0".into()),
        ("SLURM_STEP_NUM_NODES", "1".into()),
    ]
}

pub type Variables = fn(usize, u32) -> Vec<(&'static str, String)>;

/// Four processes of `runner join`, as a launcher starts them.
pub fn joined(place: &Place, of: Variables, start: u32) -> Vec<Child> {
    let process = |rank| {
        let mut command = place.command(&["join", "recipe.toml"]);
        command.envs(of(rank, start)).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary starts")
    };
    (0..4).map(process).collect()
}

pub fn ended(processes: Vec<Child>) -> Vec<Ended> {
    processes.into_iter().map(|process| Ended::from(process.wait_with_output().expect("it ends"))).collect()
}

pub fn send(signal: Signal, pid: u32) {
    kill(Pid::from_raw(pid as i32), signal).expect("the process is there");
}

/// The cell's process of each of these.
pub fn ranks(place: &Place, processes: &[Child]) -> Vec<u32> {
    let mut ranks = Vec::new();
    place.wait("four ranks", || {
        ranks = processes.iter().flat_map(|process| children(process.id())).collect();
        ranks.len() == 4
    });
    ranks
}

#[test]
fn ranks_that_a_launcher_starts_train_as_those_of_the_runner() {
    let alone = Place::new(CELLS);
    alone.runner(&["run", "recipe.toml"]).exits(0).says(&["3 measured"]);
    for (of, start) in [(torchrun as Variables, 1), (srun as Variables, 2)] {
        let place = Place::new(CELLS);
        let mut ends = ended(joined(&place, of, start));
        for follower in ends.drain(1..) {
            let follower = follower.exits(0);
            assert_eq!((follower.out.as_str(), follower.err.as_str()), ("", ""), "the first speaks for all");
        }
        ends.remove(0).exits(0).says(&["3 measured", "report.html"]);
        for (ours, reference) in place.rows().iter().zip(alone.rows()) {
            assert_eq!(ours["cell"], reference["cell"]);
            assert_eq!(losses(ours), losses(&reference), "the same bits");
        }
        // What is there is not measured again.
        let mut again = ended(joined(&place, of, start));
        again.remove(0).exits(0).says(&["0 measured, 3 finished earlier"]);
    }
}

/// Two endless cells of four ranks.
pub fn endless() -> String {
    changed(
        CELLS,
        &[("steps = 3", "steps = 1000000"), ("[1, 2, 4]", "[4]"), ("[grid]\n", "[grid]\nseed = [1, 2]\n")],
    )
}

#[test]
fn a_killed_rank_is_a_row_and_the_next_cell_runs() {
    let place = Place::new(&endless());
    let processes = joined(&place, torchrun, 3);
    let mut killed: Vec<u32> = Vec::new();
    for rank in [2, 0] {
        let mut now = ranks(&place, &processes);
        place.wait("another cell", || {
            now = ranks(&place, &processes);
            now.iter().all(|rank| !killed.contains(rank))
        });
        std::thread::sleep(Duration::from_millis(400));
        send(Signal::SIGKILL, now[rank]);
        place.wait("no rank is left", || now.iter().all(|rank| !alive(*rank)));
        killed.extend(now);
    }
    let mut ends = ended(processes);
    for follower in ends.drain(1..) {
        follower.exits(0);
    }
    ends.remove(0).exits(1).says(&["2 measured", "2 failed"]);
    let mut rows = place.rows();
    rows.sort_by_key(|row| row["cell"]["seed"].as_u64());
    for (row, rank) in rows.iter().zip([2, 0]) {
        let named = format!("rank {rank} of 4: killed by signal 9 (SIGKILL)");
        assert!(row["reason"].as_str().expect("a reason").starts_with(&named), "{}", row["reason"]);
    }
}

#[test]
fn a_process_that_is_gone_ends_its_cell_and_the_run() {
    let place = Place::new(&endless());
    let processes = joined(&place, srun, 4);
    let cells = ranks(&place, &processes);
    send(Signal::SIGKILL, processes[3].id());
    let start = Instant::now();
    let mut ends = ended(processes);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    ends.remove(0).exits(75).says(&["rank 3 of 4 is gone", "start all ranks again"]);
    let row = place.rows().remove(0);
    let reason = row["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("rank 3 of 4: its `runner join` has ended"), "{reason}");
    place.wait("no rank is left", || cells.iter().all(|rank| !alive(*rank)));
    assert_eq!(place.rows().len(), 1);

    // The first gone: the others see it.
    let mut processes = joined(&place, srun, 5);
    let cells = ranks(&place, &processes);
    send(Signal::SIGKILL, processes.remove(0).id());
    for follower in ended(processes) {
        follower.exits(1).says(&["rank 0 is gone"]);
    }
    place.wait("no rank is left", || cells.iter().all(|rank| !alive(*rank)));
}

#[test]
fn interrupting_all_leaves_no_row_and_no_process() {
    let place = Place::new(&endless());
    let processes = joined(&place, torchrun, 6);
    let cells = ranks(&place, &processes);
    // The first gets it last.
    processes.iter().rev().for_each(|process| send(Signal::SIGTERM, process.id()));
    for end in ended(processes) {
        end.exits(130);
    }
    assert!(place.row_files().is_empty());
    place.wait("no rank is left", || cells.iter().all(|rank| !alive(*rank)));
}

#[test]
fn several_processes_of_run_are_refused_with_the_line_that_is_meant() {
    let place = Place::new(TINY);
    for (of, lines) in [
        (
            torchrun as Variables,
            ["torchrun --no-python --nproc-per-node=4 runner join RECIPE", "WORLD_SIZE is 4"],
        ),
        (
            srun as Variables,
            ["srun --ntasks=4 runner join RECIPE", "sbatch --array=1-4 examples/cluster/slurm.sh"],
        ),
    ] {
        let run = |more: &[(&str, &str)], args: &[&str]| {
            let mut command = place.command(&[&["run", "recipe.toml", "--dry-run"][..], args].concat());
            command.envs(of(1, 7)).envs(more.iter().copied());
            Ended::from(command.output().expect("the binary starts"))
        };
        run(&[], &[]).exits(1).says(&lines);
        // A part of the cells each.
        run(&[], &["--shard", "2/4"]).exits(0).says(&["would run 1 of 4 cells: 2"]);
        run(&[], &["--shard", "5/9"]).exits(0).says(&["nothing to run", "none of 4 cells"]);
        run(&[], &["--shard", "2/4", "--cell", "3"]).exits(0).says(&["none of the chosen cells"]);
        let array =
            [("SLURM_ARRAY_TASK_ID", "1"), ("SLURM_ARRAY_TASK_COUNT", "4"), ("SLURM_ARRAY_TASK_MIN", "1")];
        run(&array, &[]).exits(0).says(&["would run 1 of 4 cells: 1"]);
        // One process.
        run(&[("WORLD_SIZE", "1"), ("SLURM_NTASKS", "1")], &[]).exits(0).says(&["would run 4 of 4"]);
    }
    assert!(!place.path().join("results").exists());
}

#[test]
fn a_start_that_cannot_work_is_refused() {
    let place = Place::new(CELLS);
    let join = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["join", "recipe.toml"]);
        command.envs(torchrun(1, 8)).envs(variables.iter().copied());
        Ended::from(command.output().expect("the binary starts"))
    };
    place
        .runner(&["join", "recipe.toml"])
        .exits(1)
        .says(&["no launcher has started this process", "torchrun"]);
    join(&[("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")])
        .exits(1)
        .says(&["cell 3 has 4 ranks, and torchrun has started 2 processes", "--cell"]);
    // The others do not come.
    let waits = changed(CELLS, &[("[1, 2, 4]", "[4]"), ("[grid]", "[parallel]\ntimeout = 1.0\n[grid]")]);
    place.write("recipe.toml", &waits);
    let start = Instant::now();
    join(&[]).exits(75).says(&["rank 0 did not come", "parallel.timeout"]);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

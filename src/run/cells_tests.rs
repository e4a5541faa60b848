//! What runs, what does not, and what is left, with scripted outcomes instead of processes.

use std::path::Path;

use super::*;
use crate::device::Target;
use crate::recipe::Source;
use crate::row::Inputs;
use crate::run::executor::Outcome;
use crate::run::testing::{self, MockExecutor, Recorder};

#[path = "cells_again_tests.rs"]
mod again;
#[path = "cells_elsewhere_tests.rs"]
mod elsewhere;
#[path = "cells_saving_tests.rs"]
mod saving;

/// Runs the recipe of three cells with its results and its lock in `folder`.
fn run(folder: &Path, executor: &dyn Executor, options: &Options) -> (Result<Summary>, String) {
    run_until(folder, executor, options, &AtomicBool::new(false))
}

fn run_until(
    folder: &Path,
    executor: &dyn Executor,
    options: &Options,
    cancel: &AtomicBool,
) -> (Result<Summary>, String) {
    run_of(&testing::recipe(), folder, executor, options, cancel)
}

fn run_of(
    recipe: &Recipe,
    folder: &Path,
    executor: &dyn Executor,
    options: &Options,
    cancel: &AtomicBool,
) -> (Result<Summary>, String) {
    let progress = Recorder::default();
    let session = Session {
        recipe,
        store: &Store::open(folder, recipe, &testing::device()).unwrap(),
        executor,
        progress: &progress,
        locks: folder,
        environment: &|device| match device {
            DeviceId::Cpu if recipe.mixes_devices() => {
                Environment { device: device.info(), ..testing::environment() }
            }
            _ => testing::environment(),
        },
        on_row: &|| (),
        trace: false,
        cancel,
    };
    let summary = run_cells(&session, options);
    (summary, progress.all())
}

fn finished() -> Outcome {
    Outcome::Finished(Box::new(testing::measurement(1.0)))
}

fn ended(status: Status) -> Outcome {
    Outcome::Ended { status, reason: "because".into() }
}

/// The rows as they are on disk.
fn rows(folder: &Path) -> Vec<Option<Row>> {
    let recipe = testing::recipe();
    let store = Store::open(folder, &recipe, &testing::device()).unwrap();
    recipe.cells.iter().map(|cell| store.read(&store.key(cell, &Inputs::new()))).collect()
}

fn statuses(folder: &Path) -> Vec<Option<Status>> {
    rows(folder).iter().map(|row| row.as_ref().map(|row| row.status)).collect()
}

#[test]
fn only_what_is_missing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let executor = MockExecutor::new(|_, _| finished());
    let only = Options { cells: vec![2], ..Options::default() };
    let (summary, log) = run(folder.path(), &executor, &only);
    assert_eq!(summary.unwrap(), Summary { ran: 1, ok: 1, ..Summary::default() });
    assert_eq!(executor.take_ran(), [2]);
    assert_eq!(log, "begin 1\nstart 2\nstep 1/1\nend 2 ok\nover");

    let (summary, _) = run(folder.path(), &executor, &Options::default());
    assert_eq!(summary.unwrap(), Summary { ran: 2, finished_earlier: 1, ok: 3, ..Summary::default() });
    assert_eq!(executor.take_ran(), [1, 3]);

    let (summary, log) = run(folder.path(), &executor, &Options::default());
    let summary = summary.unwrap();
    assert_eq!(summary, Summary { finished_earlier: 3, ok: 3, ..Summary::default() });
    assert_eq!((summary.exit_code(), executor.take_ran().len()), (0, 0));
    assert_eq!(log, "begin 0\nover");
}

#[test]
fn a_finished_cell_whose_saved_folder_is_gone_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("[save]\nweights = \"{}/of-{{train.batch_size}}\"\n[grid]", folder.path().display());
    let model =
        "kind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\nnum_hidden_layers = 1\nnum_attention_heads = 2\n";
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\n{model}[train]\nbatch_size = 1\nseq_len = 4\n{text}\n\
         \"train.batch_size\" = [1, 2, 3]\n"
    );
    let recipe = Recipe::parse(&Source { path: "recipes/saving.toml".into(), text }).unwrap();
    let executor = MockExecutor::new(|_, _| finished());
    let run = || run_of(&recipe, folder.path(), &executor, &Options::default(), &AtomicBool::new(false));
    assert!(!run().1.contains("is not there"), "they are only made now");
    std::fs::create_dir(folder.path().join("of-1")).unwrap();
    std::fs::create_dir(folder.path().join("of-3")).unwrap();
    let (summary, log) = run();
    assert_eq!(summary.unwrap().ran, 0);
    assert!(
        log.contains("cell 2 finished earlier, but") && log.contains("of-2, its save.weights, is not there")
    );
    assert_eq!(log.matches("is not there").count(), 1, "{log}");
}

#[test]
fn a_damaged_row_is_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let executor = MockExecutor::new(|_, _| finished());
    run(folder.path(), &executor, &Options::default()).0.unwrap();
    executor.take_ran();
    let recipe = testing::recipe();
    let store = Store::open(folder.path(), &recipe, &testing::device()).unwrap();
    std::fs::write(store.row_path(&store.key(&recipe.cells[1], &Inputs::new())), "{\"format\": 1,").unwrap();
    let (summary, log) = run(folder.path(), &executor, &Options::default());
    assert_eq!(summary.unwrap().ran, 1);
    assert_eq!(executor.take_ran(), [2]);
    assert!(log.contains("counts as missing"), "{log}");
}

#[test]
fn every_ending_is_a_row_and_the_sweep_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let executor = MockExecutor::new(|batch, _| match batch {
        1 => ended(Status::Oom),
        2 => ended(Status::Diverged),
        _ => finished(),
    });
    let summary = run(folder.path(), &executor, &Options::default()).0.unwrap();
    assert_eq!(summary, Summary { ran: 3, ok: 1, oom: 1, diverged: 1, ..Summary::default() });
    assert_eq!(summary.exit_code(), 1);
    assert_eq!(statuses(folder.path()), [Some(Status::Oom), Some(Status::Diverged), Some(Status::Ok)]);
    let row = rows(folder.path()).remove(0).unwrap();
    assert_eq!((row.reason.as_str(), row.measurement), ("because", None));
    assert!(row.environment.date > testing::environment().date, "the date is the row's own");
}

/// Another run may use the GPU while this one works on the CPU, and the other way round.
#[test]
fn a_cell_takes_the_lock_of_its_own_device() {
    let folder = tempfile::tempdir().unwrap();
    let text = testing::recipe()
        .text
        .replace("device = \"cpu\"\n", "")
        .replace("\"train.batch_size\" = [1, 2, 3]", "device = [\"cuda:0\", \"cpu\"]");
    let source = Source { path: "recipes/both.toml".into(), text };
    let recipe = Recipe::parse_for(&source, &"cuda, 8 GiB".parse::<Target>().unwrap()).unwrap();
    let free = |id: &str| {
        let lock = DeviceLock::new(folder.path(), id, None);
        matches!(lock.take(Duration::ZERO, &AtomicBool::new(false), &mut || {}), Ok(Turn::Ours(_)))
    };
    let executor = MockExecutor::new(|_, _| {
        assert_eq!((free("cpu"), free("cuda:0")), (false, true));
        finished()
    });
    let on_cpu = Options { cells: vec![2], ..Options::default() };
    let (summary, _) = run_of(&recipe, folder.path(), &executor, &on_cpu, &AtomicBool::new(false));
    assert_eq!(summary.unwrap().ran, 1);
    assert!(free("cpu") && free("cuda:0"));
}

#[test]
fn fail_fast_stops_after_the_first_failure() {
    let folder = tempfile::tempdir().unwrap();
    let executor = MockExecutor::new(|batch, _| if batch == 2 { ended(Status::Failed) } else { finished() });
    let options = Options { fail_fast: true, ..Options::default() };
    let summary = run(folder.path(), &executor, &options).0.unwrap();
    assert_eq!(summary, Summary { ran: 2, left: 1, ok: 1, failed: 1, ..Summary::default() });
    assert_eq!((summary.exit_code(), executor.take_ran()), (1, vec![1, 2]));
}

#[test]
fn shards_measure_each_cell_once_in_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let executor = MockExecutor::new(|_, _| finished());
    let mut ran = Vec::new();
    for shard in ["1/2", "2/2"] {
        let options = Options { shard: Some(shard.parse().unwrap()), ..Options::default() };
        run(folder.path(), &executor, &options).0.unwrap();
        ran.push(executor.take_ran());
    }
    assert_eq!(ran, [vec![1, 3], vec![2]]);
    assert_eq!(statuses(folder.path()), [Some(Status::Ok); 3]);
}

#[test]
fn an_interrupted_cell_has_no_row_and_runs_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let executor = MockExecutor::new(|batch, cancel: &AtomicBool| {
        cancel.store(batch == 2, Relaxed);
        finished()
    });
    let cancel = AtomicBool::new(false);
    let (summary, log) = run_until(folder.path(), &executor, &Options::default(), &cancel);
    let summary = summary.unwrap();
    assert_eq!(summary, Summary { ran: 1, left: 2, ok: 1, interrupted: true, ..Summary::default() });
    assert_eq!(summary.exit_code(), 130);
    assert_eq!(statuses(folder.path()), [Some(Status::Ok), None, None]);
    assert!(log.ends_with("over"), "{log}");

    executor.take_ran();
    let executor = MockExecutor::new(|_, _| finished());
    run(folder.path(), &executor, &Options::default()).0.unwrap();
    assert_eq!(executor.take_ran(), [2, 3]);
}

#[test]
fn two_runs_at_once_measure_each_cell_once() {
    for force in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let at_once = AtomicBool::new(false);
        let executor = MockExecutor::new(|_, _| {
            assert!(!at_once.swap(true, Relaxed), "two cells at once on one device");
            std::thread::sleep(Duration::from_millis(150));
            at_once.store(false, Relaxed);
            finished()
        });
        let options = Options { force, ..Options::default() };
        let start = std::sync::Barrier::new(2);
        let summaries: Vec<Summary> = std::thread::scope(|scope| {
            let run = || {
                start.wait();
                run(folder.path(), &executor, &options).0.unwrap()
            };
            let runs = [scope.spawn(run), scope.spawn(run)];
            runs.map(|run| run.join().unwrap()).into()
        });
        let mut ran = executor.take_ran();
        ran.sort_unstable();
        assert_eq!(ran, [1, 2, 3], "force {force}");
        for summary in &summaries {
            assert_eq!((summary.ok, summary.left), (3, 0));
        }
        assert_eq!(summaries[0].ran + summaries[1].ran, 3);
    }
}

#[test]
fn exit_codes() {
    let code = |ok, oom, failed, diverged, interrupted| {
        Summary { ok, oom, failed, diverged, interrupted, ..Summary::default() }.exit_code()
    };
    assert_eq!(code(3, 0, 0, 0, false), 0);
    assert_eq!(code(2, 1, 0, 0, false), 42);
    assert_eq!(code(1, 1, 1, 0, false), 1);
    assert_eq!(code(1, 1, 0, 1, false), 1);
    assert_eq!(code(0, 1, 1, 1, true), 130);
    let elsewhere = Summary { ok: 1, elsewhere: 1, ..Summary::default() };
    assert_eq!((elsewhere.exit_code(), Summary { oom: 1, ..elsewhere }.exit_code()), (69, 42));
}

//! Which finished rows are measured again.

use super::*;

#[test]
fn finished_rows_stay_unless_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let bad = MockExecutor::new(|batch, _| if batch == 2 { ended(Status::Oom) } else { finished() });
    let summary = run(folder.path(), &bad, &Options::default()).0.unwrap();
    assert_eq!(summary.exit_code(), 42, "every failure was out of memory");

    let good = MockExecutor::new(|_, _| finished());
    let summary = run(folder.path(), &good, &Options::default()).0.unwrap();
    assert_eq!((summary.exit_code(), good.take_ran()), (42, vec![]), "an earlier failure still counts");

    let retry = Options { retry_failed: true, ..Options::default() };
    let summary = run(folder.path(), &good, &retry).0.unwrap();
    assert_eq!((summary.exit_code(), good.take_ran()), (0, vec![2]));

    let force = Options { force: true, ..Options::default() };
    let summary = run(folder.path(), &good, &force).0.unwrap();
    assert_eq!((summary.ran, good.take_ran()), (3, vec![1, 2, 3]));
}

#[test]
fn a_notice_names_rows_of_another_build_and_stale_measures_them_again() {
    let folder = tempfile::tempdir().unwrap();
    let executor = MockExecutor::new(|_, _| finished());
    run(folder.path(), &executor, &Options::default()).0.unwrap();
    executor.take_ran();
    let store = Store::open(folder.path(), &testing::recipe(), &testing::device()).unwrap();
    for mut row in rows(folder.path()).into_iter().flatten().take(2) {
        (row.environment.commit, row.environment.build) = ("fedcba987654".into(), "0123456789ab".into());
        store.save(&row).unwrap();
    }
    let (summary, log) = run(folder.path(), &executor, &Options::default());
    assert_eq!((summary.unwrap().finished_earlier, executor.take_ran()), (3, vec![]));
    let notice = "2 finished rows are of other builds of the runner, of commit fedcba987654; --stale";
    assert!(log.contains(notice), "{log}");

    let stale = Options { stale: true, ..Options::default() };
    let (summary, log) = run(folder.path(), &executor, &stale);
    assert_eq!((summary.unwrap().ran, executor.take_ran()), (2, vec![1, 2]));
    assert!(!log.contains("--stale"), "{log}");
    assert_eq!(
        run(folder.path(), &executor, &stale).0.unwrap().finished_earlier,
        3,
        "they are this build's now"
    );
}

/// An old row is replaced only by a new one: interrupting a forced run loses nothing.
#[test]
fn a_forced_run_that_is_interrupted_keeps_the_old_rows() {
    let folder = tempfile::tempdir().unwrap();
    let executor = MockExecutor::new(|_, _| finished());
    run(folder.path(), &executor, &Options::default()).0.unwrap();
    let before = rows(folder.path());
    let interrupted = MockExecutor::new(|_, cancel: &AtomicBool| {
        cancel.store(true, Relaxed);
        finished()
    });
    let force = Options { force: true, ..Options::default() };
    let summary = run(folder.path(), &interrupted, &force).0.unwrap();
    assert_eq!(summary, Summary { finished_earlier: 3, ok: 3, interrupted: true, ..Summary::default() });
    assert_eq!(rows(folder.path()), before);
}

/// A forced measurement that fails is told, and the finished row is not lost.
#[test]
fn a_measured_row_is_kept_beside_the_failure_that_replaces_it() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &MockExecutor::new(|_, _| finished()), &Options::default()).0.unwrap();
    let measured = rows(folder.path())[1].clone().unwrap();
    let bad = MockExecutor::new(|batch, _| if batch == 2 { ended(Status::Oom) } else { finished() });
    let force = Options { force: true, ..Options::default() };
    let store = Store::open(folder.path(), &testing::recipe(), &testing::device()).unwrap();
    let kept = store.row_path(&measured.name()).with_added_extension("other");
    let trace = store.trace_path(&measured.key);
    std::fs::create_dir_all(trace.parent().unwrap()).unwrap();
    std::fs::write(&trace, "its step").unwrap();
    for replaced in [true, false] {
        let (summary, log) = run(folder.path(), &bad, &force);
        assert_eq!(summary.unwrap().exit_code(), 42);
        assert_eq!(statuses(folder.path())[1], Some(Status::Oom));
        assert_eq!(log.contains(&format!("is kept as {}", kept.display())), replaced, "{log}");
    }
    let text = std::fs::read_to_string(&kept).unwrap();
    assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), measured);
    assert!(trace.exists(), "it is the trace of the kept row");

    // A run that was killed has left one that it was recording.
    std::fs::write(store.new_trace_path(&measured.key), "half").unwrap();
    run(folder.path(), &MockExecutor::new(|_, _| finished()), &force).0.unwrap();
    assert!(!trace.exists() && !store.new_trace_path(&measured.key).exists(), "this row has no trace");
}

/// Rows of an earlier run do not speak for a cell whose first process fails now.
#[test]
fn later_processes_go_with_a_first_one_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let text = testing::recipe().text.replace("repeats = 1", "repeats = 2");
    let recipe = Recipe::parse(&Source { path: "recipes/three.toml".into(), text }).unwrap();
    let run = |executor: &dyn Executor, options: &Options| {
        run_of(&recipe, folder.path(), executor, options, &AtomicBool::new(false))
    };
    run(&MockExecutor::new(|_, _| finished()), &Options::default()).0.unwrap();
    let bad = MockExecutor::new(|batch, _| if batch == 2 { ended(Status::Oom) } else { finished() });
    let (summary, log) = run(&bad, &Options { force: true, ..Options::default() });
    assert_eq!((summary.unwrap().ok, log.matches("is kept as").count()), (4, 2), "{log}");
    assert!(log.contains("the earlier row of process 2 is kept as"), "{log}");
    let store = Store::open(folder.path(), &recipe, &testing::device()).unwrap();
    let loaded = store.load(&recipe.cells, &|_| ()).unwrap().rows;
    let found: Vec<Vec<bool>> =
        loaded.iter().map(|rows| rows.iter().map(Option::is_some).collect()).collect();
    assert_eq!(found, [[true, true], [true, false], [true, true]]);
}

//! Every way a cell's process may end, with shell scripts as the process.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::parallel::Engine;
use crate::recipe::Cell;
use crate::row::Status;
use crate::run::child_output::{ChildOutput, Line};
use crate::run::testing::{self, done_event, shell};
use crate::world::Seat;

#[path = "ranks_tests.rs"]
mod ranks_tests;

const LONG: Duration = Duration::from_secs(60);

struct Ran {
    outcome: Outcome,
    advances: Vec<Advance>,
    took: Duration,
}

impl Ran {
    /// # Panics
    /// When the cell did not end with this status.
    fn reason(&self, wanted: Status) -> &str {
        match &self.outcome {
            Outcome::Ended { status, reason } if *status == wanted => reason,
            other => panic!("{} expected, not {other:?}", wanted.into_str()),
        }
    }
}

fn job(cell: &Cell, memory_limit: u64, timeout: Duration) -> Job<'_> {
    Job { cell, memory_limit, timeout, trace: None }
}

fn run_within(executor: &ProcessExecutor, timeout: Duration) -> Ran {
    let cell = &testing::recipe().cells[0];
    let mut advances = Vec::new();
    let start = Instant::now();
    let mut on_advance = |advance| advances.push(advance);
    let outcome = executor.run(job(cell, 1 << 20, timeout), &mut on_advance, &AtomicBool::new(false));
    Ran { outcome, advances, took: start.elapsed() }
}

fn run(script: &str) -> Ran {
    run_within(&shell(script), LONG)
}

/// What the user has set stays.
#[test]
fn ranks_on_gpus_get_what_nccl_is_to_know() {
    let mut cell = testing::recipe().cells.remove(0);
    (cell.device, cell.parallel.data, cell.parallel.engine) = ("cuda:0".into(), 2, Engine::Nccl);
    let asked = NCCL.map(|(name, value)| {
        let expected = env::var(name).unwrap_or_else(|_| value.into());
        format!("[ \"${name}\" = '{expected}' ]")
    });
    let executor = shell(&format!("{} && echo '{}'", asked.join(" && "), done_event()));
    let outcome = executor.run(job(&cell, 1 << 20, LONG), &mut |_| (), &AtomicBool::new(false));
    assert!(matches!(outcome, Outcome::Finished(_)), "{outcome:?}");
}

#[test]
fn steps_and_result_come_through() {
    let prepare = r#"{"event":"preparing","tuned":3}"#;
    let step = r#"{"event":"step","done":1,"of":2}"#;
    let ran = run(&format!("echo '{prepare}'; echo '{step}'; echo '{}'", done_event()));
    match ran.outcome {
        Outcome::Finished(measurement) => assert_eq!(*measurement, testing::measurement(0.5)),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        ran.advances,
        [Advance::Preparing { tuned: 3 }, Advance::Step { done: 1, of: 2, record: None }]
    );
}

#[test]
fn the_request_is_one_line_and_stdin_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    // The second `read` waits on the open pipe until the time limit; a closed one would end it.
    let script = format!("read -r line; printf '%s' \"$line\" > {}; read -r more; exit 3", asked.display());
    let ran = run_within(&shell(&script), Duration::from_millis(500));
    assert!(ran.reason(Status::Failed).contains("time limit"));
    let request: Request = serde_json::from_slice(&std::fs::read(&asked).unwrap()).unwrap();
    assert_eq!(request.memory_limit, 1 << 20);
    assert_eq!(Cell::from_json(&request.cell).unwrap().to_json(), testing::recipe().cells[0].to_json());
}

/// Whole weights may lie there between two phases of training.
#[test]
fn what_a_killed_cell_leaves_in_its_temporary_folder_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let leave =
        format!("mkdir $TMPDIR/phase; echo w > $TMPDIR/phase/weights; echo $TMPDIR > {}", told.display());
    for (end, status) in [("kill -KILL $$", Status::Failed), ("exit 3", Status::Failed)] {
        let ran = run(&format!("{leave}; {end}"));
        ran.reason(status);
        let left = std::fs::read_to_string(&told).unwrap();
        assert!(left.contains("runner-cell-") && !Path::new(left.trim()).exists(), "{left}");
    }
    let ran = run_within(&shell(&format!("{leave}; sleep 60")), Duration::from_millis(500));
    assert!(ran.reason(Status::Failed).contains("time limit"));
    assert!(!Path::new(std::fs::read_to_string(&told).unwrap().trim()).exists());
}

#[test]
fn a_panic_is_failed_with_its_message() {
    let ran = run(r#"echo '{"event":"failed","reason":"index 3 out of bounds"}'; exit 101"#);
    assert_eq!(ran.reason(Status::Failed), "index 3 out of bounds");
}

#[test]
fn a_loss_that_is_not_finite_is_diverged() {
    let ran = run(r#"echo '{"event":"diverged","reason":"the loss of step 4 was NaN"}'"#);
    assert_eq!(ran.reason(Status::Diverged), "the loss of step 4 was NaN");
}

#[test]
fn a_refused_allocation_is_out_of_memory() {
    let ran = run("echo 'memory allocation of 2097152 bytes failed' >&2; kill -ABRT $$");
    let reason = ran.reason(Status::Oom);
    assert!(reason.contains("2097152 bytes (2.00 MiB)") && reason.contains("1048576 bytes"), "{reason}");
    assert!(reason.contains("what the device had free"), "{reason}");
    // The same words from a process that then ends by itself are no abort.
    let ran = run("echo 'memory allocation of 2097152 bytes failed' >&2; exit 4");
    assert!(ran.reason(Status::Failed).contains("exit code 4"));
}

#[test]
fn signals_are_named() {
    for (signal, name) in
        [("KILL", "signal 9 (SIGKILL)"), ("SEGV", "signal 11 (SIGSEGV)"), ("ABRT", "SIGABRT")]
    {
        let ran = run(&format!("echo last words >&2; kill -{signal} $$"));
        let reason = ran.reason(Status::Failed);
        assert!(reason.contains(name) && reason.contains("last words"), "{reason}");
    }
}

#[test]
fn an_end_without_a_result_names_the_exit_code_and_the_last_output() {
    let reason = run("exit 0").reason(Status::Failed).to_string();
    assert!(reason.starts_with("ended with exit code 0 and without a result: run again"), "{reason}");
    let reason = run("printf 'no \\033[31msuch file\\n' >&2; exit 3").reason(Status::Failed).to_string();
    assert!(reason.contains("exit code 3") && reason.contains("such file"), "{reason}");
    assert!(!reason.contains('\u{1b}'), "control characters are left out: {reason:?}");
}

#[test]
fn a_program_that_is_not_there() {
    let executor = ProcessExecutor { program: "/nowhere/runner".into(), args: vec![] };
    let ran = run_within(&executor, LONG);
    let reason = ran.reason(Status::Failed);
    assert!(reason.contains("cannot start /nowhere/runner"), "{reason}");
}

#[test]
fn past_the_time_limit_the_whole_group_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; wait", pid.display());
    let ran = run_within(&shell(&script), Duration::from_millis(500));
    assert!(
        ran.reason(Status::Failed).starts_with("exceeded its time limit of 0.5 s: raise measure.timeout")
    );
    assert!(ran.took < Duration::from_secs(10), "{:?}", ran.took);
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(gone(pid.trim()), "the grandchild is dead");
}

/// Whether a process has ended, or does so within a few seconds.
fn gone(pid: &str) -> bool {
    (0..100).any(|_| {
        std::thread::sleep(POLL);
        // A dead process whose parent is gone may wait to be reaped: state Z.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    })
}

#[test]
fn garbage_on_stdout_is_no_event() {
    let script = format!(
        "head -c 300000 /dev/urandom; echo; echo '{{\"event\":\"unknown\"}}'; echo '{}'",
        done_event()
    );
    assert!(matches!(run(&script).outcome, Outcome::Finished(_)));
    let ran = run("head -c 300000 /dev/urandom; exit 5");
    assert!(ran.reason(Status::Failed).contains("exit code 5"));
}

/// 8 MB, far beyond what a pipe holds.
#[test]
fn a_flood_on_stderr_does_not_block() {
    let ran = run(&format!("yes noise | head -c 8000000 >&2; echo '{}'", done_event()));
    assert!(matches!(ran.outcome, Outcome::Finished(_)), "{:?}", ran.outcome);
}

#[test]
fn a_grandchild_with_the_pipes_open_does_not_hang_the_runner() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // In the group it is killed; in a session of its own it lives on, and is not waited for.
    for (start, dies) in [("sleep 60", true), ("setsid sleep 8", false)] {
        for (end, result) in [(format!("echo '{}'", done_event()), true), ("exit 3".into(), false)] {
            let ran = run(&format!("{start} & echo $! > {}; echo why >&2; {end}", pid.display()));
            match result {
                true => assert!(matches!(ran.outcome, Outcome::Finished(_))),
                false => assert!(ran.reason(Status::Failed).contains("why")),
            }
            assert!(ran.took < Duration::from_secs(6), "{start}: {:?}", ran.took);
            if dies {
                assert!(gone(std::fs::read_to_string(&pid).unwrap().trim()), "{start} is dead");
            }
        }
    }
}

/// Later its number may belong to another process.
#[test]
fn what_a_process_leaves_behind_is_killed_when_it_ends() {
    let (output, lines) = ChildOutput::of(1);
    let request = Request {
        cell: testing::recipe().cells[0].to_json(),
        memory_limit: 1,
        trace: None,
        logged: false,
        seat: Seat { rank: 0, size: 1, local: 0, meeting: Meeting::random().unwrap(), limit: 1.0 },
    };
    let mut process = shell("sleep 600 & echo $!").begin(0, &request, 1, &lines).unwrap();
    let (_, line) = output.line(LONG).unwrap();
    let Line::Text(pid) = line else { panic!("{line:?}") };
    while process.exited().is_none() {
        std::thread::sleep(POLL);
    }
    assert!(gone(&pid), "without a kill or a drop");
}

#[test]
fn a_result_counts_even_if_the_process_does_not_end() {
    let ran = run(&format!("echo '{}'; sleep 60", done_event()));
    assert!(matches!(ran.outcome, Outcome::Finished(_)));
    assert!(ran.took < Duration::from_secs(20), "{:?}", ran.took);
}

#[test]
fn cancelling_kills_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let executor = shell(&format!("echo $$ > {}; exec sleep 600", pid.display()));
    let cancel = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let (cancel, pid) = (&cancel, &pid);
        scope.spawn(move || {
            while !std::fs::read_to_string(pid).is_ok_and(|text| text.ends_with('\n')) {
                std::thread::sleep(POLL);
            }
            cancel.store(true, Relaxed);
        });
        executor.run(job(&testing::recipe().cells[0], 1, LONG), &mut |_| {}, cancel)
    });
    assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}");
    assert!(gone(std::fs::read_to_string(&pid).unwrap().trim()));
}

#[test]
fn a_result_that_is_there_is_kept_when_the_run_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    // Its end may take seconds, as that of a GPU's libraries does.
    let executor = shell(&format!("echo '{}'; echo > {}; exec sleep 600", done_event(), told.display()));
    let cancel = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let (cancel, told) = (&cancel, &told);
        scope.spawn(move || {
            while !told.exists() {
                std::thread::sleep(POLL);
            }
            std::thread::sleep(POLL);
            cancel.store(true, Relaxed);
        });
        executor.run(job(&testing::recipe().cells[0], 1, LONG), &mut |_| {}, cancel)
    });
    assert!(matches!(outcome, Outcome::Finished(_)), "{outcome:?}");
}

//! Every way a cell of several ranks may end, with shell scripts as the processes.

use super::*;
use crate::run::testing::of_ranks;

/// Three ranks that each run `script` with its number as `$rank`.
fn run_ranks(script: &str) -> Ran {
    run_ranks_within(script, LONG)
}

fn run_ranks_within(script: &str, timeout: Duration) -> Ran {
    let mut cell = testing::recipe().cells.remove(0);
    cell.parallel.data = 3;
    let (mut told, start) = (Vec::new(), Instant::now());
    let job = job(&cell, 1 << 20, timeout);
    let outcome =
        shell(&of_ranks(script)).run(job, &mut |advance| told.push(advance), &AtomicBool::new(false));
    Ran { outcome, advances: told, took: start.elapsed() }
}

#[test]
fn a_cell_of_several_ranks_ends_with_the_last_of_them() {
    let ran = run_ranks("[ $rank = 0 ] && sleep 3; echo \"$done\"");
    assert!(matches!(ran.outcome, Outcome::Finished(_)), "{:?}", ran.outcome);
    assert!(ran.took > Duration::from_secs(3));
}

#[test]
fn the_first_rank_that_fails_ends_all() {
    for (end, status, told) in [
        ("kill -KILL $$", Status::Failed, "rank 1 of 3: killed by signal 9"),
        ("exit 3", Status::Failed, "rank 1 of 3: ended with exit code 3"),
        ("echo '{\"event\":\"diverged\",\"reason\":\"NaN\"}'; exit 0", Status::Diverged, "rank 1 of 3: NaN"),
        (
            "echo 'memory allocation of 2097152 bytes failed' >&2; kill -ABRT $$",
            Status::Oom,
            "rank 1 of 3: out of memory",
        ),
    ] {
        // One has lost it already, and one waits.
        let lost = "echo '{\"event\":\"lost\",\"peer\":1,\"reason\":\"gone\"}'; exit 1";
        let ran = run_ranks(&format!("case $rank in 0) {lost};; 1) sleep 0.3; {end};; 2) sleep 60;; esac"));
        assert!(ran.reason(status).starts_with(told), "{}", ran.reason(status));
        assert!(ran.took < Duration::from_secs(6), "{:?}", ran.took);
    }
}

#[test]
fn a_rank_that_all_miss_and_that_says_nothing_is_the_cause() {
    let lost = |peer| {
        format!("echo '{{\"event\":\"lost\",\"peer\":{peer},\"reason\":\"it did not come\"}}'; exit 1")
    };
    let ran =
        run_ranks(&format!("case $rank in 0) {};; 1) sleep 60;; 2) sleep 0.2; {};; esac", lost(2), lost(1)));
    let reason = ran.reason(Status::Failed);
    assert_eq!(reason, "rank 1 of 3 does not answer: rank 2 says: it did not come");
    assert!(ran.took < Duration::from_secs(8), "{:?}", ran.took);
}

#[test]
fn what_happens_to_a_rank_after_its_result_changes_nothing() {
    let failed = r#"echo '{"event":"failed","reason":"it is gone"}'"#;
    let ran =
        run_ranks(&format!("[ $rank = 0 ] && sleep 1; echo \"$done\"; [ $rank = 1 ] && {failed}; exit 0"));
    assert!(matches!(ran.outcome, Outcome::Finished(_)), "{:?}", ran.outcome);
    assert!(ran.took >= Duration::from_secs(1), "the first rank's result is waited for: {:?}", ran.took);
}

/// All ranks have come to their end when the first has the result.
#[test]
fn a_rank_that_dies_after_the_result_loses_no_cell() {
    let ran = run_ranks("[ $rank = 0 ] || sleep 0.5; [ $rank = 2 ] && kill -KILL $$; echo \"$done\"");
    assert!(matches!(ran.outcome, Outcome::Finished(_)), "{:?}", ran.outcome);
}

/// The first rank is killed first, and others may say that they miss it before they are.
#[test]
fn a_time_limit_is_the_cause_whatever_ranks_say_of_it() {
    let lost = r#"echo '{"event":"lost","peer":0,"reason":"it is gone"}'"#;
    let script = format!("[ $rank = 0 ] && exec sleep 60; sleep 1.05; {lost}; sleep 60");
    let ran = run_ranks_within(&script, Duration::from_secs(1));
    assert!(ran.reason(Status::Failed).starts_with("exceeded its time limit"), "{:?}", ran.outcome);
}

//! A leader and its followers as threads, with shell scripts as their cells' processes.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::scope;
use std::time::Duration;

use super::*;
use crate::row::Status;
use crate::run::join::follow;
use crate::run::testing::{self, of_ranks, shell};

pub(in crate::run::join) static NOT_CANCELLED: AtomicBool = AtomicBool::new(false);
pub(in crate::run::join) const LIMIT: f64 = 20.0;

/// The places of three ranks of a start of their own, on one host or on two that are one machine.
pub(in crate::run::join) fn places(hosts: usize) -> Vec<Launched> {
    static STARTS: AtomicU64 = AtomicU64::new(0);
    let start = format!("{}.{}", std::process::id(), STARTS.fetch_add(1, Relaxed));
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = |rank: usize| {
        let lookup = |name: &str| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some("3".into()),
            "GROUP_WORLD_SIZE" => Some(hosts.to_string()),
            "LOCAL_RANK" => Some((rank % 2).to_string()),
            "TORCHELASTIC_RUN_ID" => Some(start.clone()),
            "MASTER_ADDR" => Some("127.0.0.1".into()),
            "MASTER_PORT" => Some(free.to_string()),
            "RUNNER_SECRET" => Some("of a test".into()),
            _ => None,
        };
        Launched::find(&lookup).unwrap()
    };
    (0..3).map(place).collect()
}

/// A cell of so many ranks.
pub(in crate::run::join) fn cell(ranks: usize) -> Cell {
    let mut cell = testing::recipe().cells.remove(0);
    cell.parallel.data = ranks;
    cell
}

/// What every rank has read: cells of one, two and three ranks.
pub(in crate::run::join) static CELLS: LazyLock<Vec<Cell>> = LazyLock::new(|| (1..=3).map(cell).collect());

fn job(cell: &Cell) -> Job<'_> {
    Job { cell, memory_limit: 1 << 20, timeout: Duration::from_secs(60), trace: None }
}

/// What the leader of three ranks makes of its followers, who all run this script in each cell, and with what they end.
fn led<T: Send>(hosts: usize, script: &str, lead: impl FnOnce(&Leader) -> T + Send) -> (T, Vec<Result<u8>>) {
    let executor = shell(&of_ranks(script));
    let mut places = places(hosts);
    let first = places.remove(0);
    scope(|scope| {
        let followers: Vec<_> = places
            .iter()
            .map(|place| scope.spawn(|| follow(&executor, &CELLS, place, LIMIT, &NOT_CANCELLED)))
            .collect();
        let leader = Leader::meet(executor.clone(), &CELLS, first, LIMIT).unwrap();
        let result = lead(&leader);
        drop(leader);
        (result, followers.into_iter().map(|follower| follower.join().unwrap()).collect())
    })
}

fn outcome(leader: &Leader, ranks: usize) -> Outcome {
    leader.run(job(&cell(ranks)), &mut |_| {}, &NOT_CANCELLED)
}

fn failure(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Ended { status: Status::Failed, reason } => reason,
        other => panic!("a failure expected, not {other:?}"),
    }
}

#[test]
fn cells_run_one_after_the_other_on_as_many_ranks_as_they_have() {
    for hosts in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let note = format!("echo $rank >> {}; echo \"$done\"", folder.path().join("ran").display());
        let (outcomes, ends) = led(hosts, &note, |leader| {
            leader.ready(3).unwrap();
            [outcome(leader, 3), outcome(leader, 2), outcome(leader, 3)]
        });
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Finished(_))), "{outcomes:?}");
        assert!(ends.iter().all(|end| matches!(end, Ok(0))), "{ends:?}");
        let mut ran: Vec<String> =
            std::fs::read_to_string(folder.path().join("ran")).unwrap().lines().map(String::from).collect();
        ran.sort();
        assert_eq!(ran, ["0", "0", "0", "1", "1", "1", "2", "2"]);
    }
}

#[test]
fn requests_say_where_ranks_are() {
    let folder = tempfile::tempdir().unwrap();
    let note = format!("printf '%s' \"$line\" > {}/$rank; echo \"$done\"", folder.path().display());
    let trace = folder.path().join("trace");
    let (outcome, _) = led(2, &note, |leader| {
        let job = Job { trace: Some(&trace), ..job(&CELLS[2]) };
        leader.run(job, &mut |_| {}, &NOT_CANCELLED)
    });
    assert!(matches!(outcome, Outcome::Finished(_)), "{outcome:?}");
    let read = |rank: usize| -> Request {
        let text = std::fs::read_to_string(folder.path().join(rank.to_string())).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    for (rank, local) in [0, 1, 0].into_iter().enumerate() {
        let request = read(rank);
        assert_eq!((request.seat.rank, request.seat.local, request.seat.size), (rank, local, 3));
        assert_eq!(request.seat.meeting, read(0).seat.meeting);
        assert!(request.seat.meeting.address.is_some());
        assert_eq!((request.cell, request.memory_limit), (CELLS[2].to_json(), 1 << 20));
        // The others take the step too, and write nothing.
        assert_eq!(request.trace, Some(if rank == 0 { trace.clone() } else { PathBuf::new() }));
    }
}

#[test]
fn a_rank_that_fails_is_named_and_the_next_cell_runs() {
    for (end, reason) in [
        ("kill -KILL $$", "killed by signal 9 (SIGKILL)"),
        ("echo why >&2; exit 3", "ended with exit code 3"),
    ] {
        // The others wait, and the first rank has no result without them; a cell of two ranks has no third.
        let script =
            format!("case $rank in 0) sleep 1;; 2) sleep 0.3; {end};; esac\necho \"$done\"; sleep 0.5");
        for hosts in [1, 2] {
            let (outcomes, ends) = led(hosts, &script, |leader| [outcome(leader, 3), outcome(leader, 2)]);
            let on = if hosts == 1 { String::new() } else { format!(" on {}", places(2)[2].place().0) };
            let reason = format!("rank 2 of 3{on}: {reason}");
            assert!(failure(&outcomes[0]).starts_with(&reason), "{outcomes:?}");
            assert!(matches!(outcomes[1], Outcome::Finished(_)), "{outcomes:?}");
            assert!(ends.iter().all(|end| matches!(end, Ok(0))), "{ends:?}");
        }
    }
}

#[test]
fn cancelling_ends_the_processes_of_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script = format!("echo $$ >> {}; exec sleep 600", pids.display());
    let read = || std::fs::read_to_string(&pids).unwrap_or_default();
    let ((), ends) = led(2, &script, |leader| {
        let cancel = AtomicBool::new(false);
        let outcome = scope(|scope| {
            scope.spawn(|| {
                while read().lines().count() < 3 {
                    thread::sleep(POLL);
                }
                cancel.store(true, Relaxed);
            });
            leader.run(job(&cell(3)), &mut |_| {}, &cancel)
        });
        assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}");
        // Dropped with the cell, and so waited for.
        for pid in read().lines() {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        }
    });
    assert!(ends.iter().all(|end| matches!(end, Ok(0))), "{ends:?}");
}

/// The fingerprint of what all ranks have read.
fn read(place: &Launched) -> String {
    Reading::new(&CELLS, place).fingerprint
}

/// A follower that is nothing but its connection.
fn stranger(place: &Launched, build: Build, recipe: String) -> Stream {
    let seat = place.seat(LIMIT);
    let stream = seat.meet().unwrap().swap_remove(0).unwrap();
    let sender = Sender::new(stream.try_clone().unwrap(), Report::Alive);
    sender.send(&Report::Here(Here { build, recipe, place: ("there".into(), 0) })).unwrap();
    stream
}

#[test]
fn a_follower_that_ends_ends_its_cell_and_the_run() {
    let mut places = places(1);
    let (last, second, first) = (places.remove(2), places.remove(1), places.remove(0));
    let executor = shell(&of_ranks("sleep 600"));
    scope(|scope| {
        let follower = scope.spawn(|| follow(&executor, &CELLS, &second, LIMIT, &NOT_CANCELLED));
        scope.spawn(|| {
            let stream = stranger(&last, Build::own(), read(&last));
            let mut orders = messages(stream.try_clone().unwrap());
            let order = orders.find(|order| !matches!(order, Order::Alive));
            assert!(matches!(order, Some(Order::Start(_))), "{order:?}");
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        });
        let leader = Leader::meet(executor.clone(), &CELLS, first, LIMIT).unwrap();
        let outcome = outcome(&leader, 3);
        let reason = failure(&outcome);
        assert!(reason.starts_with("rank 2 of 3: its `runner join` has ended"), "{reason}");
        let error = leader.ready(3).unwrap_err();
        assert!(
            error.message.contains("rank 2 of 3") && error.help.contains("start all ranks again"),
            "{error:?}"
        );
        leader.ready(2).unwrap();
        drop(leader);
        assert!(matches!(follower.join().unwrap(), Ok(0)));
    });
}

#[test]
fn another_build_or_recipe_is_refused_by_name_on_every_rank() {
    let other = Build { sources: "0123456789ab".into(), commit: "cafe".into() };
    let own = Build::own().named();
    for hosts in [1, 2] {
        let read = read(&places(hosts)[0]);
        refuses(hosts, other.clone(), read, &["rank 2 is build 0123456789ab of commit cafe", &own]);
        let less = "0".repeat(64);
        refuses(hosts, Build::own(), less, &["rank 2 on there has read other cells", "than rank 0"]);
    }
}

fn refuses(hosts: usize, build: Build, recipe: String, parts: &[&str]) {
    let mut places = places(hosts);
    let (last, second, first) = (places.remove(2), places.remove(1), places.remove(0));
    let executor = shell("exit 1");
    scope(|scope| {
        let follower = scope.spawn(|| follow(&executor, &CELLS, &second, LIMIT, &NOT_CANCELLED));
        let stranger = scope.spawn(|| stranger(&last, build, recipe));
        let error = Leader::meet(executor.clone(), &CELLS, first, LIMIT).unwrap_err().to_string();
        let follower = follower.join().unwrap().unwrap_err().to_string();
        for error in [error, follower] {
            parts.iter().for_each(|part| assert!(error.contains(part), "no `{part}` in {error}"));
        }
        drop(stranger.join().unwrap());
    });
}

#[test]
fn a_rank_that_does_not_come_is_named_in_time() {
    [1, 2].into_iter().for_each(misses_a_rank);
}

fn misses_a_rank(hosts: usize) {
    let mut places = places(hosts);
    let (second, first) = (places.remove(1), places.remove(0));
    let executor = shell("exit 1");
    scope(|scope| {
        scope.spawn(|| {
            let error = follow(&executor, &CELLS, &second, 0.5, &NOT_CANCELLED).unwrap_err();
            assert!(error.to_string().contains("rank 2 did not come"), "{error}");
        });
        let start = Instant::now();
        let error = Leader::meet(executor.clone(), &CELLS, first, 0.5).unwrap_err();
        assert!(error.to_string().contains("rank 2 did not come"), "{error}");
        assert!(error.is::<TryAgain>() && start.elapsed() < Duration::from_secs(5));
    });
}

/// As one that was stopped is: its connection stands, and nothing comes.
#[test]
fn a_follower_that_says_nothing_counts_as_gone() {
    let mut places = places(1);
    let (last, second, first) = (places.remove(2), places.remove(1), places.remove(0));
    let executor = shell(&of_ranks("sleep 600"));
    scope(|scope| {
        let follower = scope.spawn(|| follow(&executor, &CELLS, &second, LIMIT, &NOT_CANCELLED));
        let silent = scope.spawn(|| stranger(&last, Build::own(), read(&last)));
        let leader = Leader::meet(executor.clone(), &CELLS, first, 1.0).unwrap();
        let _silent = silent.join().unwrap();
        let outcome = outcome(&leader, 3);
        assert!(failure(&outcome).starts_with("rank 2 of 3: its `runner join` has ended or does not answer"));
        drop(leader);
        assert_eq!(follower.join().unwrap().unwrap(), 0);
    });
}

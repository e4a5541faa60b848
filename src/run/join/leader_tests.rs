//! A leader and its followers as threads, with shell scripts as their cells' processes.

use std::net::TcpListener;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::scope;
use std::time::Duration;

use super::*;
use crate::row::Status;
use crate::run::join::follow;
use crate::run::testing::{self, of_ranks, shell};
use crate::world::Seat;

static NOT_CANCELLED: AtomicBool = AtomicBool::new(false);
const LIMIT: f64 = 20.0;

/// The places of three ranks of a start of their own, on one host or on two that are one machine.
fn places(hosts: usize) -> Vec<Launched> {
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
            _ => None,
        };
        Launched::find(&lookup).unwrap()
    };
    (0..3).map(place).collect()
}

/// A cell of so many ranks.
fn cell(ranks: usize) -> Cell {
    let mut cell = testing::recipe().cells.remove(0);
    cell.parallel.data = ranks;
    cell
}

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
            .map(|place| scope.spawn(|| follow(&executor, place, LIMIT, &NOT_CANCELLED)))
            .collect();
        let leader = Leader::meet(executor.clone(), first, LIMIT).unwrap();
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
    let (_, _) = led(2, &note, |leader| outcome(leader, 3));
    for (rank, local) in [0, 1, 0].into_iter().enumerate() {
        let text = std::fs::read_to_string(folder.path().join(rank.to_string())).unwrap();
        let request: Request = serde_json::from_str(&text).unwrap();
        assert_eq!((request.seat.rank, request.seat.local), (rank, local));
        assert!(matches!(request.seat.meeting, crate::world::Meeting::Network(_)));
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

/// A second follower that is nothing but its connection.
fn stranger(seat: &Seat, build: Build) -> Stream {
    let stream = seat.meet().unwrap().swap_remove(0).unwrap();
    let sender = Sender::new(stream.try_clone().unwrap(), Report::Alive);
    sender.send(&Report::Here { build, host: String::new(), local: 0 }).unwrap();
    stream
}

#[test]
fn a_follower_that_ends_ends_its_cell_and_the_run() {
    let mut places = places(1);
    let (last, second, first) = (places.remove(2), places.remove(1), places.remove(0));
    let executor = shell(&of_ranks("sleep 600"));
    scope(|scope| {
        let follower = scope.spawn(|| follow(&executor, &second, LIMIT, &NOT_CANCELLED));
        scope.spawn(|| {
            let stream = stranger(&last.seat(LIMIT), Build::own());
            let mut orders = messages(stream.try_clone().unwrap());
            let order = orders.find(|order| !matches!(order, Order::Alive));
            assert!(matches!(order, Some(Order::Start(_))), "{order:?}");
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        });
        let leader = Leader::meet(executor.clone(), first, LIMIT).unwrap();
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
fn another_build_is_refused_by_name_on_every_rank() {
    [1, 2].into_iter().for_each(refuses_another_build);
}

fn refuses_another_build(hosts: usize) {
    let mut places = places(hosts);
    let (last, second, first) = (places.remove(2), places.remove(1), places.remove(0));
    let executor = shell("exit 1");
    let other = Build { sources: "0123456789ab".into(), commit: "cafe".into() };
    scope(|scope| {
        let follower = scope.spawn(|| follow(&executor, &second, LIMIT, &NOT_CANCELLED));
        let stranger = scope.spawn(|| stranger(&last.seat(LIMIT), other.clone()));
        let error = Leader::meet(executor.clone(), first, LIMIT).unwrap_err().to_string();
        let follower = follower.join().unwrap().unwrap_err().to_string();
        for error in [error, follower] {
            let own = Build::own().named();
            assert!(error.starts_with("rank 2 is build 0123456789ab of commit cafe"), "{error}");
            assert!(error.contains(&own), "{error}");
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
            let error = follow(&executor, &second, 0.5, &NOT_CANCELLED).unwrap_err();
            assert!(error.to_string().contains("rank 2 did not come"), "{error}");
        });
        let start = Instant::now();
        let error = Leader::meet(executor.clone(), first, 0.5).unwrap_err();
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
        let follower = scope.spawn(|| follow(&executor, &second, LIMIT, &NOT_CANCELLED));
        let silent = scope.spawn(|| stranger(&last.seat(LIMIT), Build::own()));
        let leader = Leader::meet(executor.clone(), first, 1.0).unwrap();
        let _silent = silent.join().unwrap();
        let outcome = outcome(&leader, 3);
        assert!(failure(&outcome).starts_with("rank 2 of 3: its `runner join` has ended or does not answer"));
        drop(leader);
        assert_eq!(follower.join().unwrap().unwrap(), 0);
    });
}

//! `runner join` over two hosts that are one machine, with ranks on the CPU: how they meet over the network, how they end,
//! and what is refused. With NCCL: `examples/cluster/two_hosts.sh`.

use std::net::TcpListener;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::endings::alive;
use crate::join::{CELLS, ended, endless, joined, ranks, send};
use crate::place::{Ended, Place, changed, losses};

/// A port where nobody listens.
pub fn free_port() -> u32 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the system has ports");
    listener.local_addr().expect("it has an address").port().into()
}

/// The variables that torchrun sets in one of four processes, two on a host, and their secret.
pub fn two_hosts(rank: usize, port: u32) -> Vec<(&'static str, String)> {
    vec![
        ("RUNNER_TEST_HOSTS", "1".into()),
        ("NCCL_HOSTID", ["first", "second"][rank / 2].into()),
        ("RANK", rank.to_string()),
        ("LOCAL_RANK", (rank % 2).to_string()),
        ("WORLD_SIZE", "4".into()),
        ("LOCAL_WORLD_SIZE", "2".into()),
        ("GROUP_WORLD_SIZE", "2".into()),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", port.to_string()),
        ("RUNNER_SECRET", format!("of {}", std::process::id())),
    ]
}

fn reason(row: &serde_json::Value) -> &str {
    row["reason"].as_str().expect("a reason")
}

/// The endless cells of four ranks, which wait for each other for two seconds.
pub fn impatient() -> String {
    changed(&endless(), &[("[grid]", "[parallel]\ntimeout = 2.0\n[grid]")])
}

#[test]
fn ranks_of_two_hosts_train_as_those_of_one() {
    let alone = Place::new(CELLS);
    alone.runner(&["run", "recipe.toml"]).exits(0).says(&["3 measured"]);
    let place = Place::new(CELLS);
    let port = free_port();
    let mut ends = ended(joined(&place, two_hosts, port));
    for follower in ends.drain(1..) {
        let follower = follower.exits(0);
        assert_eq!((follower.out.as_str(), follower.err.as_str()), ("", ""), "the first speaks for all");
    }
    ends.remove(0).exits(0).says(&["3 measured", "report.html"]);
    for (ours, reference) in place.rows().iter().zip(alone.rows()) {
        assert_eq!(ours["cell"], reference["cell"]);
        assert_eq!(losses(ours), losses(&reference), "the same bits");
    }
    TcpListener::bind(("127.0.0.1", port as u16)).expect("nobody listens any more");
}

#[test]
fn a_killed_rank_of_another_host_is_a_row_and_the_next_cell_runs() {
    let place = Place::new(&endless());
    let processes = joined(&place, two_hosts, free_port());
    let mut killed: Vec<u32> = Vec::new();
    for rank in [3, 0] {
        let mut now = Vec::new();
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
    ends.drain(1..).for_each(|follower| drop(follower.exits(0)));
    ends.remove(0).exits(1).says(&["2 measured", "2 failed"]);
    let mut rows = place.rows();
    rows.sort_by_key(|row| row["cell"]["seed"].as_u64());
    for (row, named) in rows.iter().zip(["rank 3 of 4 on second", "rank 0 of 4 on first"]) {
        let named = format!("{named}: killed by signal 9 (SIGKILL)");
        assert!(reason(row).starts_with(&named), "{}", reason(row));
    }
}

#[test]
fn a_rank_of_another_host_that_hangs_is_a_row_within_the_limit() {
    let place = Place::new(&changed(&impatient(), &[("[1, 2]", "[1]")]));
    let processes = joined(&place, two_hosts, free_port());
    let cells = ranks(&place, &processes);
    std::thread::sleep(Duration::from_millis(800));
    send(Signal::SIGSTOP, cells[2]);
    let start = Instant::now();
    place.wait("no rank is left", || cells.iter().all(|rank| !alive(*rank)));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    ended(processes).remove(0).exits(1).says(&["1 failed"]);
    let row = place.rows().remove(0);
    assert!(reason(&row).starts_with("rank 2 of 4 on second does not answer: rank "), "{}", reason(&row));
    assert!(reason(&row).contains("for 2 s: raise parallel.timeout"), "{}", reason(&row));
}

/// Of the processes of `runner join` themselves: one of the second host, then the first of all.
#[test]
fn a_host_that_is_gone_ends_its_cell_and_the_run() {
    let place = Place::new(&endless());
    let start = |killed: usize| -> (Vec<Child>, Vec<u32>) {
        let mut processes = joined(&place, two_hosts, free_port());
        let cells = ranks(&place, &processes);
        send(Signal::SIGKILL, processes.remove(killed).id());
        (processes, cells)
    };
    let (processes, cells) = start(3);
    ended(processes).remove(0).exits(75).says(&["rank 3 of 4 is gone", "start all ranks again"]);
    let row = place.rows().remove(0);
    assert!(
        reason(&row).starts_with("rank 3 of 4 on second: its `runner join` has ended"),
        "{}",
        reason(&row)
    );
    place.wait("no rank is left", || cells.iter().all(|rank| !alive(*rank)));

    let (processes, cells) = start(0);
    ended(processes).into_iter().for_each(|follower| drop(follower.exits(1).says(&["rank 0 is gone"])));
    place.wait("no rank is left", || cells.iter().all(|rank| !alive(*rank)));
}

#[test]
fn a_start_over_hosts_that_cannot_work_is_refused() {
    let place = Place::new(&changed(&impatient(), &[("timeout = 2.0", "timeout = 1.0")]));
    let port = free_port();
    let join = |rank: usize, variables: &[(&str, &str)]| {
        let mut command = place.command(&["join", "recipe.toml"]);
        command.envs(two_hosts(rank, port));
        for (name, value) in variables {
            if value.is_empty() {
                command.env_remove(name)
            } else {
                command.env(name, value)
            };
        }
        Ended::from(command.output().expect("the binary starts"))
    };
    let refused =
        ["use sockets, which connect ranks of one host", "only NCCL", "--shard i/n", "srun --nodes=1"];
    join(0, &[("RUNNER_TEST_HOSTS", "")]).exits(1).says(&refused);
    join(3, &[("RUNNER_TEST_HOSTS", "")]).exits(1).says(&refused);
    join(1, &[("MASTER_ADDR", "")]).exits(1).says(&["several hosts", "MASTER_PORT", "hosts.sh"]);
    for none in ["", " "] {
        let mut command = place.command(&["join", "recipe.toml"]);
        command.envs(two_hosts(0, port)).env("RUNNER_SECRET", none);
        let ended = Ended::from(command.output().expect("the binary starts"));
        ended.exits(1).says(&["RUNNER_SECRET is not set", "export RUNNER_SECRET=$(", "hosts.sh"]);
    }
    join(0, &[("MASTER_ADDR", "192.0.2.7")]).exits(75).says(&["192.0.2.7 is no address of this host"]);
    // The others do not come, or somebody else is there.
    join(0, &[]).exits(75).says(&["rank 1 did not come", "parallel.timeout"]);
    join(3, &[]).exits(75).says(&["rank 0 did not come", "127.0.0.1", "open between the hosts"]);
    let _taken = TcpListener::bind(("127.0.0.1", port as u16)).expect("it is free");
    join(0, &[]).exits(75).says(&["cannot listen at 127.0.0.1", "MASTER_PORT"]);
    assert!(place.row_files().is_empty());
}

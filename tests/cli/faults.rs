//! Ranks that are killed: the row names the rank and the cause, nothing is left, and the sweep goes on.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::endings::{alive, children};
use crate::place::{Place, files};

/// How a sweep's rank is to be killed: which of four, and how long after all are there.
pub type Death = (usize, Duration);

/// Runs a recipe of four ranks in as many endless cells as there are deaths, kills a rank of each, and then has one that
/// ends well.
pub fn sweep(recipe: &str, deaths: &[Death]) {
    let seeds: Vec<String> = (0..deaths.len()).map(|seed| seed.to_string()).collect();
    let seeds = seeds.join(", ");
    let grid = format!(
        "[[grid]]\n\"seed\" = [{seeds}]\n\"measure.steps\" = [1000000]\n\
         [[grid]]\n\"seed\" = [1000]\n\"measure.steps\" = [1]\n"
    );
    let place = Place::new(&format!("{recipe}{grid}"));
    let mut command = place.command(&["run", "recipe.toml"]);
    // Nobody reads a pipe meanwhile.
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
    let mut before = Vec::new();
    for (rank, moment) in deaths {
        before = dies(&place, &run, &before, *rank, *moment);
    }
    assert_eq!(run.wait().expect("it ends").code(), Some(1));
    let mut rows = place.rows();
    rows.sort_by_key(|row| row["cell"]["seed"].as_u64());
    assert_eq!(rows.len(), deaths.len() + 1);
    let last = rows.pop().expect("a row");
    assert_eq!(last["status"], "ok", "the sweep goes on: {}", last["reason"]);
    for (row, (rank, moment)) in rows.iter().zip(deaths) {
        names(row, *rank, *moment);
    }
    let left: Vec<String> = files(place.path())
        .iter()
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .filter(|name| {
            !["recipe.toml", "results", "runner-cpu.lock", "runner-cpu.queue"].contains(&name.as_str())
        })
        .collect();
    assert!(left.is_empty(), "left in the folder: {left:?}");
}

fn names(row: &Value, rank: usize, moment: Duration) {
    let reason = row["reason"].as_str().expect("a reason");
    let named = format!("rank {rank} of 4: killed by signal 9 (SIGKILL)");
    assert!(
        row["status"] == "failed" && reason.starts_with(&named),
        "rank {rank} after {moment:?}: {reason}"
    );
}

/// Kills a rank of the next cell so long after all four have started, and waits until none is left; the ranks, which are
/// others than `before`.
fn dies(place: &Place, run: &Child, before: &[u32], rank: usize, moment: Duration) -> Vec<u32> {
    let mut ranks = Vec::new();
    place.wait("four ranks", || {
        ranks = children(run.id());
        ranks.len() == 4 && ranks.iter().all(|rank| !before.contains(rank))
    });
    std::thread::sleep(moment);
    let sockets = addresses(&ranks);
    kill(Pid::from_raw(ranks[rank] as i32), Signal::SIGKILL).expect("it runs");
    let start = Instant::now();
    place.wait("no rank is left", || ranks.iter().all(|rank| !alive(*rank)));
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "rank {rank} after {moment:?}: {took:?}");
    // Threads of a process that has ended may hold them for a moment.
    place.wait("no socket is left", || bound().iter().all(|(_, name)| !sockets.contains(name)));
    ranks
}

/// The names of the sockets that processes have open.
fn addresses(processes: &[u32]) -> BTreeSet<String> {
    let open = processes.iter().flat_map(|pid| files(format!("/proc/{pid}/fd").as_ref()));
    let links: BTreeSet<String> =
        open.filter_map(|path| Some(std::fs::read_link(path).ok()?.to_string_lossy().into_owned())).collect();
    let named = bound().into_iter();
    named.filter(|(inode, _)| links.contains(&format!("socket:[{inode}]"))).map(|(_, name)| name).collect()
}

/// Inode and name of every socket of a rank on this machine.
fn bound() -> Vec<(String, String)> {
    let table = std::fs::read_to_string("/proc/net/unix").expect("the system's sockets");
    let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let named = words.filter_map(|words| match words[..] {
        [.., inode, name] if name.starts_with("@runner-") => Some((inode.to_string(), name.to_string())),
        _ => None,
    });
    named.collect()
}

/// Each of the four ranks, so many times, in a moment from before they meet to the middle of training.
pub fn deaths(times: usize, seed: u64) -> Vec<Death> {
    // Knuth's generator: the high bits are as good as random.
    let mut state = seed;
    let mut moment = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Duration::from_millis((state >> 33) % 1200)
    };
    (0..times).flat_map(|_| 0..4).map(|rank| (rank, moment())).collect()
}

//! Processes that reach the ports of ranks on several hosts and do not know their secret.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::endings::children;
use crate::hosts::{free_port, impatient, two_hosts};
use crate::join::{CELLS, ended, joined};
use crate::place::{Ended, Place, changed, contents};

/// One process of `runner join`.
fn join(place: &Place, rank: usize, port: u32, more: &[(&str, &str)]) -> Child {
    let mut command = place.command(&["join", "recipe.toml"]);
    command.envs(two_hosts(rank, port)).envs(more.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts")
}

/// Connects to a rank that listens soon.
fn connected(port: u32) -> TcpStream {
    let start = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port as u16)) {
            Ok(stream) => return stream,
            Err(e) => assert!(start.elapsed() < Duration::from_secs(30), "{e}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the other side says before it closes the connection.
fn heard(mut stream: &TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    let mut all = Vec::new();
    // A connection that is reset has ended too.
    let _ = stream.read_to_end(&mut all);
    all
}

/// The processes of `runner join` of four ranks train on while strangers come to their port, who learn a random number.
#[test]
fn strangers_get_no_seat_and_learn_nothing() {
    let place = Place::new(&changed(CELLS, &[("[1, 2, 4]", "[4]")]));
    let port = free_port();
    let first = join(&place, 0, port, &[]);
    let idle: Vec<TcpStream> = (0..100).map(|_| connected(port)).collect();
    let start = Instant::now();
    let token = [&[b'f'; 48][..], &1u64.to_le_bytes(), &[0, 0]].concat();
    let line = b"{\"here\":{\"build\":{\"sources\":\"\",\"commit\":\"\"},\"host\":\"evil\",\"local\":0}}\n";
    for sent in [&token[..], line, &[1; 1 << 16], b"GET / HTTP/1.1\r\n\r\n"] {
        let stream = connected(port);
        let _ = (&stream).write_all(sent);
        let _ = stream.shutdown(Shutdown::Write);
        let heard = heard(&stream);
        assert!(heard.len() <= 32, "{heard:?}");
    }
    let others = (1..4).map(|rank| join(&place, rank, port, &[]));
    let mut ends = ended([first].into_iter().chain(others).collect());
    ends.remove(0).exits(0).says(&["1 measured"]);
    ends.into_iter().for_each(|follower| drop(follower.exits(0)));
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    idle.iter().for_each(|stream| assert!(heard(stream).len() <= 32));
    let text = format!("{:?}", place.rows());
    assert!(!text.contains("evil"), "{text}");
}

/// It is at the port first, and orders a cell that writes files: as the runner's own leader would, but for the secret.
#[test]
fn a_false_first_rank_makes_nobody_run_or_write() {
    let place = Place::new(&impatient());
    place.write("kept", "as it was");
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port as u16)).expect("it is free");
    let before = contents(place.path());
    let follower = join(&place, 1, port, &[]);
    let cell =
        "{\"start\":{\"cell\":{\"save\":{\"weights\":\"pwned\"}},\"memory_limit\":1,\"trace\":\"kept\"}}\n";
    let told = format!("{{\"Ok\":[null,\"127.0.0.1:{port}\"]}}");
    let told = [&(told.len() as u32).to_le_bytes()[..], told.as_bytes(), cell.as_bytes()].concat();
    thread::spawn(move || {
        // Its own random number and proof, and then its orders; to each call again.
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(&[7; 32]);
            let mut greeting = [0; 70];
            let _ = stream.read_exact(&mut greeting);
            let _ = stream.write_all(&[&greeting[38..], &told[..]].concat());
        }
    });
    let start = Instant::now();
    let follower_id = follower.id();
    let watched = thread::spawn(move || {
        (0..100).all(|_| {
            thread::sleep(Duration::from_millis(15));
            children(follower_id).is_empty()
        })
    });
    let end = Ended::from(follower.wait_with_output().expect("it ends"));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    end.exits(75).says(&["rank 0 did not come", "does not prove that it knows the secret", "RUNNER_SECRET"]);
    assert!(watched.join().expect("it ends"), "no process of a cell");
    assert_eq!(contents(place.path()), before);
}

#[test]
fn another_secret_is_the_reason_on_both_sides() {
    let place = Place::new(&impatient());
    let port = free_port();
    let processes = (0..4).map(|rank| {
        let other: &[(&str, &str)] = if rank == 3 { &[("RUNNER_SECRET", "another")] } else { &[] };
        join(&place, rank, port, other)
    });
    let ends = ended(processes.collect());
    for (rank, end) in ends.into_iter().enumerate() {
        let end = end.exits(75);
        match rank {
            0 => drop(end.says(&["rank 3 did not come", "RUNNER_SECRET must be the same in all processes"])),
            3 => drop(end.says(&["rank 0 did not come", "RUNNER_SECRET must be the same in all processes"])),
            _ => drop(end.says(&["rank 3 did not come"])),
        }
    }
    assert!(place.row_files().is_empty());
}

#[test]
fn another_recipe_is_refused_before_any_cell_runs() {
    let place = Place::new(CELLS);
    place.write("other.toml", &changed(CELLS, &[("lr = 1e-3", "lr = 1e-2")]));
    let port = free_port();
    let mut processes: Vec<Child> = (0..3).map(|rank| join(&place, rank, port, &[])).collect();
    let mut command = place.command(&["join", "other.toml"]);
    command.envs(two_hosts(3, port)).stdout(Stdio::piped()).stderr(Stdio::piped());
    processes.push(command.spawn().expect("the binary starts"));
    for end in ended(processes) {
        end.exits(1).says(&["rank 3 on second has read other cells", "give all ranks the same recipe"]);
    }
    assert!(place.row_files().is_empty());
}

/// The addresses at which a process listens, as `/proc/net/tcp` writes them.
fn listens_at(pid: u32) -> Vec<String> {
    let inode = |entry: std::fs::DirEntry| -> Option<String> {
        let link: PathBuf = std::fs::read_link(entry.path()).ok()?;
        Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_string())
    };
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let own: HashSet<String> = entries.filter_map(|entry| inode(entry.ok()?)).collect();
    let table = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let mut found = Vec::new();
    for line in format!("{}{}", table("tcp"), table("tcp6")).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() > 9 && words[3] == "0A" && own.contains(words[9]) {
            found.push(words[1].split(':').next().unwrap_or_default().to_string());
        }
    }
    found
}

/// Three of four ranks wait for the last, each at the address by which it reaches the first.
#[test]
fn ranks_listen_at_one_address_alone() {
    for host in ["127.0.0.1", "localhost"] {
        let place = Place::new(CELLS);
        let port = free_port();
        let processes: Vec<Child> =
            (0..3).map(|rank| join(&place, rank, port, &[("MASTER_ADDR", host)])).collect();
        let mut all = Vec::new();
        place.wait("three ranks that listen", || {
            all = processes.iter().map(|process| listens_at(process.id())).collect();
            all.iter().all(|own: &Vec<String>| !own.is_empty())
        });
        for mut process in processes {
            process.kill().expect("it runs");
            process.wait().expect("it ends");
        }
        let loopback = ["0100007F", "00000000000000000000000001000000"];
        assert!(all.iter().flatten().all(|at| loopback.contains(&at.as_str())), "{all:?}");
    }
}

/// A stranger that comes all the time, also when each cell's ranks meet anew.
#[test]
fn the_meetings_of_cells_are_guarded_too() {
    let place = Place::new(&changed(CELLS, &[("[1, 2, 4]", "[2, 4]")]));
    let port = free_port();
    let processes = joined(&place, two_hosts, port);
    let over = AtomicBool::new(false);
    let (ends, most) = thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Relaxed) {
                if let Ok(stream) = TcpStream::connect(("127.0.0.1", port as u16)) {
                    let _ = (&stream).write_all(&[1; 70]);
                    most = heard(&stream).len().max(most);
                }
                thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let ends = ended(processes);
        over.store(true, Relaxed);
        (ends, stranger.join().expect("it ends"))
    });
    ends.into_iter().next().expect("the first").exits(0).says(&["2 measured"]);
    assert_eq!(most, 32, "a random number at most, and at least once");
    assert!(place.rows().iter().all(|row| row["status"] == "ok"), "{:?}", place.rows());
}

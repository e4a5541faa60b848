//! The protocol between the leader and its followers: lines of JSON on the connections of their meeting.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::libc;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::run::build;
use crate::run::child_output::Line;
use crate::train::protocol::Request;
use crate::words::locked;
use crate::world::Stream;

/// From the leader.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The ranks cannot work together, for this reason.
    Refused(String),
    /// Start the process of a rank.
    Start(Box<Request>),
    /// Kill that process.
    Kill,
    /// There are no more cells.
    Over,
    /// The leader is there.
    Alive,
}

/// From a follower.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The first message: the follower's build, host, and number on its host.
    Here { build: Build, host: String, local: usize },
    /// A line that the process of its rank has printed.
    Line(Line),
    /// The last message of a cell: the process has ended with this wait status.
    Ended(i32),
    /// The follower is there.
    Alive,
}

/// How often each side says that it is there.
const BEAT: Duration = Duration::from_secs(1);
/// The least time after which a side that says nothing counts as gone.
const SILENCE: Duration = Duration::from_secs(10);

/// The writing end of a connection. Once a second it also says that this side is there.
#[derive(Debug)]
pub struct Sender(Arc<Mutex<Stream>>);

impl Sender {
    /// `alive`: the message that says no more.
    pub fn new(stream: Stream, alive: impl Serialize + Send + 'static) -> Self {
        let own = Arc::new(Mutex::new(stream));
        let held = Arc::downgrade(&own);
        thread::spawn(move || {
            loop {
                thread::sleep(BEAT);
                let Some(stream) = held.upgrade() else { break };
                if send(&locked(&stream), &alive).is_err() {
                    break;
                }
            }
        });
        Self(own)
    }

    /// Writes a message. The other side must accept it within the connection's time limit.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        send(&locked(&self.0), message)
    }
}

/// The build of a runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Build {
    pub sources: String,
    pub commit: String,
}

impl Build {
    pub fn own() -> Self {
        Self { sources: build::SOURCES.into(), commit: build::COMMIT.into() }
    }

    /// Its name for the user.
    pub fn named(&self) -> String {
        match self.commit.as_str() {
            "" => format!("build {}", self.sources),
            commit => format!("build {} of commit {commit}", self.sources),
        }
    }
}

fn send(mut stream: &Stream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// The messages of the other side, until it is gone, says nothing for too long, or sends something else.
pub fn messages<T: DeserializeOwned>(stream: Stream) -> impl Iterator<Item = T> {
    let lines = BufReader::new(stream).split(b'\n');
    lines.map_while(|line| serde_json::from_slice(&line.ok()?).ok())
}

/// Prepares a connection: `limit` is how long one write may take, and after which silence the other side counts as gone.
///
/// # Errors
/// When the other side is a process of another user of this host, who may know where the ranks meet.
pub fn prepare(stream: &Stream, limit: Duration) -> io::Result<()> {
    if let Stream::Local(stream) = stream {
        let (own, other) = (std::fs::metadata("/proc/self")?.uid(), user(stream)?);
        if own != other {
            let text = format!("it is a process of user {other}, and this one of user {own}");
            return Err(io::Error::other(text));
        }
    }
    stream.set_read_timeout(Some(limit.max(SILENCE)))?;
    stream.set_write_timeout(Some(limit))
}

/// The number of the user of the process at the other end.
fn user(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the borrowed `stream` keeps the descriptor open, and the system writes at most `size` bytes into `peer`, which
    // has that size and consists of numbers, for which any bits are valid.
    let result = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut size)
    };
    if result == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

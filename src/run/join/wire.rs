//! The protocol between the leader and its followers: lines of JSON on the connections of their meeting.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::common::locked;
use crate::run::build;
use crate::run::child_output::{EVENT_LINE, Line};
use crate::world::Stream;

/// From the leader.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The ranks cannot work together, and what to do.
    Refused { why: String, help: String },
    /// Start the process of a rank.
    Start(Start),
    /// Kill that process.
    Kill,
    /// There are no more cells.
    Over,
    /// The leader is there.
    Alive,
}

/// What a follower cannot know by itself about a cell to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// [`fingerprint`](super::reading::fingerprint) of the cell, which the follower has read too.
    pub cell: String,
    /// Bytes of device memory that the process may hold, at most what the cell's recipe says.
    pub memory_limit: u64,
    /// Whether one more step is recorded.
    pub trace: bool,
    /// Whether the cell is logged.
    pub logged: bool,
    /// Which of the start's meetings its ranks come to.
    pub meeting: String,
}

/// From a follower.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The first message.
    Here(Here),
    /// A line that the process of its rank has printed.
    Line(Line),
    /// The last message of a cell: the process has ended with this wait status.
    Ended(i32),
    /// The follower is there.
    Alive,
}

/// Who a follower is.
#[derive(Debug, Serialize, Deserialize)]
pub struct Here {
    pub build: Build,
    /// [`Reading::fingerprint`](super::reading::Reading::fingerprint)
    pub recipe: String,
    /// The name of its host, and its number there.
    pub place: (String, usize),
}

/// A message of one side.
pub trait Message: DeserializeOwned {
    /// Longest line of one in bytes; a longer one is none.
    const LONGEST: u64;
}

impl Message for Order {
    const LONGEST: u64 = 64 << 10;
}

impl Message for Report {
    /// It may hold a line of a cell's process.
    const LONGEST: u64 = EVENT_LINE + (64 << 10);
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
pub fn messages<T: Message>(stream: Stream) -> impl Iterator<Item = T> {
    let mut reader = BufReader::new(stream);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        reader.by_ref().take(T::LONGEST).read_until(b'\n', &mut line).ok()?;
        serde_json::from_slice(line.strip_suffix(b"\n")?).ok()
    })
}

/// Prepares a connection: `limit` is how long one write may take, and after which silence the other side counts as gone.
///
/// # Errors
/// The system's.
pub fn prepare(stream: &Stream, limit: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(limit.max(SILENCE)))?;
    stream.set_write_timeout(Some(limit))
}

//! [`ChildOutput`]: what a cell's processes print, read on threads of their own so that no process
//! ever blocks on a full pipe and a pipe that stays open never blocks the runner. [`Lines`] is its other end.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use itertools::Itertools;
use serde::{Deserialize, Serialize};

use crate::train::protocol::Event;

/// Longest line that is read as an event: the result of a cell with a million steps has 64 MB.
const EVENT_LINE: u64 = 128 << 20;
/// Longest piece of a line of other output that is looked at.
const TEXT_LINE: u64 = 4 << 10;
/// Lines of other output that a reason may quote.
const TAIL: usize = 8;
/// Rust's last words when an allocation is refused.
const ALLOCATION: (&str, &str) = ("memory allocation of ", " bytes failed");

/// What a process prints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Event(Event),
    Text(String),
    /// No more comes on standard output.
    End,
}

/// Where the lines of a cell's processes go.
#[derive(Clone)]
pub struct Lines(Sender<(usize, Line)>);

/// The output of all processes of a cell, by rank.
pub struct ChildOutput {
    lines: Receiver<(usize, Line)>,
    pub ranks: Vec<LastWords>,
}

/// What a process said apart from events.
#[derive(Default)]
pub struct LastWords {
    tail: VecDeque<String>,
    /// Size of the allocation that was refused, if the process said so.
    pub refused_allocation: Option<u64>,
    /// Whether no more events can come.
    pub ended: bool,
}

/// What [`ChildOutput::next`] came back with.
pub enum Received {
    /// Of this rank.
    Event(usize, Event),
    /// Nothing, or nothing of interest.
    Nothing,
    /// All pipes are closed.
    End,
}

impl ChildOutput {
    /// Of so many ranks; it ends when all copies of the other end are gone.
    pub fn of(ranks: usize) -> (Self, Lines) {
        let (to, lines) = channel();
        (Self { lines, ranks: (0..ranks).map(|_| LastWords::default()).collect() }, Lines(to))
    }

    /// Waits up to `limit` for the next line of a rank.
    ///
    /// # Errors
    /// When none comes, or none can come any more.
    pub fn line(&self, limit: Duration) -> Result<(usize, Line), RecvTimeoutError> {
        self.lines.recv_timeout(limit)
    }

    /// Waits up to `limit` for the next line.
    pub fn next(&mut self, limit: Duration) -> Received {
        match self.line(limit) {
            Ok((rank, Line::Event(event))) => Received::Event(rank, event),
            Ok((rank, Line::Text(line))) => {
                self.ranks[rank].note(line);
                Received::Nothing
            }
            Ok((rank, Line::End)) => {
                self.ranks[rank].ended = true;
                Received::Nothing
            }
            Err(RecvTimeoutError::Timeout) => Received::Nothing,
            Err(RecvTimeoutError::Disconnected) => Received::End,
        }
    }
}

impl Lines {
    /// Hands on what a rank's process prints. The threads end when the pipes close.
    pub fn read(&self, rank: usize, stdout: ChildStdout, stderr: ChildStderr) {
        let (to, also) = (self.clone(), self.clone());
        thread::spawn(move || {
            send_lines(stdout, EVENT_LINE, &|line| to.send(rank, event_or_text(line)));
            to.send(rank, Line::End);
        });
        thread::spawn(move || send_lines(stderr, TEXT_LINE, &|line| also.send(rank, text(line))));
    }

    /// Whether anybody still listens.
    pub fn send(&self, rank: usize, line: Line) -> bool {
        self.0.send((rank, line)).is_ok()
    }
}

impl LastWords {
    /// The last lines that were no events, oldest first.
    pub fn tail(&self) -> String {
        self.tail.iter().join("\n")
    }

    fn note(&mut self, line: String) {
        if line.trim().is_empty() {
            return;
        }
        let refused = line.split_once(ALLOCATION.0).and_then(|(_, rest)| rest.split_once(ALLOCATION.1));
        if let Some(bytes) = refused.and_then(|(bytes, _)| bytes.parse().ok()) {
            self.refused_allocation = Some(bytes);
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }
}

/// Libraries may print too; what is no event is kept like a line of stderr.
fn event_or_text(line: &[u8]) -> Line {
    serde_json::from_slice(line).map_or_else(|_| text(line), Line::Event)
}

/// The beginning of a line without control characters, which would disturb the terminal.
fn text(line: &[u8]) -> Line {
    let line = &line[..line.len().min(TEXT_LINE as usize)];
    let line = String::from_utf8_lossy(line);
    Line::Text(line.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
}

/// Hands on every line, in pieces of at most `longest` bytes, until the pipe closes or nobody receives.
fn send_lines(pipe: impl Read, longest: u64, send: &dyn Fn(&[u8]) -> bool) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(longest).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if !send(&line) => return,
            Ok(_) => {}
        }
    }
}

//! [`ChildOutput`]: the output of a cell's processes. Threads read it into [`Lines`], its other end, so that no process
//! blocks on a full pipe, and a pipe that stays open does not block the runner.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use itertools::Itertools;
use serde::{Deserialize, Serialize};

use crate::train::protocol::Event;

/// Longest line that is read as an event. A result has some 200 bytes for each step, so five million steps fit.
pub(super) const EVENT_LINE: u64 = 1 << 30;
/// Longest piece of another line that is read.
const TEXT_LINE: u64 = 4 << 10;
/// How many other lines a reason may quote.
const TAIL: usize = 8;
/// Rust's message when an allocation is refused, before and after its size.
const ALLOCATION: (&str, &str) = ("memory allocation of ", " bytes failed");

/// A line that a process prints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Event(Event),
    Text(String),
    /// Standard output has ended.
    End,
}

/// Takes the lines of a cell's processes.
#[derive(Clone, Debug)]
pub struct Lines(Sender<(usize, Line)>);

/// The output of all processes of a cell, by rank.
pub struct ChildOutput {
    lines: Receiver<(usize, Line)>,
    pub ranks: Vec<LastWords>,
}

/// The last lines of a process that were no events.
#[derive(Default)]
pub struct LastWords {
    tail: VecDeque<String>,
    /// Size of the allocation that was refused, if the process has reported one.
    pub refused_allocation: Option<u64>,
    /// Whether its standard output has ended: no event follows.
    pub ended: bool,
}

impl ChildOutput {
    /// The two ends for so many ranks. The output ends when all copies of `Lines` are gone.
    pub fn of(ranks: usize) -> (Self, Lines) {
        let (to, lines) = channel();
        (Self { lines, ranks: (0..ranks).map(|_| LastWords::default()).collect() }, Lines(to))
    }

    /// Waits up to `limit` for the next line of a rank.
    ///
    /// # Errors
    /// When none comes, or the output has ended.
    pub fn line(&self, limit: Duration) -> Result<(usize, Line), RecvTimeoutError> {
        self.lines.recv_timeout(limit)
    }

    /// Waits up to `limit` for the next line, and returns it with its rank if it is an event.
    ///
    /// # Errors
    /// When the output has ended.
    pub fn event(&mut self, limit: Duration) -> Result<Option<(usize, Event)>, RecvTimeoutError> {
        match self.line(limit) {
            Ok((rank, line)) => Ok(self.event_of(rank, line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(ended) => Err(ended),
        }
    }

    /// The events that have come, without waiting.
    pub fn ready(&mut self) -> Vec<(usize, Event)> {
        let lines: Vec<(usize, Line)> = self.lines.try_iter().collect();
        lines.into_iter().filter_map(|(rank, line)| self.event_of(rank, line)).collect()
    }

    fn event_of(&mut self, rank: usize, line: Line) -> Option<(usize, Event)> {
        match line {
            Line::Event(event) => return Some((rank, event)),
            Line::Text(line) => self.ranks[rank].note(line),
            Line::End => self.ranks[rank].ended = true,
        }
        None
    }
}

impl Lines {
    /// Reads the output of a rank's process on two threads, which end when the pipes close.
    pub fn read(&self, rank: usize, stdout: ChildStdout, stderr: ChildStderr) {
        let (to, also) = (self.clone(), self.clone());
        thread::spawn(move || {
            send_lines(stdout, EVENT_LINE, &|line| to.send(rank, event_or_text(line)));
            to.send(rank, Line::End);
        });
        thread::spawn(move || send_lines(stderr, TEXT_LINE, &|line| also.send(rank, text(line))));
    }

    /// Hands on a line; false if nobody listens.
    pub fn send(&self, rank: usize, line: Line) -> bool {
        self.0.send((rank, line)).is_ok()
    }
}

impl LastWords {
    /// The lines, oldest first.
    pub fn tail(&self) -> String {
        self.tail.iter().join("\n")
    }

    fn note(&mut self, line: String) {
        if line.trim().is_empty() {
            return;
        }
        let refused = line.split_once(ALLOCATION.0).and_then(|(_, rest)| rest.split_once(ALLOCATION.1));
        if let Some(bytes) = refused.and_then(|(bytes, _)| bytes.parse().ok()) {
            // The message of the failure may itself find no memory.
            self.refused_allocation = self.refused_allocation.or(Some(bytes));
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }
}

/// Libraries may print too: a line that is no event counts as text.
fn event_or_text(line: &[u8]) -> Line {
    serde_json::from_slice(line).map_or_else(|_| text(line), Line::Event)
}

/// The beginning of a line, without control characters, which would disturb the terminal.
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

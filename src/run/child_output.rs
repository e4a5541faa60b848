//! [`ChildOutput`]: what a cell's process prints, read on threads of their own so that the process
//! never blocks on a full pipe and a pipe that stays open never blocks the runner.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use itertools::Itertools;

use crate::train::protocol::Event;

/// Longest line that is read as an event: the result of a cell with a million steps has 64 MB.
const EVENT_LINE: u64 = 128 << 20;
/// Longest piece of a line of other output that is looked at.
const TEXT_LINE: u64 = 4 << 10;
/// Lines of other output that a reason may quote.
const TAIL: usize = 8;
/// Rust's last words when an allocation is refused.
const ALLOCATION: (&str, &str) = ("memory allocation of ", " bytes failed");

enum Line {
    Event(Event),
    Text(String),
}

/// The output of one process.
pub struct ChildOutput {
    lines: Receiver<Line>,
    tail: VecDeque<String>,
    /// Size of the allocation that was refused, if the process said so.
    pub refused_allocation: Option<u64>,
}

/// What [`ChildOutput::next`] came back with.
pub enum Received {
    Event(Event),
    /// Nothing, or nothing of interest.
    Nothing,
    /// Both pipes are closed.
    End,
}

impl ChildOutput {
    /// The threads end when the pipes close.
    pub fn start(stdout: ChildStdout, stderr: ChildStderr) -> Self {
        let (to, lines) = channel();
        let also = to.clone();
        thread::spawn(move || send_lines(stdout, EVENT_LINE, &to, event_or_text));
        thread::spawn(move || send_lines(stderr, TEXT_LINE, &also, text));
        Self { lines, tail: VecDeque::new(), refused_allocation: None }
    }

    /// Waits up to `limit` for the next line.
    pub fn next(&mut self, limit: Duration) -> Received {
        match self.lines.recv_timeout(limit) {
            Ok(Line::Event(event)) => Received::Event(event),
            Ok(Line::Text(line)) => {
                self.note(line);
                Received::Nothing
            }
            Err(RecvTimeoutError::Timeout) => Received::Nothing,
            Err(RecvTimeoutError::Disconnected) => Received::End,
        }
    }

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

/// Sends every line, in pieces of at most `longest` bytes, until the pipe closes or nobody receives.
fn send_lines(pipe: impl Read, longest: u64, to: &Sender<Line>, parse: fn(&[u8]) -> Line) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(longest).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if to.send(parse(&line)).is_err() => return,
            Ok(_) => {}
        }
    }
}

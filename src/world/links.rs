//! [`Links`]: a rank's connections to the others, and the frames on them. Each frame carries the text of its call, so that
//! ranks that do different things end with an error that has both texts, and not in silence.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::failure::Failure;
use super::stream::Stream;
use crate::device::cuda::Turn;

/// Longest text of a call and longest payload, in bytes; what is longer is not our frame. The call that takes a payload knows
/// better how long it must be.
const LONGEST_CALL: usize = 1 << 16;
const LONGEST_PAYLOAD: u64 = 1 << 40;

/// Memory for a payload is allocated as its bytes arrive: at first for so many, then for as many as have come.
const PIECE: usize = 64 << 20;

/// The texts of frames outside of calls. Their payload is the number of the GPU operation that the sender has reached:
/// counted over operations of all ranks, or over those between the two ranks.
const COMES: &str = "comes";
const MEETS: &str = "meets";

/// The text of a frame that says only that its sender still runs, and how often a rank without other work sends one.
const LIVES: &str = "lives";
pub(super) const BEAT: Duration = Duration::from_secs(1);

/// What is known about a rank without asking it.
#[derive(Debug, Default)]
pub struct Sign {
    /// The last operation of all GPUs that it has reached.
    pub came: AtomicU64,
    /// The last GPU operation between it and this rank that it has reached.
    pub met: AtomicU64,
    /// Frames from it.
    pub heard: AtomicU64,
    /// Whether its connection has ended.
    pub gone: AtomicBool,
}

/// The payload of one call.
struct Frame {
    call: String,
    payload: Vec<u8>,
}

/// A rank's connections.
pub struct Links {
    pub rank: usize,
    /// By rank; `None` for this one.
    peers: Vec<Option<Peer>>,
    /// How long a rank waits for another.
    pub limit: Duration,
    /// The first failure: no operation begins after it.
    failed: Option<Failure>,
    /// Bytes sent, texts included.
    sent: Arc<AtomicU64>,
    /// Calls so far, by operation and ranks.
    calls: HashMap<String, u64>,
}

struct Peer {
    stream: Stream,
    /// From a thread that reads all the time, so that two ranks can send to each other at once. An error is the last.
    frames: Receiver<io::Result<Frame>>,
}

impl Links {
    /// `streams`: by rank, `None` for this one. `signs`: by rank; threads keep them up to date.
    ///
    /// # Errors
    /// When the system refuses a time limit on a connection.
    pub fn new(
        rank: usize,
        streams: Vec<Option<Stream>>,
        limit: Duration,
        sent: Arc<AtomicU64>,
        signs: &Arc<[Sign]>,
    ) -> io::Result<Self> {
        let peer = |(rank, stream): (usize, Stream)| -> io::Result<Peer> {
            stream.set_write_timeout(Some(limit))?;
            stream.set_read_timeout(None)?;
            let (to, frames) = channel();
            let (reading, signs) = (stream.try_clone()?, signs.clone());
            thread::spawn(move || {
                read_frames(reading, &to, &signs[rank]);
                signs[rank].gone.store(true, Relaxed);
            });
            Ok(Peer { stream, frames })
        };
        let connected =
            |(rank, stream): (usize, Option<Stream>)| stream.map(|stream| peer((rank, stream))).transpose();
        let peers = streams.into_iter().enumerate().map(connected).collect::<io::Result<_>>()?;
        Ok(Self { rank, peers, limit, failed: None, sent, calls: HashMap::new() })
    }

    /// Carries out an operation, unless an earlier one failed.
    pub fn carry_out<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone());
        }
        let result = work(self);
        self.failed = result.as_ref().err().cloned();
        result
    }

    /// The number of the next such call, from 1.
    pub fn number(&mut self, call: String) -> u64 {
        let number = self.calls.entry(call).or_default();
        *number += 1;
        *number
    }

    /// Tells the other ranks that take part that this rank has reached an operation of the GPUs.
    pub fn come(&mut self, Turn { peer, number }: Turn) {
        let (own, call) = (self.rank, if peer.is_some() { MEETS } else { COMES });
        let takes_part = |other: &usize| *other != own && peer.is_none_or(|peer| peer == *other);
        for other in (0..self.peers.len()).filter(takes_part) {
            // Whoever waits for a rank finds out that it is gone.
            let _ = self.send(other, call, &number.to_le_bytes());
        }
    }

    /// Tells the other ranks that this one still runs.
    pub fn live(&self) {
        for peer in self.peers.iter().flatten() {
            // Whoever waits for a rank finds out that it is gone.
            let _ = write_both(&peer.stream, &head(LIVES, 0), &[]);
        }
    }

    /// # Errors
    /// When the peer is gone, or accepts no bytes within the limit.
    pub fn send(&mut self, to: usize, call: &str, payload: &[u8]) -> Result<(), Failure> {
        let stream = &self.peers[to].as_ref().expect("another rank").stream;
        let head = head(call, payload.len());
        self.sent.fetch_add((head.len() + payload.len()) as u64, Relaxed);
        write_both(stream, &head, payload).map_err(|e| {
            let seconds = self.limit.as_secs_f64();
            let reason = match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("rank {to} accepted no bytes of {call} for {seconds} s: {RAISE}")
                }
                _ => format!("rank {to} is gone: it was sent {call} ({e})"),
            };
            Failure::Lost { peer: to, reason }
        })
    }

    /// The payload of a call, which must have so many `bytes`.
    ///
    /// # Errors
    /// When the peer is gone, does not come within the limit, or comes with something else.
    pub fn receive(&mut self, from: usize, call: &str, bytes: usize) -> Result<Vec<u8>, Failure> {
        let payload = self.receive_any(self.limit, from, call)?;
        if payload.len() == bytes {
            return Ok(payload);
        }
        let reason = format!("rank {from} came to {call} with {} bytes, not {bytes}", payload.len());
        Err(Failure::Disagreement { reason })
    }

    /// A payload whose length only the peer knows.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_any(&self, limit: Duration, from: usize, call: &str) -> Result<Vec<u8>, Failure> {
        let peer = self.peers[from].as_ref().expect("another rank");
        match peer.frames.recv_timeout(limit) {
            Ok(Ok(frame)) if frame.call == call => Ok(frame.payload),
            Ok(Err(e)) => Err(Failure::Lost {
                peer: from,
                reason: format!("rank {from} is gone: it did not come to {call}, but {e}"),
            }),
            Ok(Ok(frame)) => Err(Failure::Disagreement {
                reason: format!(
                    "ranks disagree: rank {} came to {call}, and rank {from} to {}: this is a fault of the runner, \
                     report it with the recipe",
                    self.rank, frame.call
                ),
            }),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::Lost {
                peer: from,
                reason: format!("rank {from} is gone: it did not come to {call}"),
            }),
            Err(RecvTimeoutError::Timeout) => Err(Failure::Lost {
                peer: from,
                reason: format!("rank {from} did not come to {call} for {} s: {RAISE}", limit.as_secs_f64()),
            }),
        }
    }

    /// Closes all connections.
    pub fn close(&self) {
        for peer in self.peers.iter().flatten() {
            // The other side may have closed it already.
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }
}

pub(super) const RAISE: &str = "raise parallel.timeout where a rank may take that long";

impl Drop for Links {
    /// Bytes that were sent still arrive. The threads that read end.
    fn drop(&mut self) {
        self.close();
    }
}

/// What a frame begins with: two sizes and the text of its call.
fn head(call: &str, payload: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(12 + call.len());
    head.extend((call.len() as u32).to_le_bytes());
    head.extend((payload as u64).to_le_bytes());
    head.extend(call.as_bytes());
    head
}

/// Writes head and payload without copying them into one buffer.
fn write_both(mut stream: &Stream, head: &[u8], payload: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < head.len() {
        match stream.write_vectored(&[IoSlice::new(&head[written..]), IoSlice::new(payload)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => written += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    stream.write_all(&payload[written - head.len()..])
}

/// Hands on every frame until the connection ends or nobody receives, and keeps the sign up to date.
fn read_frames(mut stream: Stream, to: &Sender<io::Result<Frame>>, sign: &Sign) {
    loop {
        let frame = match read_frame(&mut stream) {
            Ok(frame) => frame,
            Err(e) => {
                // The end of a connection needs no words.
                if e.kind() == ErrorKind::InvalidData {
                    let _ = to.send(Err(e));
                }
                return;
            }
        };
        sign.heard.fetch_add(1, Relaxed);
        let last = match &*frame.call {
            LIVES => continue,
            COMES => Some(&sign.came),
            MEETS => Some(&sign.met),
            _ => None,
        };
        match last {
            Some(last) => last.store(frame.payload.try_into().map_or(0, u64::from_le_bytes), Relaxed),
            None if to.send(Ok(frame)).is_err() => return,
            None => {}
        }
    }
}

fn read_frame(stream: &mut Stream) -> io::Result<Frame> {
    let mut sizes = [0; 12];
    stream.read_exact(&mut sizes)?;
    let (call, payload) = sizes.split_at(4);
    let call = u32::from_le_bytes(call.try_into().expect("4 bytes")) as usize;
    let payload = u64::from_le_bytes(payload.try_into().expect("8 bytes"));
    if call > LONGEST_CALL || payload > LONGEST_PAYLOAD {
        let text = format!("sent what is no frame: a text of {call} bytes with {payload} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, text));
    }
    let text = read_exactly(stream, call)?;
    let payload = read_exactly(stream, payload as usize)?;
    Ok(Frame { call: String::from_utf8_lossy(&text).into_owned(), payload })
}

fn read_exactly(stream: &mut Stream, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        let have = bytes.len();
        bytes.resize(count.min(have + PIECE.max(have)), 0);
        stream.read_exact(&mut bytes[have..])?;
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;

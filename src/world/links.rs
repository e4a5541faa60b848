//! [`Links`]: a rank's connections to the others, and frames on them. Each carries the text of the call that it belongs
//! to, so that ranks that do not do the same end with both texts, and not in silence.

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

/// Longest text of a call; a longer one is no frame of ours.
const LONGEST_CALL: usize = 1 << 16;

/// The calls of frames that belong to none: the number of the operation of the GPUs that a rank comes to, of those of all
/// ranks or of those with this one alone.
const COMES: &str = "comes";
const MEETS: &str = "meets";

/// What is known of a rank without asking it.
#[derive(Debug, Default)]
pub struct Sign {
    /// The last operation of all GPUs that it has come to.
    pub came: AtomicU64,
    /// The same of those with this rank alone.
    pub met: AtomicU64,
    /// Whether its connection has ended.
    pub gone: AtomicBool,
}

/// Payload of one call on its way.
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
    limit: Duration,
    /// What ended this world: no operation after it begins.
    failed: Option<Failure>,
    /// Bytes sent, texts included.
    sent: Arc<AtomicU64>,
    /// Calls so far, by those who take part.
    calls: HashMap<String, u64>,
}

struct Peer {
    stream: Stream,
    /// From a thread that reads all the time: two ranks that send to each other both come through.
    frames: Receiver<Frame>,
}

impl Links {
    /// `streams`: by rank, `None` for this one; `signs`: by rank too, kept as they are from here on.
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

    /// Carries out one operation, unless one before it failed.
    pub fn carry_out<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone());
        }
        let result = work(self);
        self.failed = result.as_ref().err().cloned();
        result
    }

    /// The number of the next call of these ranks, from 1.
    pub fn number(&mut self, ranks: String) -> u64 {
        let number = self.calls.entry(ranks).or_default();
        *number += 1;
        *number
    }

    /// Lets the other ranks that take part know that this one comes to an operation of the GPUs.
    pub fn come(&mut self, Turn { peer, number }: Turn) {
        let (own, call) = (self.rank, if peer.is_some() { MEETS } else { COMES });
        let takes_part = |other: &usize| *other != own && peer.is_none_or(|peer| peer == *other);
        for other in (0..self.peers.len()).filter(takes_part) {
            // A rank that is gone is found to be so where it is waited for.
            let _ = self.send(other, call, &number.to_le_bytes());
        }
    }

    /// # Errors
    /// When the peer is gone, or takes nothing for as long as the limit.
    pub fn send(&mut self, to: usize, call: &str, payload: &[u8]) -> Result<(), Failure> {
        let stream = &self.peers[to].as_ref().expect("another rank").stream;
        let mut head = Vec::with_capacity(12 + call.len());
        head.extend((call.len() as u32).to_le_bytes());
        head.extend((payload.len() as u64).to_le_bytes());
        head.extend(call.as_bytes());
        self.sent.fetch_add((head.len() + payload.len()) as u64, Relaxed);
        write_both(stream, &head, payload).map_err(|e| {
            let seconds = self.limit.as_secs_f64();
            let reason = match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("rank {to} takes nothing of {call} for {seconds} s: {RAISE}")
                }
                _ => format!("rank {to} is gone: it was sent {call} ({e})"),
            };
            Failure::Lost { peer: to, reason }
        })
    }

    /// # Errors
    /// When the peer is gone, is silent for as long as the limit, or came with another call.
    pub fn receive(&mut self, from: usize, call: &str) -> Result<Vec<u8>, Failure> {
        let peer = self.peers[from].as_ref().expect("another rank");
        match peer.frames.recv_timeout(self.limit) {
            Ok(frame) if frame.call == call => Ok(frame.payload),
            Ok(frame) => Err(Failure::Disagreement {
                reason: format!(
                    "ranks do not do the same: rank {} came to {call}, and rank {from} to {}: this is a fault of the \
                     runner, report it with the recipe",
                    self.rank, frame.call
                ),
            }),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::Lost {
                peer: from,
                reason: format!("rank {from} is gone: it did not come to {call}"),
            }),
            Err(RecvTimeoutError::Timeout) => Err(Failure::Lost {
                peer: from,
                reason: format!(
                    "rank {from} did not come to {call} for {} s: {RAISE}",
                    self.limit.as_secs_f64()
                ),
            }),
        }
    }

    /// Ends all connections at once.
    pub fn close(&self) {
        for peer in self.peers.iter().flatten() {
            // A connection that the other side has closed is closed.
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }
}

pub(super) const RAISE: &str = "raise parallel.timeout where a rank may take that long";

impl Drop for Links {
    /// What is sent already arrives; the threads that read end.
    fn drop(&mut self) {
        self.close();
    }
}

/// Both, without a copy that puts them together.
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

/// Sends every frame until the connection ends or nobody receives, and keeps the signs.
fn read_frames(mut stream: Stream, to: &Sender<Frame>, sign: &Sign) {
    while let Ok(frame) = read_frame(&mut stream) {
        let last = match &*frame.call {
            COMES => Some(&sign.came),
            MEETS => Some(&sign.met),
            _ => None,
        };
        match last {
            Some(last) => last.store(frame.payload.try_into().map_or(0, u64::from_le_bytes), Relaxed),
            None if to.send(frame).is_err() => return,
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
    if call > LONGEST_CALL {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; call];
    stream.read_exact(&mut text)?;
    let mut bytes = vec![0; payload as usize];
    stream.read_exact(&mut bytes)?;
    Ok(Frame { call: String::from_utf8_lossy(&text).into_owned(), payload: bytes })
}

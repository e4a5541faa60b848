//! [`Seat`]: how ranks find each other. On one host they use sockets with abstract names, which leave no file behind
//! however a process ends; on several hosts they meet [over the network](super::network).

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::failure::Failure;
use super::links::RAISE;
use super::network;
use super::stream::Stream;
use crate::words::text::hex;

/// How often a rank checks whether another has come.
pub(super) const POLL: Duration = Duration::from_millis(2);

/// How long a process that has connected may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);

/// What a rank needs to meet the other ranks of its cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seat {
    pub rank: usize,
    pub size: usize,
    /// The rank's number on its host, from 0.
    pub local: usize,
    pub meeting: Meeting,
    /// The first bytes on each connection: other processes could connect too.
    token: String,
    /// Seconds that a rank waits for another.
    pub limit: f64,
}

/// Where ranks meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meeting {
    /// On one host: the beginning of the names of their sockets.
    Host(String),
    /// Over the network: `HOST:PORT` at which the first rank listens.
    Network(String),
}

/// Where the ranks are that were started on several hosts.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// `HOST:PORT` at which the first rank listens.
    pub address: String,
    /// By rank: the name of its host and its number there.
    pub places: Vec<(String, usize)>,
}

impl Seat {
    /// The seats of all ranks of a cell, on this host or on `hosts`.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn all(size: usize, limit: f64, hosts: Option<&Hosts>) -> io::Result<Vec<Self>> {
        let mut random = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let (name, token) = (format!("runner-{}", hex(&random[..8])), hex(&random[8..]));
        let seat = |rank: usize| {
            let (local, meeting) = match hosts {
                None => (rank, Meeting::Host(name.clone())),
                Some(hosts) => (hosts.places[rank].1, Meeting::Network(hosts.address.clone())),
            };
            Self { rank, size, local, meeting, token: token.clone(), limit }
        };
        Ok((0..size).map(seat).collect())
    }

    /// The seat of a process that a launcher has started: all of them compute the same name and token from `start`, which
    /// no other start has. A process that knows `start` can join. `address`: where ranks of several hosts meet.
    pub fn of_start((rank, size): (usize, usize), start: &str, address: Option<&String>, limit: f64) -> Self {
        let digest = Sha256::digest(start);
        let (name, token) = (format!("runner-{}", hex(&digest[..8])), hex(&digest[8..]));
        let meeting = address.map_or(Meeting::Host(name), |address| Meeting::Network(address.clone()));
        Self { rank, size, local: rank, meeting, token, limit }
    }

    /// How long a rank waits for another; too long a time to count is no limit.
    pub fn limit(&self) -> Duration {
        Duration::try_from_secs_f64(self.limit).unwrap_or(Duration::MAX).min(Duration::from_secs(1 << 30))
    }

    /// Connects to all other ranks; the connections by rank.
    ///
    /// # Errors
    /// Names the rank that did not come.
    pub fn meet(&self) -> Result<Vec<Option<Stream>>, Failure> {
        let deadline = Instant::now() + self.limit();
        match &self.meeting {
            Meeting::Host(name) => self.meet_here(name, deadline),
            Meeting::Network(address) => network::meet(self, address, deadline),
        }
    }

    fn meet_here(&self, name: &str, deadline: Instant) -> Result<Vec<Option<Stream>>, Failure> {
        let address = |rank: usize| SocketAddr::from_abstract_name(format!("{name}-{rank}"));
        let listener = address(self.rank).and_then(|address| UnixListener::bind_addr(&address));
        let listener = listener.map_err(|e| self.cannot_listen(&e))?;
        listener.set_nonblocking(true).map_err(|e| self.cannot_listen(&e))?;
        let mut streams: Vec<Option<Stream>> = (0..self.size).map(|_| None).collect();
        for (peer, stream) in streams.iter_mut().enumerate().take(self.rank) {
            let called = address(peer).and_then(|address| {
                let connect = || UnixStream::connect_addr(&address).map(Stream::Local);
                self.greet(patiently(deadline, POLL, connect)?, 0)
            });
            *stream = Some(called.map_err(|e| self.missed(peer, &e))?);
        }
        self.receive(&mut streams, deadline, || {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(false)?;
            Ok(Stream::Local(stream))
        })?;
        Ok(streams)
    }

    /// Waits for all higher ranks; `accept` returns one that has connected and does not wait.
    pub(super) fn receive(
        &self,
        streams: &mut [Option<Stream>],
        deadline: Instant,
        accept: impl Fn() -> io::Result<Stream>,
    ) -> Result<(), Failure> {
        while let Some(missing) = (self.rank + 1..self.size).find(|peer| streams[*peer].is_none()) {
            let came = patiently(deadline, POLL, &accept).map_err(|e| self.missed(missing, &e))?;
            // A process that does not know the token is no rank.
            if let Ok((peer, _, stream)) = self.welcome(came, deadline) {
                streams[peer] = Some(stream);
            }
        }
        Ok(())
    }

    pub(super) fn cannot_listen(&self, e: &io::Error) -> Failure {
        let reason = format!("rank {} cannot listen for the other ranks: {e}", self.rank);
        Failure::Lost { peer: self.rank, reason }
    }

    pub(super) fn missed(&self, peer: usize, e: &io::Error) -> Failure {
        let at = match &self.meeting {
            Meeting::Host(_) => String::new(),
            Meeting::Network(address) => format!(" at {address}"),
        };
        // It was tried until the time was up.
        let last = match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => String::new(),
            _ => format!(" ({e})"),
        };
        let why = format!(" for {} s{last}: {RAISE}", self.limit().as_secs_f64());
        let reason = format!("rank {peer} did not come to the meeting of all {} ranks{at}{why}", self.size);
        Failure::Lost { peer, reason }
    }

    /// Says which rank this is, and the port at which it listens, or 0.
    pub(super) fn greet(&self, stream: Stream, port: u16) -> io::Result<Stream> {
        stream.set_write_timeout(Some(self.limit()))?;
        let rank = (self.rank as u64).to_le_bytes();
        (&stream).write_all(&[self.token.as_bytes(), &rank, &port.to_le_bytes()].concat())?;
        Ok(stream)
    }

    /// Learns which higher rank has connected, and the port at which it listens.
    pub(super) fn welcome(&self, mut stream: Stream, deadline: Instant) -> io::Result<(usize, u16, Stream)> {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.clamp(POLL, GREETING)))?;
        let (mut token, mut rank, mut port) = (vec![0; self.token.len()], [0; 8], [0; 2]);
        stream.read_exact(&mut token)?;
        stream.read_exact(&mut rank)?;
        stream.read_exact(&mut port)?;
        let rank = u64::from_le_bytes(rank) as usize;
        if token != self.token.as_bytes() || !(self.rank + 1..self.size).contains(&rank) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok((rank, u16::from_le_bytes(port), stream))
    }
}

/// Tries `work` until it succeeds or the deadline has passed.
pub(super) fn patiently<T>(
    deadline: Instant,
    every: Duration,
    mut work: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match work() {
            Err(_) if Instant::now() < deadline => sleep(every),
            result => return result,
        }
    }
}

#[cfg(test)]
#[path = "rendezvous_tests.rs"]
mod tests;

//! [`Seat`]: how ranks find each other. On one host by sockets with abstract names, of which nothing is left in any folder
//! however a process ends; on several [over the network](super::network).

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::failure::Failure;
use super::network;
use super::stream::Stream;
use crate::words::text::hex;

/// How often a rank looks whether another has come.
pub(super) const POLL: Duration = Duration::from_millis(2);

/// How long whoever has connected may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);

/// The place of one rank among those of its cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seat {
    pub rank: usize,
    pub size: usize,
    /// The rank's number among those of its host.
    pub local: usize,
    pub meeting: Meeting,
    /// The first bytes on each connection. Others can come to the meeting too.
    token: String,
    /// Seconds that a rank waits for another.
    pub limit: f64,
}

/// Where ranks meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meeting {
    /// On one host: what the names of their sockets begin with.
    Host(String),
    /// Over the network, `HOST:PORT`: the first rank is there.
    Network(String),
}

/// The ranks of a start over several hosts.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Where they meet: `HOST:PORT` of the first.
    pub address: String,
    /// By rank, the name of its host and its number among the ranks there.
    pub places: Vec<(String, usize)>,
}

impl Seat {
    /// One for each rank of a cell, on one host or on these.
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

    /// One of processes that nobody gave a seat: what they all know of their start tells it from others. Whoever else
    /// knows that can come too. `address`: where those of several hosts meet.
    pub fn of_start((rank, size): (usize, usize), start: &str, address: Option<&String>, limit: f64) -> Self {
        let digest = Sha256::digest(start);
        let (name, token) = (format!("runner-{}", hex(&digest[..8])), hex(&digest[8..]));
        let meeting = address.map_or(Meeting::Host(name), |address| Meeting::Network(address.clone()));
        Self { rank, size, local: rank, meeting, token, limit }
    }

    /// A time limit too long to count is none.
    pub fn limit(&self) -> Duration {
        Duration::try_from_secs_f64(self.limit).unwrap_or(Duration::MAX).min(Duration::from_secs(1 << 30))
    }

    /// Connections to all other ranks, by rank.
    ///
    /// # Errors
    /// Which rank did not come.
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
        let listener = listener.map_err(|e| self.missed(self.rank, &e))?;
        listener.set_nonblocking(true).map_err(|e| self.missed(self.rank, &e))?;
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

    /// Waits for all higher ranks, whom `accept` gives one by one, without waiting.
    pub(super) fn receive(
        &self,
        streams: &mut [Option<Stream>],
        deadline: Instant,
        accept: impl Fn() -> io::Result<Stream>,
    ) -> Result<(), Failure> {
        while let Some(missing) = (self.rank + 1..self.size).find(|peer| streams[*peer].is_none()) {
            let came = patiently(deadline, POLL, &accept).map_err(|e| self.missed(missing, &e))?;
            // Whoever does not know the token is no rank.
            if let Ok((peer, _, stream)) = self.welcome(came, deadline) {
                streams[peer] = Some(stream);
            }
        }
        Ok(())
    }

    pub(super) fn missed(&self, peer: usize, e: &io::Error) -> Failure {
        let at = match &self.meeting {
            Meeting::Host(_) => String::new(),
            Meeting::Network(address) => format!(" at {address}"),
        };
        let reason = format!("rank {peer} did not come to the meeting of all {} ranks{at}: {e}", self.size);
        Failure::Lost { peer, reason }
    }

    /// Says who this is, and where it listens if it does.
    pub(super) fn greet(&self, stream: Stream, port: u16) -> io::Result<Stream> {
        stream.set_write_timeout(Some(self.limit()))?;
        let rank = (self.rank as u64).to_le_bytes();
        (&stream).write_all(&[self.token.as_bytes(), &rank, &port.to_le_bytes()].concat())?;
        Ok(stream)
    }

    /// The higher rank that has connected, and the port at which it listens.
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

/// Tries again until it works or the deadline has passed.
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

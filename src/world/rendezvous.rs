//! [`Seat`]: how ranks find each other. On one host they use sockets with abstract names, which leave no file behind
//! however a process ends; on several hosts they meet [over the network](super::network).

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::door::Door;
use super::failure::Failure;
use super::handshake::{self, Caller, Key, Party};
use super::links::RAISE;
use super::network;
use super::stream::Stream;

/// How often a rank checks whether another has come.
pub(super) const POLL: Duration = Duration::from_millis(2);

/// What a rank needs to meet the other ranks of its cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seat {
    pub rank: usize,
    pub size: usize,
    /// The rank's number on its host, from 0.
    pub local: usize,
    pub meeting: Meeting,
    /// Seconds that a rank waits for another.
    pub limit: f64,
}

/// Where ranks meet, and by what they know each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    key: Key,
    /// Over the network: `HOST:PORT` at which the first rank listens.
    pub address: Option<String>,
}

impl Meeting {
    /// On this host, of the processes that are given it.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn random() -> io::Result<Self> {
        Ok(Self { key: Key::random()?, address: None })
    }

    /// Of the processes that know the secret and the purpose, which no other meeting has. On one host the secret may be
    /// empty: there the system says whose process is at the other end.
    pub fn of(secret: &str, purpose: &str, address: Option<String>) -> Self {
        Self { key: Key::derived(secret.as_bytes(), purpose), address }
    }
}

impl Seat {
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
        match &self.meeting.address {
            None => self.meet_here(deadline),
            Some(address) => network::meet(self, address, deadline),
        }
    }

    fn meet_here(&self, deadline: Instant) -> Result<Vec<Option<Stream>>, Failure> {
        let name = self.meeting.key.name();
        let address = |rank: usize| SocketAddr::from_abstract_name(format!("runner-{name}-{rank}"));
        let listener = address(self.rank).and_then(|address| UnixListener::bind_addr(&address));
        let listener = listener.map_err(|e| self.cannot_listen(&e))?;
        listener.set_nonblocking(true).map_err(|e| self.cannot_listen(&e))?;
        let mut streams = Vec::new();
        for peer in 0..self.rank {
            let connect = || Ok((UnixStream::connect_addr(&address(peer)?).map(Stream::Local)?, 0));
            streams.push(Some(self.call(peer, deadline, POLL, connect)?));
        }
        self.receive(streams, deadline, &|| {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(false)?;
            Ok(Stream::Local(stream))
        })
    }

    pub(super) fn party(&self) -> Party {
        Party { key: self.meeting.key.clone(), rank: self.rank, size: self.size }
    }

    /// Calls a lower rank until it answers as one that knows the key: another process may have been there before it.
    /// `connect` also says at which port this rank listens, or 0.
    pub(super) fn call(
        &self,
        peer: usize,
        deadline: Instant,
        every: Duration,
        mut connect: impl FnMut() -> io::Result<(Stream, u16)>,
    ) -> Result<Stream, Failure> {
        let party = self.party();
        // It says more than that in the end nobody was there.
        let mut denied: Option<io::Error> = None;
        let called = patiently(deadline, every, || {
            let (stream, port) = connect()?;
            handshake::call(&party, peer, port, stream, deadline).map_err(|e| match e.kind() {
                ErrorKind::PermissionDenied => {
                    denied = Some(e);
                    ErrorKind::TimedOut.into()
                }
                _ => e,
            })
        });
        called.map_err(|e| self.missed(peer, &denied.unwrap_or(e)))
    }

    /// Waits for all higher ranks. `streams`: those of the lower ones.
    pub(super) fn receive(
        &self,
        mut streams: Vec<Option<Stream>>,
        deadline: Instant,
        accept: &dyn Fn() -> io::Result<Stream>,
    ) -> Result<Vec<Option<Stream>>, Failure> {
        let mut met: Vec<Option<Caller>> = (0..self.size).map(|_| None).collect();
        let received = Door::new(self.party()).receive(&mut met, deadline, accept);
        received.map_err(|(missing, e)| self.missed(missing, &e))?;
        streams.extend(met.into_iter().skip(self.rank).map(|caller| Some(caller?.stream)));
        Ok(streams)
    }

    pub(super) fn cannot_listen(&self, e: &io::Error) -> Failure {
        let reason = format!("rank {} cannot listen for the other ranks: {e}", self.rank);
        Failure::Lost { peer: self.rank, reason }
    }

    pub(super) fn missed(&self, peer: usize, e: &io::Error) -> Failure {
        let at = self.meeting.address.as_ref().map_or(String::new(), |address| format!(" at {address}"));
        // It was tried until the time was up.
        let last = match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => String::new(),
            _ => format!(" ({e})"),
        };
        let why = format!(" for {} s{last}: {RAISE}", self.limit().as_secs_f64());
        let reason = format!("rank {peer} did not come to the meeting of all {} ranks{at}{why}", self.size);
        Failure::Lost { peer, reason }
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

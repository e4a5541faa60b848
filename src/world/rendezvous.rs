//! [`Seat`]: how the ranks of a cell find each other on one host: sockets with abstract names, of which nothing is left
//! in any folder however a process ends.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::failure::Failure;
use crate::words::text::hex;

/// How often a rank looks whether another has come.
const POLL: Duration = Duration::from_millis(2);

/// The place of one rank among those of its cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seat {
    pub rank: usize,
    pub size: usize,
    /// What the names of the ranks' sockets begin with.
    pub address: String,
    /// The first bytes on each connection. Names can be read by every user of the machine.
    token: String,
    /// Seconds that a rank waits for another.
    pub limit: f64,
}

impl Seat {
    /// One for each rank of a cell.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn all(size: usize, limit: f64) -> io::Result<Vec<Self>> {
        let mut random = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let (address, token) = (format!("runner-{}", hex(&random[..8])), hex(&random[8..]));
        let seat = |rank| Self { rank, size, address: address.clone(), token: token.clone(), limit };
        Ok((0..size).map(seat).collect())
    }

    /// One of processes that nobody gave a seat: what they all know of their start tells it from others. Whoever else
    /// knows that can come too.
    pub fn of_start(rank: usize, size: usize, start: &str, limit: f64) -> Self {
        let digest = Sha256::digest(start);
        let (address, token) = (format!("runner-{}", hex(&digest[..8])), hex(&digest[8..]));
        Self { rank, size, address, token, limit }
    }

    /// A time limit too long to count is none.
    pub fn limit(&self) -> Duration {
        Duration::try_from_secs_f64(self.limit).unwrap_or(Duration::MAX).min(Duration::from_secs(1 << 30))
    }

    fn name(&self, rank: usize) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("{}-{rank}", self.address))
    }

    /// Connections to all other ranks, by rank.
    ///
    /// # Errors
    /// Which rank did not come.
    pub fn meet(&self) -> Result<Vec<Option<UnixStream>>, Failure> {
        let deadline = Instant::now() + self.limit();
        let mut streams: Vec<Option<UnixStream>> = (0..self.size).map(|_| None).collect();
        let failed = |peer: usize, e: &io::Error| Failure::Lost {
            peer,
            reason: format!("rank {peer} did not come to the meeting of all {} ranks: {e}", self.size),
        };
        let name = self.name(self.rank).and_then(|name| UnixListener::bind_addr(&name));
        let listener = name.map_err(|e| failed(self.rank, &e))?;
        listener.set_nonblocking(true).map_err(|e| failed(self.rank, &e))?;
        for (peer, stream) in streams.iter_mut().enumerate().take(self.rank) {
            *stream = Some(self.call(peer, deadline).map_err(|e| failed(peer, &e))?);
        }
        while let Some(missing) = (self.rank + 1..self.size).find(|peer| streams[*peer].is_none()) {
            match listener.accept() {
                // Whoever does not know the token is no rank.
                Ok((stream, _)) => match self.welcome(stream, deadline) {
                    Ok((peer, stream)) if peer > self.rank && peer < self.size => {
                        streams[peer] = Some(stream)
                    }
                    Ok(_) | Err(_) => {}
                },
                Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => sleep(POLL),
                Err(e) => return Err(failed(missing, &e)),
            }
        }
        Ok(streams)
    }

    /// Connects to a rank, which may not listen yet.
    fn call(&self, peer: usize, deadline: Instant) -> io::Result<UnixStream> {
        let name = self.name(peer)?;
        let mut stream = loop {
            match UnixStream::connect_addr(&name) {
                Err(_) if Instant::now() < deadline => sleep(POLL),
                result => break result?,
            }
        };
        stream.set_write_timeout(Some(self.limit()))?;
        stream.write_all(self.token.as_bytes())?;
        stream.write_all(&(self.rank as u64).to_le_bytes())?;
        Ok(stream)
    }

    /// The rank that has connected.
    fn welcome(&self, mut stream: UnixStream, deadline: Instant) -> io::Result<(usize, UnixStream)> {
        stream.set_nonblocking(false)?;
        let left = deadline.saturating_duration_since(Instant::now()).max(POLL);
        stream.set_read_timeout(Some(left))?;
        let (mut token, mut rank) = (vec![0; self.token.len()], [0; 8]);
        stream.read_exact(&mut token)?;
        stream.read_exact(&mut rank)?;
        if token != self.token.as_bytes() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok((u64::from_le_bytes(rank) as usize, stream))
    }
}

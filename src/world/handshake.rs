//! [`call`] and [`answer`]: what two ranks do first on a connection. Each proves to the other that it knows the key of their
//! meeting, which itself never travels. Both send a random number and then HMAC-SHA256 (RFC 2104) of both numbers, of who
//! calls whom, and of the addresses of the connection. So a proof is worth nothing on another connection, to another rank or
//! in the other direction: it can be neither replayed, nor reflected, nor handed on. What follows is not encrypted.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::stream::Stream;
use crate::common::text::hex;

/// Bytes of a key, of a random number and of a proof.
const BYTES: usize = 32;

/// What the ranks of one meeting know and nobody else does.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key([u8; BYTES]);

impl Key {
    /// # Errors
    /// When the system has no random numbers.
    pub fn random() -> io::Result<Self> {
        random().map(Self)
    }

    /// The key that a secret gives for one purpose. It says nothing about the secret or about keys for other purposes.
    pub fn derived(secret: &[u8], purpose: &str) -> Self {
        Self(keyed(secret).chain_update(purpose).finalize().into_bytes().into())
    }

    /// What other processes may see of it.
    pub fn name(&self) -> String {
        hex(&Self::derived(&self.0, "name").0[..8])
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// # Errors
/// When the system has no random numbers.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("a key may have any length")
}

/// This rank among those that meet.
#[derive(Clone, Debug)]
pub struct Party {
    pub key: Key,
    pub rank: usize,
    pub size: usize,
}

/// A rank that has called.
#[derive(Debug)]
pub struct Caller {
    pub rank: usize,
    /// Where it listens itself, if it said so.
    pub port: u16,
    pub stream: Stream,
}

/// What both sides prove that they know.
struct Greeting<'a> {
    key: &'a Key,
    /// Random numbers of the caller and of the one that answers.
    numbers: [[u8; BYTES]; 2],
    text: String,
}

#[derive(Clone, Copy, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
enum Role {
    Calls,
    Answers,
}

impl<'a> Greeting<'a> {
    /// `ends`: the addresses of the caller and of the one that answers.
    fn new(
        key: &'a Key,
        numbers: [[u8; BYTES]; 2],
        (from, to, size, port): (usize, usize, usize, u16),
        [caller, answers]: [String; 2],
    ) -> Self {
        let text = format!(
            "runner's ranks, 1: rank {from} of {size} at {caller} with port {port}, and rank {to} at {answers}"
        );
        Self { key, numbers, text }
    }

    fn mac(&self, role: Role) -> Hmac<Sha256> {
        let [caller, answers] = &self.numbers;
        let role: &str = role.into();
        keyed(&self.key.0)
            .chain_update(caller)
            .chain_update(answers)
            .chain_update(role)
            .chain_update(&self.text)
    }

    fn proof(&self, role: Role) -> [u8; BYTES] {
        self.mac(role).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    fn is_proved(&self, role: Role, proof: &[u8; BYTES]) -> bool {
        self.mac(role).verify_slice(proof).is_ok()
    }
}

/// The two sides do not know the same key.
fn denied(stream: &Stream, text: &str) -> io::Error {
    let why = match stream {
        Stream::Local(_) => "",
        Stream::Network(_) => {
            ": RUNNER_SECRET must be the same in all processes, and no router between their hosts may change addresses"
        }
    };
    io::Error::new(ErrorKind::PermissionDenied, format!("{text}{why}"))
}

/// Calls rank `to`, which is lower, and says at which port this rank listens, or 0.
///
/// # Errors
/// When the other side does not know the key ([`ErrorKind::PermissionDenied`]), or does not answer in time.
pub fn call(
    party: &Party,
    to: usize,
    port: u16,
    mut stream: Stream,
    deadline: Instant,
) -> io::Result<Stream> {
    stream.require_own_user()?;
    let [own_end, other_end] = stream.ends()?;
    let (own, theirs) = (random()?, read(&mut stream, deadline)?);
    let who = (party.rank, to, party.size, port);
    let greeting = Greeting::new(&party.key, [own, theirs], who, [own_end, other_end]);
    let rank = (party.rank as u32).to_le_bytes();
    let proof = greeting.proof(Role::Calls);
    stream.set_write_timeout(Some(left(deadline)?))?;
    (&stream).write_all(&[&own[..], &rank, &port.to_le_bytes(), &proof].concat())?;
    let proof = read(&mut stream, deadline).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            denied(&stream, "what is there does not accept this rank's proof that it knows the secret")
        }
        _ => e,
    })?;
    match greeting.is_proved(Role::Answers, &proof) {
        true => Ok(stream),
        false => Err(denied(&stream, "what is there does not prove that it knows the secret")),
    }
}

/// Learns which higher rank has connected.
///
/// # Errors
/// When it does not know the key ([`ErrorKind::PermissionDenied`]), or says nothing until the deadline.
pub fn answer(party: &Party, mut stream: Stream, deadline: Instant) -> io::Result<Caller> {
    stream.require_own_user()?;
    let [own_end, other_end] = stream.ends()?;
    let own: [u8; BYTES] = random()?;
    stream.set_write_timeout(Some(left(deadline)?))?;
    (&stream).write_all(&own)?;
    let (theirs, rank) = (read(&mut stream, deadline)?, read(&mut stream, deadline)?);
    let (port, proof) = (read(&mut stream, deadline)?, read(&mut stream, deadline)?);
    let (rank, port) = (u32::from_le_bytes(rank) as usize, u16::from_le_bytes(port));
    let who = (rank, party.rank, party.size, port);
    let greeting = Greeting::new(&party.key, [theirs, own], who, [other_end, own_end]);
    if !(party.rank + 1..party.size).contains(&rank) || !greeting.is_proved(Role::Calls, &proof) {
        return Err(denied(&stream, "it did not prove that it knows the secret"));
    }
    (&stream).write_all(&greeting.proof(Role::Answers))?;
    Ok(Caller { rank, port, stream })
}

fn read<const N: usize>(stream: &mut Stream, deadline: Instant) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    read_by(stream, &mut bytes, deadline)?;
    Ok(bytes)
}

/// Fills `bytes`, however slowly the other side sends them.
///
/// # Errors
/// When they have not come by the deadline.
pub fn read_by(stream: &mut Stream, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => bytes = &mut bytes[n..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The time until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;

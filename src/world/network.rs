//! [`meet`]: ranks of several hosts find each other over TCP. The first rank listens at an address that all of them know.
//! Every other rank connects there, says where it listens itself, and is told where the others listen.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use itertools::Itertools;

use super::door::Door;
use super::failure::Failure;
use super::handshake::{Caller, read_by};
use super::rendezvous::{Seat, patiently};
use super::stream::Stream;

/// How often a rank tries to connect to another.
const KNOCK: Duration = Duration::from_millis(20);

/// How long one address of a name may take to answer before the next is tried.
const CONNECT: Duration = Duration::from_secs(5);

/// How long the port may still be held by an earlier run's first rank.
const FREED: Duration = Duration::from_secs(5);

/// How much later the first rank's time limit may end than that of another.
const LATER: Duration = Duration::from_secs(2);

/// The most bytes of an address in the list of them.
const ADDRESS: usize = 64;

/// What the first rank tells the others: where each rank listens, or which rank did not come.
type Told = Result<Vec<Option<SocketAddr>>, usize>;

/// Connects to all other ranks; the connections by rank. The first rank listens at `address`.
///
/// # Errors
/// Names the rank that did not come.
pub fn meet(seat: &Seat, address: &str, deadline: Instant) -> Result<Vec<Option<Stream>>, Failure> {
    if seat.rank == 0 { receive(seat, address, deadline) } else { come(seat, address, deadline) }
}

fn receive(seat: &Seat, address: &str, deadline: Instant) -> Result<Vec<Option<Stream>>, Failure> {
    let in_time = deadline.min(Instant::now() + FREED);
    let listeners = patiently(in_time, KNOCK, || listen(address)).map_err(|e| Failure::Lost {
        peer: 0,
        reason: format!(
            "rank 0 cannot listen at {address}: {e}: set MASTER_ADDR to the host of rank 0, and MASTER_PORT to a port \
             that is free there"
        ),
    })?;
    let mut met: Vec<Option<Caller>> = (0..seat.size).map(|_| None).collect();
    let received = Door::new(seat.party()).receive(&mut met, deadline, &|| accept(&listeners, seat));
    let told: Told = match &received {
        Ok(()) => Ok(met.iter().map(|caller| place(caller.as_ref()?).ok()).collect()),
        Err((missing, _)) => Err(*missing),
    };
    for (peer, caller) in met.iter().enumerate().filter_map(|(peer, met)| Some((peer, met.as_ref()?))) {
        // A rank that is gone need not be told that another is missing.
        tell(&caller.stream, &told, seat.limit()).or_else(|e| match &received {
            Ok(()) => Err(seat.missed(peer, &e)),
            Err(_) => Ok(()),
        })?;
    }
    received.map_err(|(missing, e)| within_reach(seat.missed(missing, &e), address, &listeners))?;
    Ok(met.into_iter().map(|caller| Some(caller?.stream)).collect())
}

/// Where a rank that has called listens: at the address from which it called.
fn place(caller: &Caller) -> io::Result<SocketAddr> {
    let mut address = caller.stream.peer()?;
    address.set_port(caller.port);
    Ok(address)
}

/// Adds to the reason that no other host can come, if so.
fn within_reach(failure: Failure, address: &str, listeners: &[TcpListener]) -> Failure {
    let own: Vec<_> = listeners.iter().filter_map(|own| Some(own.local_addr().ok()?.ip())).collect();
    match failure {
        Failure::Lost { peer, reason } if own.iter().all(|ip| ip.is_loopback()) => {
            let own = own.iter().join(" and ");
            let why = format!(
                "; on the host of rank 0 {address} is {own}, which no other host reaches: if there are others, set \
                 MASTER_ADDR to the address at which they reach it"
            );
            Failure::Lost { peer, reason: reason + &why }
        }
        failure => failure,
    }
}

fn come(seat: &Seat, address: &str, deadline: Instant) -> Result<Vec<Option<Stream>>, Failure> {
    let mut own: Option<TcpListener> = None;
    let mut first = seat.call(0, deadline, KNOCK, || {
        let first = connect(address, deadline)?;
        // Only at the address by which the others know this rank.
        let mut here = first.local_addr()?;
        here.set_port(0);
        let listener = own.insert(TcpListener::bind(here)?);
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok((Stream::network(first, seat.limit())?, port))
    })?;
    let listeners = [own.expect("it has called")];
    let told = hear(&mut first, seat.size, deadline + LATER).map_err(|e| Failure::Lost {
        peer: 0,
        reason: format!("rank 0 did not say that all {} ranks have come to {address}: {e}", seat.size),
    })?;
    let others = told.map_err(|peer| seat.missed(peer, &ErrorKind::TimedOut.into()))?;
    let mut streams = vec![Some(first)];
    for peer in 1..seat.rank {
        let place = others.get(peer).copied().flatten();
        let reach = || {
            let stream = connect(place.ok_or(ErrorKind::InvalidData)?, deadline)?;
            Ok((Stream::network(stream, seat.limit())?, 0))
        };
        streams.push(Some(seat.call(peer, deadline, KNOCK, reach)?));
    }
    seat.receive(streams, deadline, &|| accept(&listeners, seat))
}

/// Listens at the addresses of this name that are this host's, and at no others.
pub(super) fn listen(address: &str) -> io::Result<Vec<TcpListener>> {
    let (mut listeners, mut elsewhere) = (Vec::new(), Vec::new());
    for address in address.to_socket_addrs()?.unique() {
        let listener = match address.ip().is_unspecified() {
            true => Err(ErrorKind::AddrNotAvailable.into()),
            false => TcpListener::bind(address),
        };
        match listener {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                listeners.push(listener);
            }
            // The kernel may have no IPv6.
            Err(e)
                if e.kind() == ErrorKind::AddrNotAvailable
                    || e.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) =>
            {
                elsewhere.push(address.ip());
            }
            Err(e) => return Err(e),
        }
    }
    if listeners.is_empty() {
        let text = format!("{} is no address of this host", elsewhere.iter().join(", "));
        return Err(io::Error::new(ErrorKind::AddrNotAvailable, text));
    }
    Ok(listeners)
}

/// A process that has connected; does not wait.
fn accept(listeners: &[TcpListener], seat: &Seat) -> io::Result<Stream> {
    let mut last = ErrorKind::WouldBlock.into();
    for listener in listeners {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Stream::network(stream, seat.limit());
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// At the first of the addresses of this name that answers.
fn connect(address: impl ToSocketAddrs, deadline: Instant) -> io::Result<TcpStream> {
    let mut result = Err(ErrorKind::AddrNotAvailable.into());
    for address in address.to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        result = TcpStream::connect_timeout(&address, left.clamp(KNOCK, CONNECT));
        if result.is_ok() {
            break;
        }
    }
    result
}

fn tell(mut stream: &Stream, told: &Told, limit: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(limit))?;
    let text = serde_json::to_vec(told)?;
    stream.write_all(&(text.len() as u32).to_le_bytes())?;
    stream.write_all(&text)
}

fn hear(stream: &mut Stream, ranks: usize, deadline: Instant) -> io::Result<Told> {
    let mut length = [0; 4];
    read_by(stream, &mut length, deadline)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > ADDRESS * (ranks + 1) {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    read_by(stream, &mut text, deadline)?;
    Ok(serde_json::from_slice(&text)?)
}

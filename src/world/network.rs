//! [`meet`]: ranks of several hosts find each other over TCP. The first rank listens at an address that all of them know.
//! Every other rank connects there, says where it listens itself, and is told where the others listen.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::rendezvous::{POLL, Seat, patiently};
use super::stream::Stream;

/// How often a rank tries to connect to another.
const KNOCK: Duration = Duration::from_millis(20);

/// How long the port may still be held by an earlier run's first rank.
const FREED: Duration = Duration::from_secs(5);

/// How much later the first rank's time limit may end than that of another.
const LATER: Duration = Duration::from_secs(2);

/// Longest list of addresses in bytes; a longer one is an error.
const LONGEST: u32 = 1 << 20;

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
    let listener = patiently(in_time, KNOCK, || listen(address)).map_err(|e| Failure::Lost {
        peer: 0,
        reason: format!(
            "rank 0 cannot listen at {address}: {e}: set MASTER_ADDR to the host of rank 0, and MASTER_PORT to a port \
             that is free there"
        ),
    })?;
    let mut met: Vec<Option<(Stream, SocketAddr)>> = (0..seat.size).map(|_| None).collect();
    while let Some(missing) = (1..seat.size).find(|peer| met[*peer].is_none()) {
        match patiently(deadline, POLL, || accept(&listener, seat)) {
            // A process that does not know the token is no rank.
            Ok((stream, from)) => {
                if let Ok((peer, port, stream)) = seat.welcome(stream, deadline) {
                    met[peer] = Some((stream, SocketAddr::new(from.ip(), port)));
                }
            }
            Err(e) => {
                for (stream, _) in met.iter().flatten() {
                    // A rank that is gone need not be told.
                    let _ = tell(stream, &Err(missing), seat.limit());
                }
                return Err(seat.missed(missing, &e));
            }
        }
    }
    let told = Ok(met.iter().map(|met| met.as_ref().map(|(_, address)| *address)).collect());
    for (peer, (stream, _)) in met.iter().enumerate().filter_map(|(peer, met)| Some((peer, met.as_ref()?))) {
        tell(stream, &told, seat.limit()).map_err(|e| seat.missed(peer, &e))?;
    }
    Ok(met.into_iter().map(|met| met.map(|(stream, _)| stream)).collect())
}

fn come(seat: &Seat, address: &str, deadline: Instant) -> Result<Vec<Option<Stream>>, Failure> {
    let missed = |peer: usize| move |e: io::Error| seat.missed(peer, &e);
    let mut streams: Vec<Option<Stream>> = (0..seat.size).map(|_| None).collect();
    let first = patiently(deadline, KNOCK, || connect(address, deadline)).map_err(missed(0))?;
    // A rank on the first rank's host connects by loopback; the others reach it at the first rank's address.
    let host = first.peer_addr().map_err(missed(0))?.ip();
    let own = if host.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let listening = || -> io::Result<(TcpListener, u16)> {
        let listener = TcpListener::bind((own, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    };
    let (listener, port) = listening().map_err(|e| seat.cannot_listen(&e))?;
    let mut first =
        Stream::network(first, seat.limit()).and_then(|first| seat.greet(first, port)).map_err(missed(0))?;
    let told = hear(&mut first, deadline + LATER).map_err(|e| Failure::Lost {
        peer: 0,
        reason: format!("rank 0 did not say that all {} ranks have come to {address}: {e}", seat.size),
    })?;
    let others = told.map_err(|peer| seat.missed(peer, &io::ErrorKind::TimedOut.into()))?;
    streams[0] = Some(first);
    for (peer, stream) in streams.iter_mut().enumerate().take(seat.rank).skip(1) {
        let address = others.get(peer).copied().flatten().map(|address| match address.ip().is_loopback() {
            true => SocketAddr::new(host, address.port()),
            false => address,
        });
        let called = address.ok_or_else(|| io::ErrorKind::InvalidData.into()).and_then(|address| {
            let stream = patiently(deadline, KNOCK, || connect(address, deadline))?;
            seat.greet(Stream::network(stream, seat.limit())?, 0)
        });
        *stream = Some(called.map_err(missed(peer))?);
    }
    seat.receive(&mut streams, deadline, || Ok(accept(&listener, seat)?.0))?;
    Ok(streams)
}

/// Listens at the given address of this host. If it is a name, or belongs to a router, listens at all of its addresses.
fn listen(address: &str) -> io::Result<TcpListener> {
    let (host, port) = address.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let port: u16 = port.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let own = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let all = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for ip in own.into_iter().chain(all) {
        result = TcpListener::bind((ip, port));
        let elsewhere = |e: &io::Error| {
            // The kernel may have no IPv6.
            e.kind() == io::ErrorKind::AddrNotAvailable || e.raw_os_error() == Some(nix::libc::EAFNOSUPPORT)
        };
        if !result.as_ref().is_err_and(elsewhere) {
            break;
        }
    }
    let listener = result?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A process that has connected; does not wait.
fn accept(listener: &TcpListener, seat: &Seat) -> io::Result<(Stream, SocketAddr)> {
    let (stream, from) = listener.accept()?;
    stream.set_nonblocking(false)?;
    Ok((Stream::network(stream, seat.limit())?, SocketAddr::new(from.ip().to_canonical(), from.port())))
}

/// At the first of the addresses of this name that answers.
fn connect(address: impl ToSocketAddrs, deadline: Instant) -> io::Result<TcpStream> {
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in address.to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now()).max(KNOCK);
        result = TcpStream::connect_timeout(&address, left);
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

fn hear(stream: &mut Stream, deadline: Instant) -> io::Result<Told> {
    let left = deadline.saturating_duration_since(Instant::now());
    stream.set_read_timeout(Some(left.max(KNOCK)))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

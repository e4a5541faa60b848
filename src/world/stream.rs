//! [`Stream`]: a connection between two ranks, within a host or between hosts.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::libc;

/// The system refuses more seconds between two probes of a connection.
const MOST_BETWEEN_PROBES: libc::c_int = 32_767;

#[derive(Debug)]
pub enum Stream {
    /// Within one host.
    Local(UnixStream),
    /// Between hosts.
    Network(TcpStream),
}

/// Does the same with either kind.
macro_rules! of_either {
    ($stream:expr, $own:ident => $work:expr) => {
        match $stream {
            Stream::Local($own) => $work,
            Stream::Network($own) => $work,
        }
    };
}

impl Stream {
    /// A connection over the network. It fails once the other host has not answered for `limit`.
    ///
    /// # Errors
    /// The system's.
    pub fn network(stream: TcpStream, limit: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let seconds = limit.as_secs().clamp(4, i32::MAX as u64 / 2000) as libc::c_int;
        let probed = |seconds: libc::c_int| seconds.clamp(1, MOST_BETWEEN_PROBES);
        for (level, option, value) in [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, probed(seconds / 2)),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, probed(seconds / 8)),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, seconds * 1000),
        ] {
            // SAFETY: `stream` keeps the descriptor open, and the system reads one integer.
            let result = unsafe {
                let (value, size) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
                libc::setsockopt(stream.as_raw_fd(), level, option, value, size)
            };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self::Network(stream))
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The system's; within a host there is none.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Local(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Network(stream) => stream.peer_addr().map(canonical),
        }
    }

    /// This end of the connection and the other, as texts; within a host they are empty.
    ///
    /// # Errors
    /// The system's.
    pub fn ends(&self) -> io::Result<[String; 2]> {
        match self {
            Self::Local(_) => Ok(Default::default()),
            Self::Network(stream) => {
                Ok([stream.local_addr()?, stream.peer_addr()?].map(|end| canonical(end).to_string()))
            }
        }
    }

    /// # Errors
    /// When the other side is a process of another user of this host.
    pub fn require_own_user(&self) -> io::Result<()> {
        let Self::Local(stream) = self else { return Ok(()) };
        // SAFETY: it only returns a number.
        let (own, other) = (unsafe { libc::geteuid() }, user(stream)?);
        if own == other {
            return Ok(());
        }
        let text = format!("it is a process of user {other}, and this one of user {own}");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Local(stream) => Self::Local(stream.try_clone()?),
            Self::Network(stream) => Self::Network(stream.try_clone()?),
        })
    }

    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        of_either!(self, stream => stream.shutdown(how))
    }

    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        of_either!(self, stream => stream.set_read_timeout(limit))
    }

    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        of_either!(self, stream => stream.set_write_timeout(limit))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        of_either!(self, stream => stream.read(buffer))
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        of_either!(self, stream => (&*stream).write(bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice]) -> io::Result<usize> {
        of_either!(self, stream => (&*stream).write_vectored(parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An IPv4 address reads the same at both ends, and no end has the other's number of an interface.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The number of the user of the process at the other end.
fn user(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the borrowed `stream` keeps the descriptor open, and the system writes at most `size` bytes into `peer`, which
    // has that size and consists of numbers, for which any bits are valid.
    let result = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut size)
    };
    if result == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_takes_every_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for seconds in [0, 30, 65_536, 1_000_000, u64::MAX] {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            Stream::network(stream, Duration::from_secs(seconds))
                .unwrap_or_else(|e| panic!("{seconds} s: {e}"));
        }
    }
}

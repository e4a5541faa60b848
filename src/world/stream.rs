//! [`Stream`]: a connection between two ranks, within a host or between hosts.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::libc;

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
        for (level, option, value) in [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds / 2),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (seconds / 8).max(1)),
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

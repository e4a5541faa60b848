//! [`Door`]: where a rank waits for the higher ones. It serves all that connect side by side, so that one that says nothing
//! keeps nobody waiting.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::handshake::{Caller, Party, answer};
use super::rendezvous::POLL;
use super::stream::Stream;

/// How long one that has connected may take to prove who it is.
const GREETING: Duration = Duration::from_secs(5);

/// Connections that may be open before they have proved who they are. Then the oldest makes room for the next, once it has
/// had its time; a rank needs far less for its proof.
const MOST: usize = 64;
const TURN: Duration = Duration::from_millis(200);

pub struct Door {
    party: Party,
    /// Those that have proved nothing yet, oldest first: their numbers, when they came, and their connections.
    open: VecDeque<(u64, Instant, Stream)>,
    /// How many have connected.
    came: u64,
    to: Sender<(u64, io::Result<Caller>)>,
    heard: Receiver<(u64, io::Result<Caller>)>,
    /// Why one that connected is no rank.
    refused: Option<io::Error>,
}

impl Door {
    pub fn new(party: Party) -> Self {
        let (to, heard) = channel();
        Self { party, open: VecDeque::new(), came: 0, to, heard, refused: None }
    }

    /// Waits for all higher ranks; `met` is by rank. `accept` returns one that has connected and does not wait.
    ///
    /// # Errors
    /// A rank that has not come by the deadline, and what is known of the reason.
    pub fn receive(
        &mut self,
        met: &mut [Option<Caller>],
        deadline: Instant,
        accept: &dyn Fn() -> io::Result<Stream>,
    ) -> Result<(), (usize, io::Error)> {
        while let Some(missing) = (self.party.rank + 1..self.party.size).find(|rank| met[*rank].is_none()) {
            let caller = self.next(deadline, accept).map_err(|e| (missing, e))?;
            let rank = caller.rank;
            met[rank] = Some(caller);
        }
        Ok(())
    }

    fn next(&mut self, deadline: Instant, accept: &dyn Fn() -> io::Result<Stream>) -> io::Result<Caller> {
        loop {
            let accepted = if self.has_room() { accept() } else { Err(ErrorKind::WouldBlock.into()) };
            let wait = if accepted.is_ok() { Duration::ZERO } else { POLL };
            if let Err(e) = accepted.and_then(|stream| self.greet(stream)) {
                self.note(e);
            }
            if let Ok((number, heard)) = self.heard.recv_timeout(wait) {
                self.open.retain(|(open, ..)| *open != number);
                match heard {
                    Ok(caller) => return Ok(caller),
                    Err(e) => self.note(e),
                }
            }
            if Instant::now() >= deadline {
                return Err(self.refused.take().unwrap_or_else(|| ErrorKind::TimedOut.into()));
            }
        }
    }

    /// Keeps what explains best why a rank is missing: that somebody came and did not know the secret.
    fn note(&mut self, e: io::Error) {
        let why = match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => return,
            ErrorKind::PermissionDenied => format!("another process came: {e}"),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                "another process came and closed its connection".into()
            }
            _ => e.to_string(),
        };
        if self.refused.as_ref().is_none_or(|known| known.kind() != ErrorKind::PermissionDenied) {
            self.refused = Some(io::Error::new(e.kind(), why));
        }
    }

    /// Makes room for another connection, if it can.
    fn has_room(&mut self) -> bool {
        if self.open.len() < MOST {
            return true;
        }
        match self.open.pop_front_if(|(_, came, _)| came.elapsed() >= TURN) {
            Some((_, _, stream)) => {
                // Its thread ends.
                let _ = stream.shutdown(Shutdown::Both);
                true
            }
            None => false,
        }
    }

    /// Lets a thread find out who has connected.
    fn greet(&mut self, stream: Stream) -> io::Result<()> {
        let (number, party, to) = (self.came, self.party.clone(), self.to.clone());
        let also = stream.try_clone()?;
        let work = move || {
            let heard = answer(&party, stream, Instant::now() + GREETING);
            // Nobody waits once all ranks are there.
            let _ = to.send((number, heard));
        };
        thread::Builder::new().spawn(work)?;
        self.came += 1;
        self.open.push_back((number, Instant::now(), also));
        Ok(())
    }
}

impl Drop for Door {
    /// Ends the threads.
    fn drop(&mut self) {
        for (_, _, stream) in &self.open {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

//! [`Watch`]: ends a wait for an operation between GPUs that cannot end. The device waits in such an operation and the host
//! does not, so a thread looks at it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::links::{BEAT, RAISE, Sign};
use crate::device::cuda::{Collectives, Turn, UnderWay};

/// How often the thread looks at the operation.
const LOOK: Duration = Duration::from_millis(50);

/// A rank that has said nothing for so long does not run.
const SILENT: Duration = BEAT.saturating_mul(5);

/// How long an operation may still take after one of its ranks has ended.
const GRACE: Duration = Duration::from_secs(2);

/// Watches until it is dropped.
pub struct Watch {
    /// The thread ends when this is dropped.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread. It calls `lost`, once, when an operation cannot end.
    pub fn start(
        gpus: Arc<Collectives>,
        signs: Arc<[Sign]>,
        (rank, limit): (usize, Duration),
        lost: fn(Failure),
    ) -> Self {
        let (end, ended) = channel();
        let thread = thread::spawn(move || {
            let mut heard: Vec<_> = signs.iter().map(|_| (0, Instant::now())).collect();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK) {
                for (sign, (last, at)) in signs.iter().zip(&mut heard) {
                    let frames = sign.heard.load(Relaxed);
                    if std::mem::replace(last, frames) != frames {
                        *at = Instant::now();
                    }
                }
                let silent = |peer: usize| heard[peer].1.elapsed();
                let failed = gpus.failure().map(|reason| Failure::Gpus { reason });
                let found = failed.or_else(|| judged(&gpus.under_way()?, rank, limit, &signs, silent));
                if let Some(failure) = found {
                    return lost(failure);
                }
            }
        });
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end = None;
        // The thread never waits for another rank.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Why the running operation cannot end; `None` if it still can. `silent`: for how long a rank has said nothing.
fn judged(
    at: &UnderWay,
    rank: usize,
    limit: Duration,
    signs: &[Sign],
    silent: impl Fn(usize) -> Duration,
) -> Option<Failure> {
    let UnderWay { turn: Turn { peer, number }, operation, since } = at;
    let takes_part = |other: &usize| *other != rank && peer.is_none_or(|peer| peer == *other);
    let (waited, others) = (since.elapsed(), || (0..signs.len()).filter(takes_part));
    let has_come = |other: &usize| {
        let sign = &signs[*other];
        let last = if peer.is_some() { &sign.met } else { &sign.came };
        last.load(Relaxed) >= *number
    };
    let is_gone = |peer: &usize| signs[*peer].gone.load(Relaxed);
    if let Some(peer) = others().find(|peer| is_gone(peer) && (waited > GRACE || !has_come(peer))) {
        return Some(Failure::Lost {
            peer,
            reason: format!("rank {peer} is gone: it did not end {operation}"),
        });
    }
    let seconds = limit.as_secs_f64();
    if waited < limit {
        return None;
    }
    match others().find(|peer| !has_come(peer)) {
        Some(peer) => Some(Failure::Lost {
            peer,
            reason: format!("rank {peer} did not come to {operation} for {seconds} s: {RAISE}"),
        }),
        // A rank may be stopped after it has come and before its device has the operation.
        None => Some(match others().find(|peer| silent(*peer) > SILENT) {
            Some(peer) => Failure::Lost {
                peer,
                reason: format!(
                    "{operation} has not ended for {seconds} s, and rank {peer} has said nothing for {:.0} s: find out \
                     what stopped its process or its host",
                    silent(peer).as_secs_f64()
                ),
            },
            None => Failure::Gpus {
                reason: format!(
                    "{operation}, to which every rank came, has not ended for {seconds} s: {RAISE}, or set \
                     parallel.engine = \"sockets\""
                ),
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What rank 0 of three finds at operation 5, which it reached `waited` seconds ago, with a limit of 30 s.
    fn found(waited: u64, came: [u64; 3], gone: Option<usize>) -> Option<Failure> {
        found_with(None, waited, came.map(|came| (came, 0)), gone)
    }

    /// As `found`, for an operation with all ranks or with `peer`. `came`: by rank, the last operation of either kind that it
    /// has reached.
    fn found_with(
        peer: Option<usize>,
        waited: u64,
        came: [(u64, u64); 3],
        gone: Option<usize>,
    ) -> Option<Failure> {
        judged_with(peer, waited, came, gone, None)
    }

    /// As `found_with`; `silent` has said nothing since it came.
    fn judged_with(
        peer: Option<usize>,
        waited: u64,
        came: [(u64, u64); 3],
        gone: Option<usize>,
        silent: Option<usize>,
    ) -> Option<Failure> {
        let sign = |(rank, (came, met)): (usize, (u64, u64))| Sign {
            came: came.into(),
            met: met.into(),
            heard: 0.into(),
            gone: (gone == Some(rank)).into(),
        };
        let signs: Vec<Sign> = came.into_iter().enumerate().map(sign).collect();
        let since = Instant::now().checked_sub(Duration::from_secs(waited)).expect("the clock has run");
        let at = UnderWay { turn: Turn { peer, number: 5 }, operation: "operation 5".into(), since };
        let silence = |rank| Duration::from_secs(if silent == Some(rank) { waited } else { 1 });
        judged(&at, 0, Duration::from_secs(30), &signs, silence)
    }

    fn lost(failure: Option<Failure>) -> (usize, String) {
        match failure {
            Some(Failure::Lost { peer, reason }) => (peer, reason),
            other => panic!("a rank is lost, not {other:?}"),
        }
    }

    #[test]
    fn the_rank_that_did_not_come_is_named_after_the_limit() {
        assert_eq!(found(29, [5, 5, 4], None), None);
        let (peer, reason) = lost(found(31, [5, 5, 4], None));
        assert!(peer == 2 && reason.contains("did not come to operation 5 for 30 s"), "{reason}");
        assert!(matches!(found(31, [5, 6, 5], None), Some(Failure::Gpus { .. })));
    }

    #[test]
    fn a_rank_that_came_and_says_nothing_is_named_after_the_limit() {
        let come = [(5, 0); 3];
        assert_eq!(judged_with(None, 29, come, None, Some(2)), None);
        let (peer, reason) = lost(judged_with(None, 31, come, None, Some(2)));
        assert!(peer == 2 && reason.contains("rank 2 has said nothing for 31 s"), "{reason}");
    }

    #[test]
    fn a_message_is_waited_for_from_its_other_end_alone() {
        // Rank 2 has reached nothing, and does not take part.
        assert_eq!(found_with(Some(1), 29, [(0, 0), (9, 4), (0, 0)], None), None);
        assert_eq!(found_with(Some(1), 0, [(0, 0), (9, 4), (0, 0)], Some(2)), None);
        assert_eq!(lost(found_with(Some(1), 31, [(0, 0), (9, 4), (0, 0)], None)).0, 1);
        assert_eq!(lost(found_with(Some(1), 0, [(0, 0), (9, 4), (0, 0)], Some(1))).0, 1);
        assert!(matches!(
            found_with(Some(1), 31, [(0, 0), (0, 5), (0, 0)], None),
            Some(Failure::Gpus { .. })
        ));
    }

    #[test]
    fn a_rank_that_is_gone_is_named_at_once() {
        assert_eq!(lost(found(0, [5, 4, 4], Some(1))).0, 1);
        // One that has come may have ended well: then the operation ends in a moment.
        assert_eq!(found(1, [5, 5, 6], Some(1)), None);
        assert_eq!(lost(found(3, [5, 5, 6], Some(1))).0, 1);
        assert_eq!(found(1, [5, 5, 6], Some(0)), None);
    }
}

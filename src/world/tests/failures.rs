//! Every way in which ranks fail each other.

use std::thread;
use std::time::{Duration, Instant};

use super::{LONG, SHORT, failure, on_ranks};
use crate::world::{Failure, ProcessGroup};

#[test]
fn ranks_that_disagree_end_with_both_texts() {
    type Work = fn(&ProcessGroup);
    let of_size: [Work; 2] = [
        |all| drop(all.all_reduce("x", vec![0.0; 4]).wait()),
        |all| drop(all.all_reduce("x", vec![0.0; 6]).wait()),
    ];
    let of_name: [Work; 2] = [
        |all| drop(all.all_reduce("x", vec![0.0; 4]).wait()),
        |all| drop(all.all_reduce("y", vec![0.0; 4]).wait()),
    ];
    let of_order: [Work; 2] = [
        |all| drop(all.reduce_scatter("x", vec![0.0; 4]).wait()),
        |all| drop(all.broadcast("weights", 0, vec![0; 4]).wait()),
    ];
    for (work, texts) in [
        (of_size, ["4 elements", "6 elements"]),
        (of_name, ["of \"x\"", "of \"y\""]),
        (of_order, ["reduce_scatter", "broadcast of \"weights\""]),
    ] {
        let start = Instant::now();
        let failures = on_ranks(2, LONG, |world| failure(|| work[world.rank()](world.all())));
        assert!(start.elapsed() < Duration::from_secs(5));
        let told = failures.iter().find_map(|failure| match failure {
            Failure::Disagreement { reason } => Some(reason),
            Failure::Lost { .. } | Failure::Gpus { .. } => None,
        });
        let told = told.expect("one rank sees that they disagree");
        assert!(texts.iter().all(|text| told.contains(text)), "{told}");
    }
}

#[test]
fn a_rank_that_ends_is_named_at_once() {
    let start = Instant::now();
    let failures = on_ranks(3, LONG, |world| match world.rank() {
        1 => None,
        _ => Some(failure(|| drop(world.all().all_reduce("gradients", vec![1.0; 10]).wait()))),
    });
    assert!(start.elapsed() < Duration::from_secs(5));
    let failures: Vec<_> = failures.into_iter().flatten().collect();
    // One that has ended for that may be missed in its turn.
    assert!(failures.iter().all(|failure| matches!(failure, Failure::Lost { .. })), "{failures:?}");
    let first = failures.iter().find_map(|failure| match failure {
        Failure::Lost { peer: 1, reason } => Some(reason),
        _ => None,
    });
    let reason = first.expect("one rank misses it");
    assert!(reason.contains("rank 1 is gone") && reason.contains("\"gradients\""), "{reason}");
}

#[test]
fn a_silent_rank_is_waited_for_no_longer_than_the_limit() {
    let start = Instant::now();
    let failures = on_ranks(2, SHORT, |world| match world.rank() {
        1 => {
            thread::sleep(Duration::from_secs(1));
            None
        }
        _ => Some(failure(|| drop(world.all().all_reduce("gradients", vec![1.0; 10]).wait()))),
    });
    assert!(start.elapsed() < Duration::from_secs(5));
    let Some(Failure::Lost { peer: 1, reason }) = &failures[0] else { panic!("{failures:?}") };
    assert!(reason.contains("for 0.3 s: raise parallel.timeout"), "{reason}");
}

/// It may write files for longer than ranks usually wait.
#[test]
fn a_busy_rank_is_waited_for_as_long_as_it_is_there() {
    let bytes = on_ranks(3, SHORT, |world| {
        if world.rank() == 0 {
            thread::sleep(3 * SHORT);
        }
        world.all().broadcast_when_ready("end of saving", 0, vec![world.rank() as u8; 2]).wait()
    });
    assert_eq!(bytes, [[0, 0]; 3]);
    let start = Instant::now();
    let failures = on_ranks(2, LONG, |world| {
        let wait = || drop(world.all().broadcast_when_ready("end of saving", 0, Vec::new()).wait());
        (world.rank() == 1).then(|| failure(wait))
    });
    assert!(matches!(failures[1], Some(Failure::Lost { peer: 0, .. })), "{failures:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// After a failure every operation fails in the same way, without another wait.
#[test]
fn no_operation_begins_after_a_failure() {
    on_ranks(2, SHORT, |world| {
        if world.rank() == 0 {
            let tickets: Vec<_> = (0..50).map(|_| world.all().all_reduce("x", vec![0.0])).collect();
            let start = Instant::now();
            let failures: Vec<_> =
                tickets.into_iter().map(|ticket| failure(|| drop(ticket.wait()))).collect();
            assert!(failures.iter().all(|failure| *failure == failures[0]));
            assert!(start.elapsed() < 5 * SHORT);
        } else {
            thread::sleep(2 * SHORT);
        }
    });
}

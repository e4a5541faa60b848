//! Frames that no rank sends.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;
use crate::world::World;
use crate::world::tests::failure;

/// Rank 0, which sums two numbers with a rank 1 that sends these bytes and ends.
fn fails_on(bytes: &[u8]) -> Failure {
    let (own, other) = UnixStream::pair().unwrap();
    let world = World::linked(0, vec![None, Some(Stream::Local(own))], Duration::from_secs(20)).unwrap();
    (&other).write_all(bytes).unwrap();
    other.shutdown(Shutdown::Write).unwrap();
    let start = Instant::now();
    let failure = failure(|| drop(world.all().all_reduce("x", vec![1.0; 2]).wait()));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    failure
}

const CALL: &str = "operation 1 of ranks 0, 1, all_reduce of \"x\" of 2 elements";

fn claimed(call: u32, payload: u64) -> Vec<u8> {
    [&call.to_le_bytes()[..], &payload.to_le_bytes()].concat()
}

#[test]
fn a_frame_of_any_size_allocates_nothing_before_it_comes() {
    for (head, named) in [
        (claimed(1, 1 << 63), "9223372036854775808 bytes"),
        (claimed(1, u64::MAX), "18446744073709551615 bytes"),
        (claimed(u32::MAX, 1), "a text of 4294967295 bytes"),
        // This is a size, but nothing follows.
        ([claimed(1, 1 << 39), vec![b'x']].concat(), "did not come"),
    ] {
        let Failure::Lost { peer: 1, reason } = fails_on(&head) else { panic!("a loss") };
        assert!(reason.contains("rank 1 is gone") && reason.contains(named), "{reason}");
    }
}

#[test]
fn a_frame_has_the_bytes_that_its_call_expects() {
    for bytes in [0, 3, 5, 8, 4096] {
        let frame = [head(CALL, bytes), vec![0; bytes]].concat();
        let Failure::Disagreement { reason } = fails_on(&frame) else { panic!("a disagreement") };
        assert!(reason.contains(&format!("{CALL} with {bytes} bytes, not 4")), "{reason}");
    }
    // With the right one the sum goes on, to the next frame.
    let Failure::Lost { peer: 1, .. } = fails_on(&[head(CALL, 4), vec![0; 4]].concat()) else {
        panic!("a loss")
    };
}

//! Ranks of one host and of several that meet, miss one of them, and refuse others.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::world::World;
use crate::world::tests::failure;

/// The seats of a meeting of its own, on one host or at an address.
fn seats(size: usize, limit: f64, address: Option<&String>) -> Vec<Seat> {
    let meeting = Meeting { address: address.cloned(), ..Meeting::random().unwrap() };
    (0..size).map(|rank| Seat { rank, size, local: rank, meeting: meeting.clone(), limit }).collect()
}

/// Where nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn seats_meet_in_any_order_and_a_missing_one_is_named() {
    [None, Some(&free_address())].into_iter().for_each(seats_meet);
}

fn seats_meet(address: Option<&String>) {
    let meet = |limit: f64, late: usize, missing: Option<usize>| -> Vec<Result<f32, Failure>> {
        let seats = seats(4, limit, address);
        thread::scope(|scope| {
            let sit = |seat: &Seat| {
                if seat.rank == late {
                    thread::sleep(Duration::from_millis(50));
                }
                World::join(seat)
                    .map(|world| world.all().all_reduce("rank", vec![seat.rank as f32]).wait()[0])
            };
            let seats: Vec<Seat> = seats.into_iter().filter(|seat| Some(seat.rank) != missing).collect();
            let threads: Vec<_> = seats.into_iter().map(|seat| scope.spawn(move || sit(&seat))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    for late in 0..4 {
        assert_eq!(meet(20.0, late, None), vec![Ok(6.0); 4]);
    }
    for result in meet(0.3, 9, Some(2)) {
        let Err(Failure::Lost { peer: 2, reason }) = result else { panic!("{result:?}") };
        for part in
            ["rank 2 did not come to the meeting of all 4 ranks", "for 0.3 s", "raise parallel.timeout"]
        {
            assert!(reason.contains(part), "{reason}");
        }
    }
}

/// The sums of both ranks, and the time that they took.
fn meet_both(seats: &[Seat]) -> ([Result<f32, Failure>; 2], Duration) {
    let start = Instant::now();
    let sum = |seat: &Seat| World::join(seat).map(|world| world.all().all_reduce("x", vec![2.0]).wait()[0]);
    let both = thread::scope(|scope| {
        let first = scope.spawn(|| sum(&seats[0]));
        let second = sum(&seats[1]);
        [first.join().unwrap(), second]
    });
    (both, start.elapsed())
}

#[test]
fn who_does_not_know_the_key_gets_no_seat() {
    [None, Some(&free_address())].into_iter().for_each(refuses_strangers);
}

fn refuses_strangers(address: Option<&String>) {
    let (seats, mut strangers) = (seats(2, 5.0, address), seats(2, 1.0, address));
    let mut stranger = strangers.remove(1);
    if address.is_none() {
        // It knows the name of the socket, and nothing else.
        stranger.size = 3;
        stranger.meeting.clone_from(&seats[0].meeting);
    }
    thread::scope(|scope| {
        let first = scope.spawn(|| World::join(&seats[0]).unwrap().all().all_reduce("x", vec![1.0]).wait());
        let refused = World::join(&stranger).map(|world| failure(|| world.all().barrier("x")));
        let Err(Failure::Lost { peer: 0, reason }) = refused else { panic!("{refused:?}") };
        assert!(reason.contains("does not accept this rank's proof"), "{reason}");
        assert_eq!(reason.contains("RUNNER_SECRET"), address.is_some(), "{reason}");
        assert_eq!(World::join(&seats[1]).unwrap().all().all_reduce("x", vec![2.0]).wait(), [3.0]);
        assert_eq!(first.join().unwrap(), [3.0]);
    });
}

#[test]
fn with_another_secret_both_sides_say_so() {
    let address = Some(free_address());
    let seat = |rank, secret: &str| {
        let meeting = Meeting::of(secret, "test", address.clone());
        Seat { rank, size: 2, local: 0, meeting, limit: 0.8 }
    };
    let (both, _) = meet_both(&[seat(0, "one"), seat(1, "two")]);
    for (result, missed) in both.into_iter().zip([1, 0]) {
        let Err(Failure::Lost { peer, reason }) = result else { panic!("{result:?}") };
        assert_eq!(peer, missed);
        assert!(reason.contains("RUNNER_SECRET must be the same in all processes"), "{reason}");
    }
}

/// What comes first to the port may say nothing, or too much.
#[test]
fn idle_connections_keep_no_rank_waiting() {
    let address = free_address();
    let seats = seats(2, 20.0, Some(&address));
    let idle = thread::spawn(move || {
        let connect = || {
            patiently(Instant::now() + Duration::from_secs(5), POLL, || TcpStream::connect(&address)).unwrap()
        };
        (0..100).map(|_| connect()).collect::<Vec<_>>()
    });
    thread::scope(|scope| {
        let first = scope.spawn(|| World::join(&seats[0]).map(|world| world.all().barrier("x")));
        let mut idle = idle.join().unwrap();
        let start = Instant::now();
        World::join(&seats[1]).unwrap().all().barrier("x");
        first.join().unwrap().unwrap();
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        // They are sent away, each with a random number at most.
        for stream in &mut idle {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut told = Vec::new();
            let _ = stream.read_to_end(&mut told);
            assert!(told.len() <= 32, "{told:?}");
        }
    });
}

/// It holds the port of the first rank, and lets it go after a while.
#[test]
fn a_false_first_rank_gets_no_followers() {
    let address = free_address();
    let seats = seats(2, 20.0, Some(&address));
    let taken = TcpListener::bind(&address).unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| World::join(&seats[1]).unwrap().all().all_reduce("x", vec![2.0]).wait());
        for answer in [&[][..], &[1; 64], b"\x05\x00\x00\x00[1,2]"] {
            let (mut caller, _) = taken.accept().unwrap();
            io::Write::write_all(&mut caller, answer).unwrap();
            let _ = caller.shutdown(std::net::Shutdown::Write);
            let _ = caller.read_to_end(&mut Vec::new());
        }
        drop(taken);
        assert_eq!(World::join(&seats[0]).unwrap().all().all_reduce("x", vec![1.0]).wait(), [3.0]);
        assert_eq!(second.join().unwrap(), [3.0]);
    });
}

#[test]
fn where_the_first_rank_cannot_listen_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).unwrap();
    for (address, why) in [
        (taken.1.as_str(), "in use"),
        ("192.0.2.7:29500", "192.0.2.7 is no address of this host"),
        ("0.0.0.0:29500", "0.0.0.0 is no address of this host"),
        ("no-such-host.invalid:29500", "lookup"),
    ] {
        let seat = seats(2, 0.1, Some(&address.to_string())).remove(0);
        let Err(Failure::Lost { reason, .. }) = seat.meet() else { panic!("a failure") };
        let parts = ["rank 0 cannot listen at", address, why, "MASTER_ADDR", "MASTER_PORT"];
        parts.iter().for_each(|part| assert!(reason.contains(part), "no `{part}` in {reason}"));
    }
}

#[test]
fn a_name_is_listened_to_at_its_own_addresses_alone() {
    let port = free_address().rsplit_once(':').unwrap().1.to_string();
    let (both, _) = meet_both(&seats(2, 20.0, Some(&format!("localhost:{port}"))));
    assert_eq!(both, [Ok(4.0), Ok(4.0)]);
    let listeners = network::listen(&format!("localhost:{port}")).unwrap();
    assert!(!listeners.is_empty());
    assert!(listeners.iter().all(|own| own.local_addr().unwrap().ip().is_loopback()), "{listeners:?}");
}

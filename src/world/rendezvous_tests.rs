//! Ranks of one host and of several that meet, miss one of them, and refuse others.

use std::net::TcpListener;
use std::thread;

use super::*;
use crate::world::World;
use crate::world::tests::failure;

#[test]
fn seats_meet_in_any_order_and_a_missing_one_is_named() {
    let hosts = Hosts { address: free_address(), places: vec![("here".into(), 0); 4] };
    [None, Some(&hosts)].into_iter().for_each(seats_meet);
}

/// Where nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn seats_meet(hosts: Option<&Hosts>) {
    let meet = |limit: f64, late: usize, missing: Option<usize>| -> Vec<Result<f32, Failure>> {
        let seats = Seat::all(4, limit, hosts).unwrap();
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

#[test]
fn who_does_not_know_the_token_gets_no_seat() {
    let hosts = Hosts { address: free_address(), places: vec![("here".into(), 0); 2] };
    [None, Some(&hosts)].into_iter().for_each(refuses_strangers);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let hosts = Hosts { address: address.clone(), places: vec![("here".into(), 0); 2] };
    let seat = Seat::all(2, 0.1, Some(&hosts)).unwrap().remove(0);
    let Err(Failure::Lost { reason, .. }) = seat.meet() else { panic!("a failure") };
    assert!(reason.contains(&address) && reason.contains("MASTER_PORT"), "{reason}");
}

fn refuses_strangers(hosts: Option<&Hosts>) {
    let seats = Seat::all(2, 5.0, hosts).unwrap();
    let strangers = Seat::all(2, 5.0, hosts).unwrap();
    let mut stranger = strangers[1].clone();
    stranger.meeting.clone_from(&seats[0].meeting);
    thread::scope(|scope| {
        let first = scope.spawn(|| World::join(&seats[0]).unwrap().all().all_reduce("x", vec![1.0]).wait());
        let refused = World::join(&stranger).map(|world| failure(|| world.all().barrier("x")));
        assert!(matches!(refused, Err(Failure::Lost { peer: 0, .. }) | Ok(Failure::Lost { peer: 0, .. })));
        assert_eq!(World::join(&seats[1]).unwrap().all().all_reduce("x", vec![2.0]).wait(), [3.0]);
        assert_eq!(first.join().unwrap(), [3.0]);
    });
}

//! Ranks as threads: results and their bits.

mod failures;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::device::cuda::Turn;
use crate::ops::{narrow, wide};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

/// Runs `work` on a thread for each rank; the results by rank.
pub fn on_ranks<T: Send>(size: usize, limit: Duration, work: impl Fn(&World) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> =
            World::threads(size, limit).into_iter().map(|world| scope.spawn(move || work(&world))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

/// The failure of `work`.
pub(super) fn failure(work: impl FnOnce()) -> Failure {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("it fails");
    *panic.downcast::<Failure>().expect("a failure")
}

/// Element i of rank r: values whose sum depends on the order of additions.
fn values(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((rank * 31 + i * 7) % 13) as f32 * 0.1 + 1e6 * f32::from(rank == i % 3)).collect()
}

/// The sums of these values, added in the order of ranks.
fn sums(ranks: usize, count: usize) -> Vec<f32> {
    let zero = vec![0.0; count];
    (0..ranks).fold(zero, |sum, rank| sum.iter().zip(values(rank, count)).map(|(a, b)| a + b).collect())
}

#[test]
fn sums_are_those_in_the_order_of_ranks_to_the_last_bit() {
    for size in [1, 2, 3, 4, 7] {
        for count in [0, 1, 2, 5, 1000, 100_003] {
            let reduced = on_ranks(size, LONG, |world| {
                let (all, own) = (world.all(), values(world.rank(), count));
                let sums = all.all_reduce("values", own.clone());
                let at_last = all.reduce("values", size - 1, own.clone());
                let part = all.reduce_scatter("values", own);
                (sums.wait(), at_last.wait(), part.wait())
            });
            let expected = sums(size, count);
            for (rank, (all, at_last, own)) in reduced.into_iter().enumerate() {
                assert_eq!(all, expected);
                assert_eq!(at_last, if rank == size - 1 { expected.clone() } else { vec![] });
                assert_eq!(own, expected[part(count, rank, size)]);
            }
        }
    }
}

#[test]
fn parts_come_together_and_bytes_reach_every_rank() {
    on_ranks(3, LONG, |world| {
        let (all, rank) = (world.all(), world.rank());
        let expected = values(0, 10);
        assert_eq!(all.all_gather("parts", expected[part(10, rank, 3)].to_vec(), 10).wait(), expected);
        assert_eq!(all.broadcast("bytes", 1, vec![rank as u8; 5]).wait(), [1; 5]);
        assert_eq!(all.collect("bytes", vec![7; rank]).wait(), [vec![], vec![7], vec![7, 7]]);
        all.barrier("all");
        // Around the ring, both ways at once.
        let (next, last) = ((rank + 1) % 3, (rank + 2) % 3);
        let sent = [all.send("up", next, vec![rank as u8]), all.send("down", last, vec![rank as u8 + 10])];
        assert_eq!(all.receive("up", last, 1).wait(), [last as u8]);
        assert_eq!(all.receive("down", next, 1).wait(), [next as u8 + 10]);
        sent.into_iter().for_each(Ticket::wait);
    });
}

#[test]
fn groups_reduce_apart_from_one_another() {
    let sums = on_ranks(4, LONG, |world| {
        let rank = world.rank();
        let (row, column) =
            (world.all().of([rank / 2 * 2, rank / 2 * 2 + 1]), world.all().of([rank % 2, rank % 2 + 2]));
        let across = row.all_reduce("row", vec![rank as f32]);
        let down = column.all_reduce("column", vec![rank as f32]);
        (across.wait()[0], down.wait()[0], row.place(), column.place())
    });
    assert_eq!(sums, [(1.0, 2.0, 0, 0), (1.0, 4.0, 1, 0), (5.0, 2.0, 0, 1), (5.0, 4.0, 1, 1)]);
}

/// By sockets: sums have the same bits as those of plain numbers, and copies may be of any type.
#[test]
fn tensors_come_together_as_their_numbers_do() {
    let device = Device::flex();
    let flat = |values: Vec<f32>| Tensor::<1>::from_data(values.as_slice(), (&device, DType::F32));
    let reduced = on_ranks(3, LONG, |world| {
        let (all, own) = (world.all(), flat(values(world.rank(), 1000)));
        let (sums, at_last) = (all.sum("values", own.clone()), all.sum_at("values", 2, own.clone()));
        let copies =
            [DType::F32, DType::BF16].map(|dtype| all.copy_of("values", 1, narrow(own.clone(), dtype)));
        let numbers = |tensor: Tensor<1>| wide(tensor).into_data().try_into_vec::<f32>().expect("fp32");
        let copies = copies.map(|copy| numbers(copy.wait().expect("every rank gets it")));
        (numbers(sums.wait().expect("every rank gets them")), at_last.wait().map(numbers), copies)
    });
    let expected = sums(3, 1000);
    let rounded = |value: &f32| half::bf16::from_f32(*value).to_f32();
    for (rank, (all, at_last, [copy, narrow])) in reduced.into_iter().enumerate() {
        assert_eq!(all, expected);
        assert_eq!(at_last, (rank == 2).then(|| expected.clone()));
        assert_eq!(copy, values(1, 1000));
        assert_eq!(narrow, values(1, 1000).iter().map(rounded).collect::<Vec<_>>());
    }
}

#[test]
fn tensors_are_summed_in_parts_and_put_together_from_parts() {
    let device = Device::flex();
    let flat = |values: Vec<f32>| Tensor::<1>::from_data(values.as_slice(), (&device, DType::F32));
    let numbers = |tensor: Tensor<1>| wide(tensor).into_data().try_into_vec::<f32>().expect("fp32");
    let reduced = on_ranks(3, LONG, |world| {
        let (all, own) = (world.all(), flat(values(world.rank(), 999)));
        let sums = all.sum_in_parts("values", own.clone());
        let together =
            [DType::F32, DType::BF16].map(|dtype| all.put_together("values", narrow(own.clone(), dtype)));
        let together = together.map(|whole| numbers(whole.wait().expect("every rank gets it")));
        (numbers(sums.wait().expect("every rank gets its part")), together)
    });
    let whole: Vec<f32> = (0..3).flat_map(|rank| values(rank, 999)).collect();
    let rounded = |value: &f32| half::bf16::from_f32(*value).to_f32();
    for (rank, (own, [together, narrow])) in reduced.into_iter().enumerate() {
        assert_eq!(own, sums(3, 999)[part(999, rank, 3)]);
        assert_eq!(together, whole);
        assert_eq!(narrow, whole.iter().map(rounded).collect::<Vec<_>>());
    }
}

/// The other ranks learn which GPU operation a rank has reached, and that it has ended, between messages of any kind.
#[test]
fn the_signs_of_ranks_are_seen_without_asking() {
    let mut worlds = World::threads(2, LONG);
    let (second, first) = (worlds.remove(1), worlds.remove(0));
    let came = |number| move |sign: &Sign| sign.came.load(Relaxed) == number && !sign.gone.load(Relaxed);
    let sum = second.all().all_reduce("x", vec![1.0]);
    let turn = |peer, number| Turn { peer, number };
    second.all().come(turn(None, 1));
    second.all().come(turn(None, 2));
    second.all().come(turn(Some(0), 7));
    assert_eq!((first.all().all_reduce("x", vec![2.0]).wait(), sum.wait()), (vec![3.0], vec![3.0]));
    seen(&first.signs[1], came(2));
    seen(&first.signs[1], |sign| sign.met.load(Relaxed) == 7);
    assert!(came(0)(&second.signs[0]));
    drop(second);
    seen(&first.signs[1], |sign| sign.gone.load(Relaxed));
}

fn seen(sign: &Sign, what: impl Fn(&Sign) -> bool) {
    let start = Instant::now();
    while !what(sign) {
        assert!(start.elapsed() < LONG, "{sign:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// 16 MB each way, far beyond what a socket holds.
#[test]
fn large_messages_cross() {
    on_ranks(2, LONG, |world| {
        let sent = world.all().send("much", 1 - world.rank(), vec![5; 16 << 20]);
        assert!(world.all().receive("much", 1 - world.rank(), 16 << 20).wait().iter().all(|byte| *byte == 5));
        sent.wait();
        let traffic = world.traffic();
        assert!(traffic.sent > 16 << 20 && traffic.busy > 0.0 && traffic.exposed > 0.0, "{traffic:?}");
    });
}

/// Each rank of N sends 2 (N-1)/N of what is reduced.
#[test]
fn the_bytes_on_the_wire_are_those_of_the_formula() {
    let sent = on_ranks(4, LONG, |world| {
        world.all().all_reduce("values", vec![1.0; 40_000]).wait();
        world.all().barrier("counted");
        world.traffic().sent as f64
    });
    let formula = 2.0 * 3.0 / 4.0 * 160_000.0;
    assert!(sent.iter().all(|sent| (formula..formula * 1.02).contains(sent)), "{sent:?}");
}

#[test]
fn a_rank_without_work_says_that_it_lives() {
    let heard = on_ranks(3, LONG, |world| {
        let deadline = Instant::now() + LONG;
        let others = || (0..3).filter(|rank| *rank != world.rank());
        let all_live = || others().all(|rank| world.signs[rank].heard.load(Relaxed) > 1);
        while !all_live() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        (all_live(), world.traffic().sent)
    });
    // Of what ranks exchange it is no part.
    assert_eq!(heard, [(true, 0); 3]);
}

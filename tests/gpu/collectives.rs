//! Sums and copies by NCCL: their values and their order with the kernels around them.

mod times;

use std::collections::VecDeque;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use burn::tensor::{DType, Tensor};
use runner::device::cuda::nccl::{self, Collective};
use runner::device::cuda::{Collectives, Crossed, Gpu, Pending, Usage, buffer, copied, count, tensor};
use runner::ops::flat::{ALIGNED, laid_out, part};
use runner::ops::rounded;

use crate::{Checks, on_gpu};

/// Of fp32: a bucket's.
const COUNT: usize = 1 << 22;
const ROUNDS: usize = 20;
const LIMIT: Duration = Duration::from_secs(60);

/// What one rank of `ranks` finds: elements that are wrong, and what was counted.
fn rank((rank, ranks): (usize, usize), gpu: &Gpu, gpus: &Collectives) -> (usize, Crossed) {
    let device = gpu.burn();
    // Whole numbers, whose sums are exact.
    let numbers = |rank: usize, round: usize| (0..COUNT).map(move |i| ((i + 3 * rank + round) % 11) as f32);
    let sum =
        |round: usize, i: usize| (0..ranks).map(|rank| ((i + 3 * rank + round) % 11) as f32).sum::<f32>();
    let mut wrong = 0;
    let mut compare = |values: Tensor<1>, expected: &dyn Fn(usize) -> f32| {
        let values = values.into_data().try_into_vec::<f32>().expect("fp32");
        wrong += values.iter().enumerate().filter(|(i, value)| **value != expected(*i)).count();
    };
    for round in 0..ROUNDS {
        let own = numbers(rank, round).collect::<Vec<_>>();
        let own = Tensor::<1>::from_data(own.as_slice(), (&device, DType::F32));
        let root = round % ranks;
        // Kernels write what is summed just before, and use memory of the same size while it is on its way.
        let sums = gpus.begin("sums", Collective::AllReduce, own.clone() * 2.0);
        let at_root = gpus.begin("sums at one", Collective::Reduce { root }, own.clone() + 1.0);
        let copy = gpus.begin("copies", Collective::Broadcast { root }, own.clone() * 3.0);
        let in_parts =
            gpus.begin("sums in parts", Collective::ReduceScatter { place: rank, ranks }, own.clone() * 7.0);
        let of_all = gpus.begin("all parts", Collective::AllGather { place: rank, ranks }, own.clone() * 9.0);
        drop(gpus.begin("not wanted", Collective::AllReduce, own.clone() * 5.0));
        let mut meanwhile = own.clone();
        for _ in 0..8 {
            meanwhile = meanwhile * 1.5 - 7.0;
        }
        drop(meanwhile);
        compare(sums.wait() * 0.5, &|i| sum(round, i));
        let at_root = at_root.wait();
        if rank == root {
            compare(at_root - ranks as f32, &|i| sum(round, i));
        }
        compare(copy.wait(), &|i| 3.0 * ((i + 3 * root + round) % 11) as f32);
        let part = COUNT / ranks;
        compare(in_parts.wait().narrow(0, rank * part, part), &|i| 7.0 * sum(round, rank * part + i));
        compare(of_all.wait(), &|i| 9.0 * ((i + 3 * (i / part) + round) % 11) as f32);
        // What went in is as it was.
        compare(own, &|i| ((i + 3 * rank + round) % 11) as f32);
    }
    gpu.synchronize();
    assert!(gpus.under_way().is_none() && gpus.failure().is_none(), "{:?}", gpus.failure());
    (wrong, gpus.crossed())
}

/// Gradients of a bucket: of sizes that are multiples of nothing, single numbers among them, in two types, more of them
/// than one launch takes. They are joined, with and without room between them, summed, and looked at where they lie: wrong
/// elements of the whole tensor, and of its parts in fp32 and in bf16.
fn bucket((rank, ranks): (usize, usize), gpu: &Gpu, gpus: &Collectives) -> [usize; 3] {
    let device = gpu.burn();
    let sizes = [1, 3, 8193, 1, 1, 100_003, 5, 24_577, 2].into_iter().chain((0..240).map(|i| 1 + 7 * i % 40));
    let sizes: Vec<usize> = sizes.collect();
    // Whole numbers that bf16 has, and their sums.
    let number = |rank: usize, which: usize, i: usize| ((i + 3 * rank + 5 * which) % 11) as f32;
    let sum = |which: usize, i: usize| (0..ranks).map(|rank| number(rank, which, i)).sum::<f32>();
    let mut wrong = [0; 3];
    let mut compare = |what: usize, values: Tensor<1>, expected: &[f32]| {
        let values: Vec<f32> = values.into_data().iter::<f32>().collect();
        wrong[what] += values.iter().zip(expected).filter(|(value, expected)| value != expected).count();
        wrong[what] += values.len().abs_diff(expected.len());
    };
    for alignment in [1, ALIGNED, 1, ALIGNED] {
        let (mut tensors, mut places, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for (which, elements) in sizes.iter().copied().enumerate() {
            let own: Vec<f32> = (0..elements).map(|i| number(rank, which, i)).collect();
            let dtype = if which % 3 == 1 { DType::BF16 } else { DType::F32 };
            let own = rounded(Tensor::<1>::from_data(own.as_slice(), (&device, DType::F32)), dtype);
            expected.resize(expected.len().next_multiple_of(alignment), 0.0);
            tensors.push((expected.len(), own));
            places.push(expected.len()..expected.len() + elements);
            expected.extend((0..elements).map(|i| sum(which, i)));
        }
        let flat = laid_out(expected.len(), (DType::F32, &device), tensors);
        let sums = gpus.begin("a bucket", Collective::AllReduce, flat);
        // Memory of the same size, while it is on its way.
        drop(Tensor::<1>::ones([expected.len()], (&device, DType::F32)) * 3.0);
        let sums = sums.wait();
        compare(0, sums.clone(), &expected);
        // Kernels of Burn's read a part from its beginning, many elements at once.
        let aligned = (alignment == ALIGNED).then(|| rounded(sums.clone(), DType::BF16));
        for place in places {
            compare(1, part(&sums, place.clone()), &expected[place.clone()]);
            if let Some(narrow) = &aligned {
                compare(
                    1,
                    part(&sums, place.clone()) * 2.0 - part(&sums, place.clone()),
                    &expected[place.clone()],
                );
                compare(2, part(narrow, place.clone()) * 1.0, &expected[place]);
            }
        }
    }
    wrong
}

/// Messages both ways between two ranks, each written just before and read just after: elements that are wrong.
fn messages((rank, ranks): (usize, usize), gpu: &Gpu, gpus: &Collectives) -> usize {
    if ranks == 1 {
        return 0;
    }
    let (device, peer) = (gpu.burn(), 1 - rank);
    let (mut wrong, mut leaving) = (0, VecDeque::new());
    for round in 0..ROUNDS {
        let number = |rank: usize| (100 * rank + round) as f32;
        let send = || {
            let own = Tensor::<1>::ones([COUNT], (&device, DType::F32)) * number(rank);
            gpus.begin("own", Collective::Send { to: peer }, own)
        };
        let receive = || {
            gpus.begin(
                "other",
                Collective::Receive { from: peer },
                Tensor::empty([COUNT], (&device, DType::F32)),
            )
        };
        // One after the other, in one order of both.
        let (sent, received) = match rank {
            0 => (send(), receive()),
            _ => {
                let received = receive();
                (send(), received)
            }
        };
        leaving.push_back(sent);
        while leaving.front_mut().is_some_and(Pending::is_over) {
            leaving.pop_front();
        }
        // Memory of the same size, while they are on their way.
        drop(Tensor::<1>::ones([COUNT], (&device, DType::F32)) * 3.0);
        let values = received.wait().into_data().try_into_vec::<f32>().expect("fp32");
        wrong += values.iter().filter(|value| **value != number(peer)).count();
    }
    wrong
}

/// What each of `ranks` finds, on its own GPU and connected with the others; `None` without NCCL.
fn on_ranks<T: Send>(
    ranks: usize,
    work: impl Fn((usize, usize), &Gpu, &Collectives) -> T + Sync,
) -> Option<Vec<T>> {
    if !nccl::present() {
        println!("skipped: {}", nccl::ABSENT);
        return None;
    }
    let multicast = std::env::var("NCCL_NVLS_ENABLE");
    assert_eq!(multicast.as_deref(), Ok("0"), "set NCCL_NVLS_ENABLE=0, as a run does");
    let id = nccl::unique_id().expect("an id");
    let end = Barrier::new(ranks);
    let on_rank = |rank: usize| {
        let gpu = Gpu::open(rank);
        // The thread's stream, before Burn uses it.
        gpu.stream_path();
        let gpus = Collectives::join(rank, (rank, ranks), id.clone(), LIMIT)
            .unwrap_or_else(|reason| panic!("rank {rank} of {ranks}: {reason}"));
        let found = work((rank, ranks), gpu, &gpus);
        // No rank takes its memory away from another.
        end.wait();
        found
    };
    let on_rank = &on_rank;
    Some(thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || on_rank(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    }))
}

fn of_ranks(ranks: usize, checks: &mut Checks) {
    for (own, wrong) in on_ranks(ranks, bucket).into_iter().flatten().enumerate() {
        let verdict = format!("a bucket of odd sizes, rank {own} of {ranks}");
        checks.verdict(&verdict, wrong == [0; 3], &format!("{wrong:?} wrong elements"));
    }
    for (own, wrong) in on_ranks(ranks, messages).into_iter().flatten().enumerate() {
        let verdict = format!("messages, rank {own} of {ranks}");
        checks.verdict(&verdict, wrong == 0, &format!("{wrong} wrong elements"));
    }
    for (own, (wrong, crossed)) in on_ranks(ranks, rank).into_iter().flatten().enumerate() {
        checks.verdict(&format!("rank {own} of {ranks}"), wrong == 0, &format!("{wrong} wrong elements"));
        // Two sums, one of which nobody waited for, one at a rank, one copy, one sum in parts and one of parts in each round.
        let bytes = (ROUNDS * COUNT * 4) as u64;
        let of_root = (0..ROUNDS).filter(|round| round % ranks == own).count() as u64;
        let (share, others) = (bytes / ROUNDS as u64, ranks as u64 - 1);
        let at_one = share * (ROUNDS as u64 - of_root) * u64::from(ranks > 1);
        let expected = 6 * bytes * others / ranks as u64 + at_one + share * of_root * others;
        let figures = format!("{crossed:?}, {expected} bytes expected");
        let times = crossed.busy > 0.0 && (0.0..=crossed.busy).contains(&crossed.exposed);
        checks.verdict(
            &format!("what rank {own} of {ranks} counts"),
            crossed.sent == expected && times,
            &figures,
        );
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_rank_alone_gets_back_what_it_gives() {
    on_gpu(|_, checks| of_ranks(1, checks));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_gpus_sum_what_their_kernels_have_just_written() {
    on_gpu(|_, checks| match count() {
        0 | 1 => println!("skipped: there is one GPU, and two ranks need one each"),
        _ => of_ranks(2, checks),
    });
}

/// Each rank keeps its part of the sums alone.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_copied_part_leaves_the_rest_to_be_freed() {
    on_gpu(|gpu, checks| {
        let numbers: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
        let whole = Tensor::<1>::from_data(numbers.as_slice(), (&gpu.burn(), DType::F32));
        gpu.synchronize();
        let before = Usage::now(gpu).live;
        let part = tensor::<1>(copied(&buffer(whole), COUNT / 2..COUNT));
        gpu.synchronize();
        let freed = before.saturating_sub(Usage::now(gpu).live);
        checks.verdict("bytes freed", freed == 2 * COUNT as u64, &format!("{freed} of {}", 2 * COUNT));
        let part = part.into_data().try_into_vec::<f32>().expect("fp32");
        checks.verdict("its values", part == numbers[COUNT / 2..], "others");
    });
}

//! What sums and messages take of the GPUs' time.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::{DType, Tensor};
use runner::device::cuda::nccl::Collective;
use runner::device::cuda::{Collectives, Event, Fp32Math, Gpu, Operand, Output, buffer, count, matmul};

use super::{COUNT, LIMIT, on_ranks};
use crate::on_gpu;

/// While a message has not come, kernels beside it take as long as without it.
#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn a_late_message_takes_nothing_from_kernels() {
    const PRODUCTS: usize = 200;
    let is_measured = AtomicBool::new(false);
    let beside = |(rank, _): (usize, usize), gpu: &Gpu, gpus: &Collectives| {
        let device = gpu.burn();
        let message = |value: f32| Tensor::<1>::ones([COUNT], (&device, DType::F32)) * value;
        // The first message connects the two.
        if rank == 0 {
            drop(gpus.begin("first", Collective::Send { to: 1 }, message(1.0)).wait());
            let began = Instant::now();
            while !is_measured.load(SeqCst) && began.elapsed() < LIMIT {
                thread::sleep(Duration::from_millis(1));
            }
            drop(gpus.begin("late", Collective::Send { to: 1 }, message(2.0)).wait());
            gpu.synchronize();
            return None;
        }
        drop(gpus.begin("first", Collective::Receive { from: 0 }, message(0.0)).wait());
        let a = buffer(Tensor::<2>::ones([4096, 4096], (&device, DType::BF16)));
        let side = || Operand { tensor: a.clone(), transposed: false };
        let seconds = || {
            let start = Event::record(gpu);
            (0..PRODUCTS)
                .for_each(|_| drop(matmul(side(), side(), Output::New(DType::BF16), Fp32Math::Exact)));
            Event::record(gpu).seconds_since(&start)
        };
        seconds();
        let without = [seconds(), seconds()];
        let late = gpus.begin("late", Collective::Receive { from: 0 }, message(0.0));
        let with = [seconds(), seconds()];
        is_measured.store(true, SeqCst);
        let values = late.wait().into_data().try_into_vec::<f32>().expect("fp32");
        Some((without, with, values.iter().filter(|value| **value != 2.0).count()))
    };
    on_gpu(|_, checks| {
        if count() < 2 {
            println!("skipped: there is one GPU, and two ranks need one each");
            return;
        }
        let Some(found) = on_ranks(2, beside) else { return };
        let (without, with, wrong) = found.into_iter().flatten().next().expect("rank 1 measures");
        let fastest = |seconds: [f64; 2]| seconds[0].min(seconds[1]);
        checks.verdict(
            "products beside a message that has not come",
            fastest(with) < 1.02 * fastest(without) && wrong == 0,
            &format!("{without:?} s without it, {with:?} s with it, {wrong} wrong elements"),
        );
    });
}

/// Times sums of fp32, one behind the other, and prints them as `tests/peers/torch_parallel.py` does.
#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn bandwidth_of_sums() {
    const SUMS: usize = 20;
    let seconds = |(_, _): (usize, usize), gpu: &Gpu, gpus: &Collectives| {
        [1, 16, 64, 256, 1024].map(|mebibytes: usize| {
            let mut values = Tensor::<1>::ones([mebibytes << 18], (&gpu.burn(), DType::F32));
            let mut sum = |count: usize| {
                let before = gpus.crossed().busy;
                for _ in 0..count {
                    let own = std::mem::replace(&mut values, Tensor::empty([1], &gpu.burn()));
                    values = gpus.begin("bandwidth", Collective::AllReduce, own).wait();
                }
                gpus.crossed().busy - before
            };
            sum(5);
            let seconds = sum(SUMS) / SUMS as f64;
            let last: f32 = values.narrow(0, (mebibytes << 18) - 1, 1).into_scalar();
            (mebibytes, seconds, last)
        })
    };
    on_gpu(|_, checks| {
        if count() < 2 {
            println!("skipped: there is one GPU, and two ranks need one each");
            return;
        }
        let Some(found) = on_ranks(2, seconds) else { return };
        for (mebibytes, seconds, last) in found[0] {
            let rate = mebibytes as f64 * f64::from(1 << 20) / seconds / 1e9;
            let ms = seconds * 1e3;
            println!(
                "{{\"what\": \"all_reduce\", \"mebibytes\": {mebibytes}, \"ms\": {ms}, \"bus_gigabytes_per_second\": {rate}}}"
            );
            // Each sum of two ranks doubles the ones.
            checks.verdict(
                &format!("{mebibytes} MiB"),
                rate > 0.0 && last == f32::powi(2.0, 5 + SUMS as i32),
                &last.to_string(),
            );
        }
    });
}

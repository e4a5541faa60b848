//! Order between Burn's kernels and ours on every path, the trace, and what happens at the end of the
//! memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{DType, Tensor};
use runner::device::cuda::{Ballast, Event, Fp32Math, Gpu, Operand, Output, Recording, StreamPath, matmul};
use runner::device::out_of_memory;
use runner::device::trace::{ActivityKind, chrome_trace, read_chrome_trace};

use crate::on_gpu;
use crate::reference::{host, primitive, tensor};

/// The chain on the test's own stream, on that of a thread which the runner saw first, and on
/// that of a thread which Burn used first, whose handle nobody announced.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn order_on_every_path() {
    on_gpu(|gpu, checks| {
        let mut check = |name: &str, shared: bool, path: StreamPath, wrong: usize| {
            let right_path = (path == StreamPath::Shared) == shared;
            let figures = format!("{wrong} wrong elements, {path:?}");
            checks.verdict(
                &format!("500 kernels of Burn and cuBLASLt in turn, {name}"),
                right_path && wrong == 0,
                &figures,
            );
        };
        check("the test's thread", true, gpu.stream_path().clone(), wrong_elements_of_a_chain(gpu));
        let run = move |burn_first: bool| {
            if burn_first {
                let _ = Tensor::<1>::ones([8], &gpu.burn()).into_data();
            }
            (gpu.stream_path().clone(), wrong_elements_of_a_chain(gpu))
        };
        let on_thread =
            |burn_first| std::thread::spawn(move || run(burn_first)).join().expect("the thread ends");
        let (path, wrong) = on_thread(false);
        check("another thread", true, path, wrong);
        let (path, wrong) = on_thread(true);
        check("a stream without a handle", false, path, wrong);
    });
}

/// A chain in which each kernel needs the one before, Burn's and cuBLASLt's by turns: a missing
/// order shows as a wrong sum.
fn wrong_elements_of_a_chain(gpu: &Gpu) -> usize {
    let n = 1024;
    let device = gpu.burn();
    let identity = || Operand { tensor: primitive(Tensor::<2>::eye(n, &device)), transposed: false };
    let mut x = Tensor::<2>::zeros([n, n], &device);
    for _ in 0..500 {
        x = x + 1.0;
        let lhs = Operand { tensor: primitive(x), transposed: false };
        x = tensor(matmul(lhs, identity(), Output::New(DType::F32), Fp32Math::Exact));
    }
    host(x).iter().filter(|value| **value != 500.0).count()
}

/// The kernels of twenty products are in the trace, and their times add up to what events measure.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn trace_holds_every_product() {
    on_gpu(|gpu, checks| {
        let n = 4096;
        let a = primitive(Tensor::<2>::ones([n, n], (&gpu.burn(), DType::BF16)));
        let side = || Operand { tensor: a.clone(), transposed: false };
        let product = || drop(matmul(side(), side(), Output::New(DType::BF16), Fp32Math::Exact));
        product();
        let recording = match Recording::start(gpu) {
            Ok(recording) => recording,
            Err(reason) => return checks.verdict("trace", false, &reason),
        };
        let start = Event::record(gpu);
        (0..20).for_each(|_| product());
        let seconds = Event::record(gpu).seconds_since(&start);
        let activities = recording.stop();
        let kernels: Vec<_> = activities.iter().filter(|a| a.kind == ActivityKind::Kernel).collect();
        let traced = kernels.iter().map(|a| a.end - a.start).sum::<u64>() as f64 / 1e9;
        let events = read_chrome_trace(&chrome_trace(&activities)).map_or(0, |events| events.len());
        checks.verdict(
            "the trace holds every product",
            kernels.len() >= 20 && traced <= 1.01 * seconds && events == activities.len(),
            &format!(
                "{} kernels, {:.2} of {:.2} ms by events, stream {:?}, {}",
                kernels.len(),
                traced * 1e3,
                seconds * 1e3,
                kernels.first().map(|a| a.stream),
                kernels.first().map_or("", |a| &a.name),
            ),
        );
    });
}

/// A product with a factor beyond the device's memory, and one beyond a limit, ends in an error where
/// its result is read and once more at the next wait, and the device computes on.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn out_of_memory_is_reported() {
    on_gpu(|gpu, checks| {
        let device = gpu.burn();
        let attempt = |rows: usize, columns: usize| {
            let result = catch_unwind(AssertUnwindSafe(|| {
                let big = Tensor::<2>::zeros([rows, columns], (&device, DType::BF16));
                let thin = Tensor::<2>::zeros([columns, 8], (&device, DType::BF16));
                let side = |t| Operand { tensor: primitive(t), transposed: false };
                host(tensor(matmul(side(big), side(thin), Output::New(DType::BF16), Fp32Math::Exact))).len()
            }));
            result.map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
        };
        let shorten = |result: &Result<usize, String>| match result {
            Ok(length) => format!("{length} elements"),
            Err(message) => message.chars().take(300).collect(),
        };
        let is_oom =
            |result: &Result<usize, String>| result.as_ref().is_err_and(|m| out_of_memory(m).is_some());

        let raised = || catch_unwind(AssertUnwindSafe(|| gpu.synchronize())).is_err();

        let beyond = attempt(500_000, 200_000);
        checks.verdict("200 GB are out of memory", is_oom(&beyond), &shorten(&beyond));
        let waits = [raised(), raised()];
        checks.verdict("the next wait says so, once", waits == [true, false], &format!("{waits:?}"));
        let after = attempt(1000, 1000);
        checks.verdict("the device computes on", after == Ok(8000), &shorten(&after));

        gpu.release_memory();
        let limit = 4u64 << 30;
        match Ballast::leaving(gpu, limit) {
            Err(reason) => checks.verdict("a limit of 4 GiB", false, &reason),
            Ok(ballast) => {
                let beyond = attempt(100_000, 30_000);
                checks.verdict(
                    "6 GB are beyond a limit of 4 GiB",
                    is_oom(&beyond) && raised(),
                    &shorten(&beyond),
                );
                let within = attempt(30_000, 30_000);
                checks.verdict("1.8 GB are within it", within == Ok(240_000), &shorten(&within));
                drop(ballast);
                gpu.release_memory();
                let without = attempt(100_000, 30_000);
                checks.verdict("6 GB fit without it", without == Ok(800_000), &shorten(&without));
            }
        }
    });
}

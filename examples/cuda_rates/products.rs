//! Rates of matrix products with cuBLASLt's own choice of algorithm and with the one that is measured.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use burn::tensor::{DType, Distribution, Tensor};
use burn_cubecl::tensor::CubeTensor;
use runner::common::{Compute, DeviceId};
use runner::device::cuda::{Event, Fp32Math, Gpu, Operand, Output, buffer, matmul};

use crate::reference::{TYPES, float, median, primitive};

/// Seconds between two events, so that the host stays ahead of the device.
const SPAN: f64 = 0.03;

/// Seconds of work before the first time counts.
const WARM_UP: f64 = 0.3;

static TUNED: AtomicUsize = AtomicUsize::new(0);

pub fn rates(gpu: &'static Gpu) {
    for compute in TYPES {
        for n in [4096, 8192] {
            let random = || {
                let normal = Distribution::Normal(0.0, 1.0);
                primitive(Tensor::<2>::random([n, n], normal, (&gpu.burn(), DType::F32)).cast(float(compute)))
            };
            let (a, b) = (random(), random());
            for (name, ta, tb) in [("NN", false, false), ("NT", false, true), ("TN", true, false)] {
                let side = |t: &CubeTensor, transposed| Operand { tensor: t.clone(), transposed };
                both(gpu, &format!("{n} {} {name}", compute.into_str()), 2.0 * (n as f64).powi(3), &|| {
                    drop(matmul(side(&a, ta), side(&b, tb), Output::New(a.dtype), Fp32Math::of(compute)));
                });
            }
        }
    }
    attention(gpu);
    let ceilings = DeviceId::Cuda(0).ceilings(&TYPES);
    println!("{ceilings:#?}");
    let start = Instant::now();
    let (a, count) = (primitive(Tensor::<2>::zeros([64, 64], &gpu.burn())), 2000);
    for _ in 0..count {
        let side = || Operand { tensor: a.clone(), transposed: false };
        drop(matmul(side(), side(), Output::New(DType::F32), Fp32Math::Exact));
    }
    println!(
        "host time of one small matmul: {:.1} us",
        start.elapsed().as_secs_f64() / f64::from(count) * 1e6
    );
}

/// The products of attention: 160 heads of 1024 tokens and 64 values.
fn attention(gpu: &'static Gpu) {
    let (heads, tokens, width) = (160, 1024, 64);
    let random = |shape: [usize; 3]| {
        let normal = Distribution::Normal(0.0, 1.0);
        let random = Tensor::<3>::random(shape, normal, (&gpu.burn(), DType::F32)).cast(float(Compute::Bf16));
        buffer(random)
    };
    let (q, k, scores) =
        (random([heads, tokens, width]), random([heads, tokens, width]), random([heads, tokens, tokens]));
    let flops = 2.0 * [heads, tokens, tokens, width].map(|size| size as f64).iter().product::<f64>();
    let side = |t: &CubeTensor, transposed| Operand { tensor: t.clone(), transposed };
    let product = |lhs: Operand, rhs: Operand, out| drop(matmul(lhs, rhs, Output::New(out), Fp32Math::Exact));
    both(gpu, "q kT, bf16 into fp32", flops, &|| product(side(&q, false), side(&k, true), DType::F32));
    both(gpu, "q kT, bf16 into bf16", flops, &|| product(side(&q, false), side(&k, true), DType::BF16));
    both(gpu, "p v, bf16 into bf16", flops, &|| product(side(&scores, false), side(&k, false), DType::BF16));
    both(gpu, "pT v, bf16 into bf16", flops, &|| product(side(&scores, true), side(&k, false), DType::BF16));
}

fn both(gpu: &'static Gpu, name: &str, flops: f64, product: &dyn Fn()) {
    let own = flops / seconds(gpu, product) / 1e12;
    let (before, start) = (TUNED.load(Relaxed), Instant::now());
    let guard = gpu.allow_tuning(|tuned| TUNED.store(tuned, Relaxed));
    product();
    gpu.synchronize();
    drop(guard);
    let tuning = start.elapsed().as_secs_f64() * 1e3;
    let measured = flops / seconds(gpu, product) / 1e12;
    let how = if TUNED.load(Relaxed) > before { "tuned" } else { "remembered" };
    println!(
        "rate {name}: {own:.1} TFLOP/s before, {measured:.1} after ({:+.1} %), {how} in {tuning:.0} ms",
        (measured / own - 1.0) * 100.0
    );
}

/// Seconds of one product.
fn seconds(gpu: &'static Gpu, product: &dyn Fn()) -> f64 {
    let time = |count: u32| {
        let start = Event::record(gpu);
        (0..count).for_each(|_| product());
        Event::record(gpu).seconds_since(&start) / f64::from(count)
    };
    let count = (SPAN / time(2)).clamp(1.0, 200.0) as u32;
    // The clock falls under load: every rate is that of a device which has been at work for a while.
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < WARM_UP {
        time(count);
    }
    median((0..5).map(|_| time(count)).collect())
}

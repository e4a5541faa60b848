//! Matrix products: every layout and type against f64, their order with Burn's kernels, their rates.

use std::time::Instant;

use burn::tensor::{DType, Distribution, Tensor};
use burn_cubecl::tensor::CubeTensor;
use runner::device::cuda::{Event, Fp32Math, Gpu, Operand, Output, matmul};
use runner::device::{DeviceId, dtype};
use runner::recipe::Compute;

use crate::reference::{error, float, host, median, on, primitive, product, random, tensor, tolerance};
use crate::{Checks, TYPES};

/// Every layout of every type, into its own type and into fp32, overwriting and adding.
pub fn matmul_against_f64(gpu: &Gpu, checks: &mut Checks) {
    let sizes @ [m, n, k] = [192, 320, 256];
    for compute in TYPES {
        for (name, ta, tb) in
            [("NN", false, false), ("NT", false, true), ("TN", true, false), ("TT", true, true)]
        {
            let a = on(&gpu.burn(), random(if ta { [k, m] } else { [m, k] }, 1), compute);
            let b = on(&gpu.burn(), random(if tb { [n, k] } else { [k, n] }, 2), compute);
            let expected = product(&host(a.clone()), &host(b.clone()), sizes, ta, tb);
            let side = |t: &Tensor<2>, transposed| Operand { tensor: primitive(t.clone()), transposed };
            for out in [dtype(compute), DType::F32] {
                let run =
                    |output| host(tensor(matmul(side(&a, ta), side(&b, tb), output, compute.fp32_math())));
                let what = format!("matmul {} {name} into {out:?}", compute.name());
                // Into fp32 only the sums are rounded: the operands are what the reference multiplies.
                let limit = match (compute, out) {
                    (Compute::Bf16 | Compute::Fp16, DType::F32) => 1e-5,
                    _ => 4.0 * tolerance(compute),
                };
                checks.below(&what, error(&run(Output::New(out)), &expected), limit);
                let first = primitive(Tensor::<2>::ones([m, n], (&gpu.burn(), out)));
                let plus_one: Vec<f64> = expected.iter().map(|x| x + 1.0).collect();
                checks.below(
                    &format!("{what}, added to 1"),
                    error(&run(Output::AddTo(first)), &plus_one),
                    limit,
                );
            }
        }
        // A tensor that Burn transposed without moving it, and a slice with a stride of its own.
        let a = on(&gpu.burn(), random([k, m], 1), compute);
        let b = on(&gpu.burn(), random([k, n + 64], 2), compute).slice([0..k, 32..n + 32]);
        let expected = product(&host(a.clone()), &host(b.clone()), sizes, true, false);
        let lhs = Operand { tensor: primitive(a.transpose()), transposed: false };
        let rhs = Operand { tensor: primitive(b), transposed: false };
        let got = host(tensor(matmul(lhs, rhs, Output::New(dtype(compute)), compute.fp32_math())));
        let what = format!("matmul {} of views", compute.name());
        checks.below(&what, error(&got, &expected), 4.0 * tolerance(compute));
    }
}

/// Why fp32 does not go through Burn's product: it is TF32 there.
pub fn burn_matmul_is_tf32(gpu: &Gpu, checks: &mut Checks) {
    let sizes @ [m, n, k] = [512, 512, 512];
    let (a, b) = (
        on(&gpu.burn(), random([m, k], 3), Compute::Fp32),
        on(&gpu.burn(), random([k, n], 4), Compute::Fp32),
    );
    let expected = product(&host(a.clone()), &host(b.clone()), sizes, false, false);
    let side = |t: &Tensor<2>| Operand { tensor: primitive(t.clone()), transposed: false };
    let ours = tensor(matmul(side(&a), side(&b), Output::New(DType::F32), Fp32Math::Exact));
    let ours = error(&host(ours), &expected);
    let burn = error(&host(a.matmul(b)), &expected);
    checks.verdict(
        "fp32 is exact, Burn's is TF32",
        ours < 1e-5 && burn > 1e-4,
        &format!("{ours:.1e} and {burn:.1e}"),
    );
}

/// Products timed together.
const BATCH: u32 = 10;

pub fn rates(gpu: &'static Gpu) {
    for compute in TYPES {
        for n in [1024, 4096, 8192] {
            let random = || {
                let normal = Distribution::Normal(0.0, 1.0);
                primitive(Tensor::<2>::random([n, n], normal, (&gpu.burn(), DType::F32)).cast(float(compute)))
            };
            let (a, b) = (random(), random());
            for (name, ta, tb) in [("NN", false, false), ("NT", false, true), ("TN", true, false)] {
                let side = |t: &CubeTensor, transposed| Operand { tensor: t.clone(), transposed };
                // Several at a time, so that the host stays ahead of the device.
                let seconds = (0..8).map(|_| {
                    let start = Event::record(gpu);
                    for _ in 0..BATCH {
                        let output = Output::New(a.dtype);
                        drop(matmul(side(&a, ta), side(&b, tb), output, compute.fp32_math()));
                    }
                    Event::record(gpu).seconds_since(&start) / f64::from(BATCH)
                });
                let seconds = median(seconds.skip(3).collect());
                println!(
                    "rate matmul {n} {} {name}: {:.1} TFLOP/s",
                    compute.name(),
                    2.0 * (n as f64).powi(3) / seconds / 1e12
                );
            }
        }
    }
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

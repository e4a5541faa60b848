//! Matrix products: every layout and type against f64, and why they are not Burn's own.

use burn::tensor::{DType, Tensor};
use runner::common::Compute;
use runner::device::cuda::{Fp32Math, Operand, Output, matmul, matmul_bias};
use runner::device::dtype;

use crate::on_gpu;
use crate::reference::TYPES;
use crate::reference::{error, host, on, primitive, product, random, tensor, tolerance};

/// Every layout of every type, into its own type and into fp32, overwriting and adding.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn matmul_against_f64() {
    on_gpu(|gpu, checks| {
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
                    let run = |output| {
                        host(tensor(matmul(side(&a, ta), side(&b, tb), output, Fp32Math::of(compute))))
                    };
                    let what = format!("matmul {} {name} into {out:?}", compute.into_str());
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
            let got = host(tensor(matmul(lhs, rhs, Output::New(dtype(compute)), Fp32Math::of(compute))));
            let what = format!("matmul {} of views", compute.into_str());
            checks.below(&what, error(&got, &expected), 4.0 * tolerance(compute));
        }
    });
}

/// A product added to a tensor that stays as it is, with and without a bias, at sizes that are multiples of nothing too.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn products_onto_a_tensor() {
    on_gpu(|gpu, checks| {
        for sizes @ [m, n, k] in [[192, 320, 256], [193, 77, 61], [7, 896, 130], [1, 9, 3]] {
            for compute in TYPES {
                for (name, ta, tb) in [("NN", false, false), ("NT", false, true)] {
                    let a = on(&gpu.burn(), random(if ta { [k, m] } else { [m, k] }, 1), compute);
                    let b = on(&gpu.burn(), random(if tb { [n, k] } else { [k, n] }, 2), compute);
                    let onto = on(&gpu.burn(), random([m, n], 3), compute);
                    let bias = on(&gpu.burn(), random([1, n], 4), compute);
                    let (added, each) = (host(onto.clone()), host(bias.clone()));
                    let product = product(&host(a.clone()), &host(b.clone()), sizes, ta, tb);
                    let sides = || {
                        [(&a, ta), (&b, tb)]
                            .map(|(side, transposed)| Operand { tensor: primitive(side.clone()), transposed })
                    };
                    let output = || Output::Onto(primitive(onto.clone()));
                    let math = Fp32Math::of(compute);
                    let what = format!("{sizes:?} {} {name} onto a tensor", compute.into_str());
                    let limit = 4.0 * tolerance(compute);
                    let sum: Vec<f64> = product.iter().zip(&added).map(|(x, y)| x + y).collect();
                    let [lhs, rhs] = sides();
                    let got = host(tensor(matmul(lhs, rhs, output(), math)));
                    checks.below(&what, error(&got, &sum), limit);
                    let biased: Vec<f64> = sum.iter().enumerate().map(|(i, x)| x + each[i % n]).collect();
                    let [lhs, rhs] = sides();
                    let of_bias = primitive(bias.clone());
                    let got = host(tensor(matmul_bias(lhs, rhs, of_bias, output(), math)));
                    checks.below(&format!("{what}, with a bias"), error(&got, &biased), limit);
                    checks.below(&format!("{what}, which stays"), error(&host(onto), &added), 1e-30);
                }
            }
        }
    });
}

/// Why fp32 does not go through Burn's product: it is TF32 there.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn burn_matmul_is_tf32() {
    on_gpu(|gpu, checks| {
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
    });
}

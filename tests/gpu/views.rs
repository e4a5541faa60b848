//! Products of batches and of parts, into rows of a tensor, with a bias, of every
//! layout and type against f64; and that tuning changes no result.

use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::tensor::CubeTensor;
use runner::common::Compute;
use runner::device::cuda::{Fp32Math, Gpu, Operand, Output, Recording, View, buffer, matmul, matmul_bias};
use runner::device::dtype;
use runner::device::trace::ActivityKind;

use crate::reference::TYPES;
use crate::reference::{error, host, on, primitive, product, random, tensor, tolerance};
use crate::{Checks, on_gpu};

/// A batch of row-major matrices on the device, and what it holds.
#[derive(Clone)]
struct Matrices {
    shape: [usize; 3],
    tensor: CubeTensor,
    values: Vec<f64>,
}

impl Matrices {
    /// Without a batch of rank 2.
    fn new(gpu: &Gpu, shape: [usize; 3], seed: u64, compute: Compute) -> Self {
        let [batch, rows, columns] = shape;
        let flat = on(&gpu.burn(), random([batch * rows, columns], seed), compute);
        let values = host(flat.clone());
        let tensor = match batch {
            1 => primitive(flat),
            _ => buffer(flat.reshape(shape)),
        };
        Self { shape, tensor, values }
    }

    /// Rows of one matrix.
    fn part(&self, matrix: usize, rows: std::ops::Range<usize>) -> &[f64] {
        let [_, all, columns] = self.shape;
        &self.values[(matrix * all + rows.start) * columns..(matrix * all + rows.end) * columns]
    }

    fn side(&self, transposed: bool) -> Operand {
        Operand { tensor: self.tensor.clone(), transposed }
    }
}

/// What a tensor of any shape holds.
fn values(matrices: CubeTensor) -> Vec<f64> {
    let count = matrices.meta.shape().num_elements();
    let CubeTensor { client, device, handle, dtype, .. } = matrices;
    let flat = CubeTensor::new_contiguous(client, device, Shape::from([1, count]), handle, dtype);
    host(tensor(flat))
}

/// Relative rounding of a product into `out`: into fp32 only the sums are rounded.
fn limit(compute: Compute, out: DType) -> f64 {
    match (compute, out) {
        (Compute::Bf16 | Compute::Fp16, DType::F32) => 1e-5,
        _ => 4.0 * tolerance(compute),
    }
}

const LAYOUTS: [(&str, bool, bool); 4] =
    [("NN", false, false), ("NT", false, true), ("TN", true, false), ("TT", true, true)];

/// Rows before and behind the part that is multiplied or written.
const BEFORE: usize = 8;
const BEHIND: usize = 24;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn views_against_f64() {
    on_gpu(|gpu, checks| {
        let sizes @ [m, n, k] = [96, 80, 64];
        let part = |rows: usize| BEFORE..BEFORE + rows;
        for compute in TYPES {
            for batch in [1, 3] {
                for (name, ta, tb) in LAYOUTS {
                    let ([ra, ca], [rb, cb]) =
                        (if ta { [k, m] } else { [m, k] }, if tb { [n, k] } else { [k, n] });
                    let a = Matrices::new(gpu, [batch, ra + BEFORE + BEHIND, ca], 1, compute);
                    let b = Matrices::new(gpu, [batch, rb + BEFORE + BEHIND, cb], 2, compute);
                    let one = |i| product(a.part(i, part(ra)), b.part(i, part(rb)), sizes, ta, tb);
                    let expected: Vec<f64> = (0..batch).flat_map(one).collect();
                    for out in [dtype(compute), DType::F32] {
                        let run = |output| {
                            let (lhs, rhs) = (a.side(ta).rows(part(ra)), b.side(tb).rows(part(rb)));
                            values(matmul(lhs, rhs, output, Fp32Math::of(compute)))
                        };
                        let what = format!("{batch} x rows, {} {name} into {out:?}", compute.into_str());
                        let mut below = |form: &str, got: Vec<f64>, expected: &[f64]| {
                            checks.below(
                                &format!("{what}, {form}"),
                                error(&got, expected),
                                limit(compute, out),
                            );
                        };
                        below("new", run(Output::New(out)), &expected);
                        let whole = ones(gpu, batch, m + BEFORE + BEHIND, n, out);
                        for accumulate in [false, true] {
                            let tensor = whole.clone();
                            let output = Output::Into { tensor, rows: part(m), columns: None, accumulate };
                            let in_place = embed(&expected, [batch, m, n], f64::from(u8::from(accumulate)));
                            below(
                                if accumulate { "added to rows" } else { "into rows" },
                                run(output),
                                &in_place,
                            );
                        }
                        let added: Vec<f64> = expected.iter().map(|x| x + 1.0).collect();
                        below("added", run(Output::AddTo(ones(gpu, batch, m, n, out))), &added);
                    }
                }
            }
            columns_and_heads(gpu, compute, checks);
            for batch in [1, 3] {
                bias(gpu, batch, compute, checks);
            }
        }
    });
}

fn ones(gpu: &Gpu, batch: usize, rows: usize, columns: usize, dtype: DType) -> CubeTensor {
    let flat = Tensor::<2>::ones([batch * rows, columns], (&gpu.burn(), dtype));
    match batch {
        1 => primitive(flat),
        _ => buffer(flat.reshape([batch, rows, columns])),
    }
}

/// Matrices of ones with `values` plus `plus` in the part that is written.
fn embed(values: &[f64], [batch, rows, columns]: [usize; 3], plus: f64) -> Vec<f64> {
    let (before, behind) = (vec![1.0; BEFORE * columns], vec![1.0; BEHIND * columns]);
    let written = |i: usize| values[i * rows * columns..][..rows * columns].iter().map(|x| x + plus);
    (0..batch)
        .flat_map(|i| {
            before.iter().copied().chain(written(i)).chain(behind.iter().copied()).collect::<Vec<_>>()
        })
        .collect()
}

/// Columns of a matrix, and heads that lie next to each other in every row.
fn columns_and_heads(gpu: &Gpu, compute: Compute, checks: &mut Checks) {
    let sizes @ [m, n, k] = [96, 80, 64];
    let (a, b) =
        (Matrices::new(gpu, [1, m, k + 32], 1, compute), Matrices::new(gpu, [1, n, k + 32], 2, compute));
    let cut = |t: &Matrices| -> Vec<f64> {
        t.values.chunks(k + 32).flat_map(|row| row[16..16 + k].to_vec()).collect()
    };
    let expected = product(&cut(&a), &cut(&b), sizes, false, true);
    let columns = |t: &Matrices, transposed| t.side(transposed).columns(16..16 + k);
    let got = matmul(columns(&a, false), columns(&b, true), Output::New(DType::F32), Fp32Math::of(compute));
    let what = format!("columns, {}", compute.into_str());
    checks.below(&what, error(&values(got), &expected), limit(compute, DType::F32));

    let heads = 4;
    let joined = |seed| on(&gpu.burn(), random([m, heads * k], seed), compute);
    let (q, keys) = (joined(3), joined(4));
    let split = |t: &Tensor<2>| {
        let split = t.clone().reshape([m, heads, k]).swap_dims(0, 1);
        buffer(split)
    };
    let (hq, hk) = (host(q.clone()), host(keys.clone()));
    let head = |t: &[f64], i: usize| -> Vec<f64> {
        t.chunks(heads * k).flat_map(|row| row[i * k..(i + 1) * k].to_vec()).collect()
    };
    let expected: Vec<f64> =
        (0..heads).flat_map(|i| product(&head(&hq, i), &head(&hk, i), [m, m, k], false, true)).collect();
    let lhs = Operand { tensor: split(&q), transposed: false };
    let rhs = Operand { tensor: split(&keys), transposed: true };
    let got = matmul(lhs, rhs, Output::New(DType::F32), Fp32Math::of(compute));
    let what = format!("heads of one matrix, {}", compute.into_str());
    checks.below(&what, error(&values(got), &expected), limit(compute, DType::F32));
}

fn bias(gpu: &'static Gpu, batch: usize, compute: Compute, checks: &mut Checks) {
    let sizes @ [m, n, k] = [96, 80, 64];
    let (a, b) =
        (Matrices::new(gpu, [batch, m, k], 1, compute), Matrices::new(gpu, [batch, n, k], 2, compute));
    for out in [dtype(compute), DType::F32] {
        let as_out = if out == DType::F32 { Compute::Fp32 } else { compute };
        let bias = on(&gpu.burn(), random([1, n], 3), as_out);
        let hosted = host(bias.clone());
        let bias = primitive(bias);
        let expected: Vec<f64> = (0..batch)
            .flat_map(|i| product(a.part(i, 0..m), b.part(i, 0..n), sizes, false, true))
            .enumerate()
            .map(|(place, x)| x + hosted[place % n])
            .collect();
        let run = || {
            let output = Output::New(out);
            matmul_bias(a.side(false), b.side(true), bias.clone(), output, Fp32Math::of(compute))
        };
        let what = format!("{batch} x bias, {} into {out:?}", compute.into_str());
        checks.below(&what, error(&values(run()), &expected), limit(compute, out));
        println!("     {}", kernels(gpu, || drop(run())));
    }
}

/// The kernels that `work` launches: one where the epilogue is the product's own.
fn kernels(gpu: &'static Gpu, work: impl FnOnce()) -> String {
    let Ok(recording) = Recording::start(gpu) else { return "no record".into() };
    work();
    let activities = recording.stop();
    let kernels = activities.iter().filter(|a| a.kind == ActivityKind::Kernel);
    let names: Vec<String> = kernels.map(|a| a.name.chars().take(60).collect()).collect();
    format!("{} kernels: {}", names.len(), names.join(" | "))
}

/// Every form of a product that is large enough to be tuned, before and after its tuning.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn tuning_changes_no_result() {
    on_gpu(|gpu, checks| {
        let n = 1024;
        for compute in TYPES {
            let [a, b] = [1, 2].map(|seed| Matrices::new(gpu, [1, n, n], seed, compute));
            let bias = primitive(on(&gpu.burn(), random([1, n], 3), Compute::Fp32));
            let sides = || (View::from(a.side(true)), View::from(b.side(false)));
            let math: Fp32Math = Fp32Math::of(compute);
            let whole = || ones(gpu, 1, n, n, DType::F32);
            let all = || {
                let form = |output| {
                    let (lhs, rhs) = sides();
                    matmul(lhs, rhs, output, math)
                };
                let (lhs, rhs) = sides();
                let biased = matmul_bias(lhs, rhs, bias.clone(), Output::New(DType::F32), math);
                let rows = Output::Into {
                    tensor: ones(gpu, 1, n + 64, n, DType::F32),
                    rows: 32..n + 32,
                    columns: None,
                    accumulate: true,
                };
                [form(Output::New(DType::F32)), form(Output::AddTo(whole())), form(rows), biased].map(values)
            };
            let before = all();
            let guard = gpu.allow_tuning(|_| ());
            let during = all();
            drop(guard);
            let after = all();
            // Against each other: algorithms differ in the order of their sums.
            let worst = |other: &[Vec<f64>; 4]| {
                before.iter().zip(other).map(|(a, b)| error(a, b)).fold(0.0, f64::max)
            };
            let what = format!("results before and after tuning, {}", compute.into_str());
            checks.below(&what, worst(&during).max(worst(&after)), 1e-4);
        }
        println!("     {}", gpu.paths()[0].1);
    });
}

//! Conversions and sums, activations, and the embedding.

use burn::tensor::DType;
use runner::ops::activation::cuda as kernel;
use runner::ops::activation::{Activation, formula};
use runner::ops::backend::uncube;
use runner::ops::embedding::cuda::{DevicePlan, ScatterPlan, gather, scatter};
use runner::ops::kernels::columns::column_sums;
use runner::ops::kernels::elementwise::{add, cast};
use runner::ops::largest;

use super::bench;
use super::data::{download, integers, known, normal};

const FLOATS: [DType; 3] = [DType::F32, DType::BF16, DType::F16];
const SIZES: [usize; 5] = [1, 7, 4096, 5000, 100_003];

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn elementwise() {
    bench(|bench| {
        for n in SIZES {
            for a in FLOATS {
                for b in FLOATS {
                    let (x, y) = (normal(&[n], a, 15), normal(&[n], b, 16));
                    bench.compare(&format!("cast {n} {a:?}"), &cast(x.tensor.clone(), b), &x.values);
                    let expected: Vec<f64> = x.values.iter().zip(&y.values).map(|(x, y)| x + y).collect();
                    let got = add(x.tensor.clone(), &y.tensor);
                    bench.compare(&format!("add {n} {a:?} {b:?}"), &got, &expected);
                    drop(got);
                    let got = add(x.tensor, &y.tensor);
                    bench.compare(&format!("add {n} {a:?} {b:?}, in place"), &got, &expected);
                }
            }
        }
    });
}

/// The first of equals, also among infinities, and a row without a number.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_largest_of_each_row() {
    bench(|bench| {
        for [rows, columns] in [[1, 1], [3, 7], [200, 49_152], [5, 1001]] {
            let mut x = normal(&[rows, columns], DType::F32, 17).values;
            let last = (rows - 1) * columns;
            let most = x[last..].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            x[last + columns / 2..].fill(most + 1.0);
            x[..columns].fill(if rows > 1 { f64::NEG_INFINITY } else { 1.0 });
            let first =
                |row: &[f64]| (0..columns).fold(0, |best, i| if row[i] > row[best] { i } else { best });
            // Whole numbers are the same in few bits, and often equal.
            let whole: Vec<f64> = x.iter().map(|x| x.round()).collect();
            for (x, dtype) in [(x, DType::F32), (whole, DType::BF16)] {
                let expected: Vec<i64> = x.chunks(columns).map(|row| first(row) as i64).collect();
                let got = largest(uncube::<2>(known(&x, &[rows, columns], dtype).tensor));
                let got: Vec<i64> = got.into_data().iter().collect();
                bench.holds(&format!("the largest of [{rows}, {columns}] {dtype:?}"), got == expected);
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn activations() {
    bench(|bench| {
        for (n, by) in SIZES.into_iter().flat_map(|n| Activation::ALL.map(|by| (n, by))) {
            for (x, g) in [
                (DType::F32, DType::F32),
                (DType::BF16, DType::BF16),
                (DType::BF16, DType::F32),
                (DType::F16, DType::F16),
            ] {
                let name = format!("{by:?} {n} {x:?} {g:?}");
                let (x, g) = (normal(&[n], x, 17), normal(&[n], g, 18));
                let expected: Vec<f64> = x.values.iter().map(|x| formula(by, *x).0).collect();
                bench.compare(&name, &kernel::activate(x.tensor.clone(), by), &expected);
                let expected: Vec<f64> =
                    x.values.iter().zip(&g.values).map(|(x, g)| g * formula(by, *x).1).collect();
                let got = kernel::activate_backward(&x.tensor, g.tensor.clone(), by);
                bench.compare(&format!("{name} backward"), &got, &expected);
                drop(got);
                let got = kernel::activate_backward(&x.tensor, g.tensor, by);
                bench.compare(&format!("{name} backward in place"), &got, &expected);
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn sums_of_columns() {
    bench(|bench| {
        for [rows, width] in [[1, 1], [7, 33], [300, 128], [513, 2304], [9000, 96], [40, 1152]] {
            for (x, g) in [
                (DType::F32, DType::F32),
                (DType::BF16, DType::BF16),
                (DType::BF16, DType::F32),
                (DType::F16, DType::F16),
            ] {
                let by = Activation::ALL[rows % 4];
                let name = format!("[{rows}, {width}] {x:?} {g:?}");
                let (x, g) = (normal(&[rows, width], x, 19), normal(&[rows, width], g, 20));
                let sums = |values: &[f64]| -> Vec<f64> {
                    (0..width).map(|column| values.iter().skip(column).step_by(width).sum()).collect()
                };
                let got = column_sums(&x.tensor, DType::F32);
                bench.compare_within(&format!("sums of columns {name}"), &got, &sums(&x.values), 1e-5);
                let expected: Vec<f64> =
                    x.values.iter().zip(&g.values).map(|(x, g)| g * formula(by, *x).1).collect();
                let (dx, got) = kernel::activate_backward_and_sums(&x.tensor, g.tensor, by, DType::F32);
                bench.compare(&format!("{by:?} backward with sums {name}"), &dx, &expected);
                let expected = sums(&download(&dx));
                bench.compare_within(&format!("its sums {name}"), &got, &expected, 1e-5);
            }
        }
    });
}

fn uploaded(plan: &ScatterPlan) -> DevicePlan {
    let upload = |values: &[i32]| integers(values, &[values.len()]);
    DevicePlan { order: upload(&plan.order), unique: upload(&plan.unique), starts: upload(&plan.starts) }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn embedding() {
    bench(|bench| {
        for (vocab, width, tokens) in [(1, 1, 1), (10, 7, 25), (50, 64, 3), (100, 1030, 77)] {
            // Several tokens of one id, ids without a token, the first and the last entry.
            let ids: Vec<i32> =
                (0..tokens).map(|t| if t % 3 == 0 { vocab - 1 } else { (t * t % 7) % vocab }).collect();
            let (vocab, tokens) = (vocab as usize, tokens as usize);
            let on_device = integers(&ids, &[tokens]);
            let plan = uploaded(&ScatterPlan::new(&ids));
            for (from, to) in [
                (DType::F32, DType::F32),
                (DType::F32, DType::BF16),
                (DType::BF16, DType::BF16),
                (DType::BF16, DType::F32),
            ] {
                let name = format!("[{vocab}, {width}] {tokens} tokens {from:?}");
                let weight = normal(&[vocab, width], from, 19);
                let expected: Vec<f64> = ids
                    .iter()
                    .flat_map(|id| weight.values[*id as usize * width..][..width].to_vec())
                    .collect();
                bench.compare(&format!("gather {name}"), &gather(&weight.tensor, &on_device, to), &expected);
                let g = normal(&[tokens, width], from, 20);
                let mut expected = vec![0.0; vocab * width];
                for (id, row) in ids.iter().zip(g.values.chunks(width)) {
                    let sums = &mut expected[*id as usize * width..][..width];
                    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                }
                bench.compare(
                    &format!("scatter {name}"),
                    &scatter(&g.tensor, &plan, 0..vocab, to),
                    &expected,
                );
                // The second half of the table, to which most ids do not belong.
                let half = vocab / 2;
                let rows = scatter(&g.tensor, &plan, half..vocab, to);
                bench.compare(&format!("scatter half {name}"), &rows, &expected[half * width..]);
            }
        }
        let weight = normal(&[10, 8], DType::F32, 19);
        let beyond = [10, -1, i32::MAX];
        let got = gather(&weight.tensor, &integers(&beyond, &[beyond.len()]), DType::F32);
        let last = weight.values[72..].repeat(beyond.len());
        bench.compare("gather beyond the table: its last row", &got, &last);
    });
}

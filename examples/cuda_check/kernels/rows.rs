//! Conversions and sums, GELU, and the embedding.

use burn::tensor::DType;
use runner::ops::kernels::elementwise::{add, cast};
use runner::ops::kernels::embedding::{DevicePlan, ScatterPlan, gather, scatter};
use runner::ops::kernels::gelu as kernel;

use super::Bench;
use super::data::{integers, large, normal};

const FLOATS: [DType; 3] = [DType::F32, DType::BF16, DType::F16];
const SIZES: [usize; 5] = [1, 7, 4096, 5000, 100_003];

pub fn elementwise(bench: &mut Bench) {
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
}

/// GELU and its derivative.
fn gelu_at(x: f64) -> (f64, f64) {
    let slope = (2.0 / std::f64::consts::PI).sqrt();
    let t = (slope * (x + 0.044715 * x * x * x)).tanh();
    let inner = slope * (1.0 + 3.0 * 0.044715 * x * x);
    (0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner)
}

pub fn gelu(bench: &mut Bench) {
    for n in SIZES {
        for (x, g) in [
            (DType::F32, DType::F32),
            (DType::BF16, DType::BF16),
            (DType::BF16, DType::F32),
            (DType::F16, DType::F16),
        ] {
            let name = format!("gelu {n} {x:?} {g:?}");
            let (x, g) = (normal(&[n], x, 17), normal(&[n], g, 18));
            let expected: Vec<f64> = x.values.iter().map(|x| gelu_at(*x).0).collect();
            bench.compare(&name, &kernel::gelu(x.tensor.clone()), &expected);
            let expected: Vec<f64> = x.values.iter().zip(&g.values).map(|(x, g)| g * gelu_at(*x).1).collect();
            let got = kernel::gelu_backward(&x.tensor, g.tensor.clone());
            bench.compare(&format!("{name} backward"), &got, &expected);
            drop(got);
            let got = kernel::gelu_backward(&x.tensor, g.tensor);
            bench.compare(&format!("{name} backward in place"), &got, &expected);
        }
    }
}

fn uploaded(plan: &ScatterPlan) -> DevicePlan {
    let upload = |values: &[i32]| integers(values, &[values.len()]);
    DevicePlan { order: upload(&plan.order), unique: upload(&plan.unique), starts: upload(&plan.starts) }
}

pub fn embedding(bench: &mut Bench) {
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
            let expected: Vec<f64> =
                ids.iter().flat_map(|id| weight.values[*id as usize * width..][..width].to_vec()).collect();
            bench.compare(&format!("gather {name}"), &gather(&weight.tensor, &on_device, to), &expected);
            let g = normal(&[tokens, width], from, 20);
            let mut expected = vec![0.0; vocab * width];
            for (id, row) in ids.iter().zip(g.values.chunks(width)) {
                let sums = &mut expected[*id as usize * width..][..width];
                sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            bench.compare(&format!("scatter {name}"), &scatter(&g.tensor, &plan, vocab, to), &expected);
        }
    }
    let weight = normal(&[10, 8], DType::F32, 19);
    let beyond = [10, -1, i32::MAX];
    let got = gather(&weight.tensor, &integers(&beyond, &[beyond.len()]), DType::F32);
    bench.compare("gather beyond the table: its last row", &got, &weight.values[72..].repeat(beyond.len()));
}

pub fn rates(bench: &mut Bench) {
    let n = 1 << 27;
    let (wide, narrow) = (large(&[n], DType::F32), large(&[n], DType::BF16));
    bench.rate("cast 134 M f32 to bf16", n * 6, || drop(cast(wide.clone(), DType::BF16)));
    bench.rate("add 134 M f32 and bf16", n * 10, || drop(add(wide.clone(), &narrow)));
    bench.rate("gelu 134 M bf16", n * 4, || drop(kernel::gelu(narrow.clone())));
    bench.rate("gelu_backward 134 M bf16", n * 6, || {
        drop(kernel::gelu_backward(&narrow, narrow.clone()));
    });
    drop((wide, narrow));
    let (vocab, width, tokens) = (151_936, 1024, 32_768);
    let weight = large(&[vocab, width], DType::BF16);
    let ids: Vec<i32> = (0..tokens as i64).map(|t| (t * t % vocab as i64) as i32).collect();
    let on_device = integers(&ids, &[tokens]);
    let plan = ScatterPlan::new(&ids);
    println!("{} different ids", plan.unique.len());
    let plan = uploaded(&plan);
    bench.rate("gather 32768 of [151936, 1024] bf16", tokens * width * 4, || {
        drop(gather(&weight, &on_device, DType::BF16));
    });
    let g = large(&[tokens, width], DType::BF16);
    bench.rate("scatter 32768 into [151936, 1024] f32", tokens * width * 2 + vocab * width * 4, || {
        drop(scatter(&g, &plan, vocab, DType::F32));
    });
}

//! Rotary embeddings, head layouts and masked softmax.

use burn::tensor::{DType, FloatDType, Tensor};
use runner::ops::attention::heads_cuda::{merge_heads, merge_heads_into, split_heads};
use runner::ops::attention::softmax_cuda::{Mask, Scaling, masked_softmax, masked_softmax_backward};
use runner::ops::attention::{Heads, Scores};
use runner::ops::backend::{cube, uncube};
use runner::ops::rope::Pairs;
use runner::ops::rope::cuda::rope;

use super::bench;
use super::data::{integers, known, normal};

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn rope_values() {
    bench(|bench| {
        // With numbers of each head, and columns behind the heads, that stay as they are.
        for (tokens, heads, d, turned, rest, neighbours) in [
            (1, 1, 2, 2, 0, false),
            (7, 3, 6, 6, 0, false),
            (5, 2, 64, 64, 64, false),
            (33, 4, 128, 128, 0, false),
            (9, 16, 64, 64, 128, false),
            (4, 3, 8, 8, 5, false),
            (5, 4, 24, 16, 0, false),
            (1, 1, 2, 2, 0, true),
            (7, 3, 6, 4, 5, true),
            (33, 16, 256, 64, 4096, true),
        ] {
            let pairs = Pairs { head_dim: d, dimension: turned, neighbours };
            let (half, table, columns) = (turned / 2, tokens + 3, heads * d);
            let (step, apart) = if neighbours { (2, 1) } else { (1, half) };
            let width = columns + rest;
            let angles: Vec<f64> = (0..table * half).map(|i| (i * 7 % 100) as f64 * 0.063).collect();
            let cosines: Vec<f64> = angles.iter().map(|a| a.cos()).collect();
            let sines: Vec<f64> = angles.iter().map(|a| a.sin()).collect();
            let cos = known(&cosines, &[table, half], DType::F32);
            let sin = known(&sines, &[table, half], DType::F32);
            let positions: Vec<i32> = (0..tokens).map(|t| ((t * 5) % table) as i32).collect();
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                for inverse in [false, true] {
                    let x = normal(&[tokens, width], dtype, 5);
                    let mut expected = x.values.clone();
                    for (t, position) in positions.iter().enumerate() {
                        for pair in 0..heads * half {
                            let first = t * width + pair / half * d + pair % half * step;
                            let at = *position as usize * half + pair % half;
                            let s = sin.values[at] * if inverse { -1.0 } else { 1.0 };
                            let (x1, x2, c) = (x.values[first], x.values[first + apart], cos.values[at]);
                            expected[first] = x1 * c - x2 * s;
                            expected[first + apart] = x2 * c + x1 * s;
                        }
                    }
                    let name =
                        format!("rope [{tokens}, {heads}*{d}+{rest}] {pairs:?} {dtype:?} inverse {inverse}");
                    let places = integers(&positions, &[tokens]);
                    let shared = x.tensor.clone();
                    let got =
                        rope(x.tensor.clone(), columns, pairs, &cos.tensor, &sin.tensor, &places, inverse);
                    bench.compare(&format!("{name}, input kept"), &got, &expected);
                    bench.compare_within(&format!("{name}, the input"), &shared, &x.values, 0.0);
                    drop((shared, got));
                    let got = rope(x.tensor, columns, pairs, &cos.tensor, &sin.tensor, &places, inverse);
                    bench.compare(&format!("{name}, in place"), &got, &expected);
                }
            }
        }
    });
}

/// Values beside queries and keys are there whether or not CubeCL's thread still holds the memory that it has just
/// allocated: the host asks at all moments.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_is_not_turned_stays_in_memory_that_is_new() {
    bench(|bench| {
        let (tokens, d, rest) = (3, 8, 16);
        let pairs = Pairs::halves(d);
        let x = normal(&[tokens, d + rest], DType::BF16, 5);
        let angles = normal(&[tokens, d / 2], DType::F32, 6);
        let places = integers(&[0, 1, 2], &[tokens]);
        let values: Tensor<2> = uncube(x.tensor);
        let turned = |x: Tensor<2>| {
            let [cos, sin] = [&angles.tensor; 2];
            uncube::<2>(rope(cube(x), d, pairs, cos, sin, &places, false)).slice([0..tokens, d..d + rest])
        };
        let expected = values.clone().slice([0..tokens, d..d + rest]);
        // Counted on the device, so that the host runs ahead of CubeCL's thread.
        let mut wrong = Tensor::<2>::zeros([tokens, rest], &values.device()).cast(FloatDType::F32);
        for i in 0..20_000 {
            // Exact, in memory of its own, and not what an earlier turn has left there.
            let by = f64::from(1 << (i % 7));
            let lost = turned(values.clone() * by).not_equal(expected.clone() * by);
            wrong = wrong + lost.float().cast(FloatDType::F32);
        }
        let wrong: f64 = wrong.sum().into_scalar::<f32>().into();
        bench.holds(&format!("{wrong} values were lost"), wrong == 0.0);
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn heads() {
    bench(|bench| {
        for (batch, sequence, kv_heads, group, head_dim, before, after) in [
            (1, 1, 1, 1, 1, 0, 0),
            (2, 5, 2, 3, 6, 6, 3),
            (2, 7, 2, 1, 64, 128, 0),
            (3, 17, 4, 2, 64, 0, 512),
            (1, 9, 1, 8, 128, 0, 0),
        ] {
            let dims = Heads { batch, sequence, kv_heads, group, head_dim, scores: Scores::default() };
            let (tokens, width) = (batch * sequence, kv_heads * group * head_dim);
            let columns = before + width + after;
            for dtype in [DType::F32, DType::BF16] {
                let name = format!("{dims:?} columns {columns} {dtype:?}");
                let x = normal(&[tokens, columns], dtype, 6);
                let mut expected = Vec::new();
                let mut kept = Vec::new();
                for matrix in 0..batch * kv_heads {
                    for row in 0..sequence * group {
                        let token = matrix / kv_heads * sequence + row / group;
                        let head = matrix % kv_heads * group + row % group;
                        for i in 0..head_dim {
                            expected.push(x.values[token * columns + before + head * head_dim + i]);
                        }
                    }
                }
                for token in 0..tokens {
                    let start = token * columns + before;
                    kept.extend_from_slice(&x.values[start..start + width]);
                }
                let split = split_heads(&x.tensor, before, dims, None);
                bench.compare_within(&format!("split_heads {name}"), &split, &expected, 0.0);
                let merged = merge_heads(&split, dims, DType::BF16);
                bench.compare(&format!("merge_heads {name}"), &merged, &kept);
                let target = normal(&[tokens, columns], DType::BF16, 7);
                let mut expected = target.values.clone();
                for token in 0..tokens {
                    expected[token * columns + before..token * columns + before + width]
                        .copy_from_slice(&kept[token * width..(token + 1) * width]);
                }
                let merged = merge_heads_into(&split, dims, None, target.tensor, before);
                bench.compare(&format!("merge_heads_into {name}"), &merged, &expected);
            }
        }
    });
}

/// A block of scores: batch, kv_heads, group, positions, first query, keys, positions of a sequence, first key, and the
/// window (0: none).
const BLOCKS: [[usize; 9]; 11] = [
    [1, 1, 1, 1, 0, 1, 1, 0, 0],
    [2, 1, 1, 3, 0, 3, 5, 0, 2],
    [2, 2, 3, 5, 4, 9, 11, 0, 0],
    [2, 2, 3, 5, 4, 8, 11, 1, 4],
    [1, 2, 2, 16, 16, 32, 64, 0, 0],
    [2, 2, 1, 8, 120, 128, 128, 0, 0],
    [2, 2, 1, 8, 120, 64, 128, 64, 50],
    [1, 1, 4, 4, 600, 608, 1024, 0, 100],
    [1, 2, 1, 3, 3000, 3003, 4000, 0, 0],
    [1, 2, 1, 3, 3000, 2003, 4000, 1000, 1990],
    [1, 1, 2, 2, 9000, 9004, 9004, 0, 8000],
];

/// P and the gradient of the products, of a block whose positions belong to the segments `ids`.
fn softmax_by_definition(
    block: [usize; 9],
    ids: Option<&[i32]>,
    soft_cap: Option<f64>,
    scale: f64,
    products: &[f64],
    dp: &[f64],
) -> [Vec<f64>; 2] {
    let [batch, kv_heads, group, positions, query_start, keys, total, key_start, window] = block;
    let rows = positions * group;
    let [mut p, mut ds] = [Vec::new(), Vec::new()];
    for row in 0..batch * kv_heads * rows {
        let position = query_start + row % rows / group;
        let sequence = row / rows / kv_heads * total;
        let visible = |j: &usize| {
            let key = key_start + j;
            key <= position
                && (window == 0 || position - key < window)
                && ids.is_none_or(|ids| ids[sequence + key] == ids[sequence + position])
        };
        let at = row * keys;
        // A score and its slope.
        let score = |j: usize| {
            let z = scale * products[at + j];
            let tanh = soft_cap.map(|cap| (cap, (z / cap).tanh()));
            tanh.map_or((z, scale), |(cap, t)| (cap * t, scale * (1.0 - t * t)))
        };
        let seen: Vec<usize> = (0..keys).filter(visible).collect();
        let top = seen.iter().map(|j| score(*j).0).fold(f64::NEG_INFINITY, f64::max);
        let mut terms = vec![0.0; keys];
        seen.iter().for_each(|j| terms[*j] = (score(*j).0 - top).exp());
        let sum: f64 = terms.iter().sum();
        let mean: f64 = (0..keys).map(|j| terms[j] / sum * dp[at + j]).sum();
        p.extend(terms.iter().map(|x| x / sum));
        ds.extend((0..keys).map(|j| score(j).1 * terms[j] / sum * (dp[at + j] - mean)));
    }
    [p, ds]
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn softmax() {
    bench(|bench| {
        for (block, soft_cap) in BLOCKS.into_iter().flat_map(|block| [(block, None), (block, Some(20.0))]) {
            let [batch, kv_heads, group, positions, query_start, keys, total, key_start, window] = block;
            let shape = [batch * kv_heads, positions * group, keys];
            // Samples of growing length, and padding at the end of each sequence.
            let segment = |b: usize, j: usize| match () {
                () if j + 1 == total && total > key_start + keys => -1,
                () => ((j + 3 * b) as f64).sqrt() as i32 / 3,
            };
            let ids: Vec<i32> = (0..batch * total).map(|i| segment(i / total, i % total)).collect();
            let scaling = Scaling { scale: 0.3, soft_cap: soft_cap.map(|cap: f64| cap as f32) };
            let scores = normal(&shape, DType::F32, 8);
            let scores: Vec<f64> = scores.values.iter().map(|x| 4.0 * x + 50.0).collect();
            let (scores, dp) = (known(&scores, &shape, DType::F32), normal(&shape, DType::F32, 9));
            for packed in [false, true] {
                let segments = packed.then(|| integers(&ids, &[batch, total]));
                let window = (window > 0).then_some(window);
                let mask = Mask { query_start, key_start, window, group, kv_heads, segments };
                let ids = packed.then_some(&ids[..]);
                let scale = f64::from(scaling.scale);
                let [p, ds] = softmax_by_definition(block, ids, soft_cap, scale, &scores.values, &dp.values);
                let name = format!("masked_softmax {block:?} {scaling:?} packed {packed}");
                for out in [DType::F32, DType::BF16] {
                    let allowed = super::tolerance(out).max(2e-5);
                    let got = masked_softmax(scores.tensor.clone(), &mask, scaling, out);
                    bench.compare_within(&name, &got, &p, allowed);
                    let (scores, dp) = (scores.tensor.clone(), dp.tensor.clone());
                    let (got, got_ds) = masked_softmax_backward(scores, dp, &mask, scaling, out);
                    bench.compare_within(&format!("{name} backward P"), &got, &p, allowed);
                    bench.compare_within(&format!("{name} dS"), &got_ds, &ds, allowed);
                }
                let again = |values: &[f64]| known(values, &shape, DType::F32).tensor;
                let (first, second) = (again(&scores.values), again(&dp.values));
                let (got, got_ds) = masked_softmax_backward(first, second, &mask, scaling, DType::F32);
                bench.compare_within(&format!("{name}, in place, backward P"), &got, &p, 2e-5);
                bench.compare_within(&format!("{name}, in place, dS"), &got_ds, &ds, 2e-5);
                let got = masked_softmax(again(&scores.values), &mask, scaling, DType::F32);
                bench.compare_within(&format!("{name}, in place"), &got, &p, 2e-5);
            }
        }
    });
}

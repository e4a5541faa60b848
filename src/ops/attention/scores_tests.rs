//! The options of scores on every path of the CPU, against their definition in f64.

use burn::tensor::{DType, Device, Int, Tensor};

use super::blocks::{Split, attend, attend_backward};
use super::{Buckets, Grain, Heads, Mask, Packing, Scores, Way, attend_cached, attention, attention_packed};
use crate::ops::dense::Arithmetic;
use crate::ops::narrow;
use crate::ops::product::Fp32Math;
use crate::ops::testing::{assert_close, random};

/// Each option alone, and all together.
const SCORES: [Scores; 6] = [
    Scores { scale: None, soft_cap: None, window: None },
    Scores { scale: Some(0.8), soft_cap: None, window: None },
    Scores { scale: None, soft_cap: Some(0.7), window: None },
    Scores { scale: None, soft_cap: None, window: Some(1) },
    Scores { scale: None, soft_cap: None, window: Some(29) },
    Scores { scale: Some(0.3), soft_cap: Some(1.5), window: Some(70) },
];

fn heads(batch: usize, sequence: usize, scores: Scores) -> Heads {
    Heads { batch, sequence, kv_heads: 2, group: 3, head_dim: 5, scores }
}

fn arithmetic(dtype: DType) -> Arithmetic {
    Arithmetic { dtype, math: Fp32Math::Exact }
}

fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// q, k, v and the gradient of the result, with a token a row.
fn data(heads: Heads) -> [Tensor<2>; 4] {
    let (queries, keys) = (heads.columns(), heads.of_keys().columns());
    let mut seed = 0;
    [queries, keys, keys, queries].map(|columns| {
        seed += 1;
        random([heads.tokens(), columns], seed)
    })
}

/// The tokens' segments, of these lengths by turns in every sequence, by the position of their first token.
fn starts(heads: Heads, lengths: &[usize]) -> Vec<i32> {
    let mut sequence = Vec::new();
    for length in lengths.iter().cycle() {
        let length = (*length).min(heads.sequence - sequence.len());
        sequence.extend(vec![sequence.len() as i32; length]);
        if length == 0 {
            break;
        }
    }
    sequence.repeat(heads.batch)
}

fn mask(heads: Heads, starts: Option<&Vec<i32>>, packing: Option<Packing>) -> Mask {
    let tensor = |starts: &Vec<i32>| {
        let device = Device::flex();
        Tensor::<1, Int>::from_ints(starts.as_slice(), &device).reshape([heads.batch, heads.sequence])
    };
    Mask { starts: starts.map(tensor), packing }
}

/// o, dq, dk and dv.
fn definition(heads: Heads, starts: Option<&Vec<i32>>) -> [Vec<f64>; 4] {
    let Heads { batch, sequence, kv_heads, group, head_dim: d, scores } = heads;
    let [q, k, v, g] = data(heads).map(|x| list(x.inner()));
    let [mut o, mut dq, mut dk, mut dv] = [&q, &q, &k, &v].map(|x| vec![0.0; x.len()]);
    let scale = scores.scale.unwrap_or(1.0 / (d as f64).sqrt());
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    for (token, head) in
        (0..batch * sequence).flat_map(|token| (0..kv_heads * group).map(move |h| (token, h)))
    {
        let (first, position) = (token / sequence * sequence, token % sequence);
        let start = starts.map_or(0, |starts| starts[token] as usize);
        let keys: Vec<usize> = (start..=position)
            .filter(|key| scores.window.is_none_or(|window| position - key < window))
            .map(|key| ((first + key) * kv_heads + head / group) * d)
            .collect();
        let query = (token * kv_heads * group + head) * d;
        let (q, g) = (&q[query..][..d], &g[query..][..d]);
        // A score and its slope.
        let score = |key: &usize| {
            let z = scale * dot(q, &k[*key..][..d]);
            let tanh = scores.soft_cap.map(|cap| (z / cap).tanh());
            tanh.map_or((z, scale), |t| (scores.soft_cap.unwrap() * t, scale * (1.0 - t * t)))
        };
        let z: Vec<(f64, f64)> = keys.iter().map(score).collect();
        let sum: f64 = z.iter().map(|(z, _)| z.exp()).sum();
        let dp: Vec<f64> = keys.iter().map(|key| dot(g, &v[*key..][..d])).collect();
        let mean: f64 = z.iter().zip(&dp).map(|((z, _), dp)| z.exp() / sum * dp).sum();
        for ((key, (z, slope)), dp) in keys.iter().zip(&z).zip(&dp) {
            let p = z.exp() / sum;
            let ds = p * (dp - mean) * slope;
            for i in 0..d {
                o[query + i] += p * v[key + i];
                dv[key + i] += p * g[i];
                dq[query + i] += ds * k[key + i];
                dk[key + i] += ds * q[i];
            }
        }
    }
    [o, dq, dk, dv]
}

fn compare(name: &str, ours: &[Vec<f64>; 4], exact: &[Vec<f64>; 4], allowed: f64) {
    for ((part, ours), exact) in ["o", "dq", "dk", "dv"].iter().zip(ours).zip(exact) {
        println!("{name}: {part}");
        // A query that sees itself alone has no gradient.
        if exact.iter().any(|x| x.abs() > 1e-12) {
            assert_close(ours, exact, allowed);
        } else {
            assert!(ours.iter().all(|x| x.abs() < allowed));
        }
    }
}

/// The CPU's kernels, blocks of queries and Burn's operators; whole sequences, segments and packed samples.
#[test]
fn every_path_computes_the_options() {
    let lengths = [90, 3, 71, 36];
    for scores in SCORES {
        for (batch, sequence, segments) in
            [(2, 150, None), (2, 150, Some(&[11, 200][..])), (1, 200, Some(&lengths[..]))]
        {
            let heads = heads(batch, sequence, scores);
            let starts = segments.map(|lengths| starts(heads, lengths));
            let exact = definition(heads, starts.as_ref());
            let run = |way, dtype, packing, together| {
                let [q, k, v, g] = data(heads);
                let [q, k, v] = [q, k, v].map(Tensor::require_grad);
                let mask = mask(heads, starts.as_ref(), packing);
                let inputs = [q.clone(), k.clone(), v.clone()];
                let o = match together {
                    true => {
                        attention_packed(Tensor::cat(inputs.into(), 1), heads, &mask, arithmetic(dtype), way)
                    }
                    false => {
                        let [q, k, v] = inputs;
                        attention(q, k, v, heads, &mask, arithmetic(dtype), way)
                    }
                };
                let gradients = (narrow(o.clone(), DType::F32) * g).sum().backward();
                let gradient = |x: &Tensor<2>| list(x.grad(&gradients).expect("a gradient"));
                [list(o.inner()), gradient(&q), gradient(&k), gradient(&v)]
            };
            let name = format!("{scores:?} of {sequence} tokens in {segments:?}");
            for (way, dtype, allowed) in [
                (Way::Fused, DType::F32, 1e-5),
                (Way::Plain, DType::F32, 1e-5),
                (Way::Blocks, DType::F16, 1e-2),
                (Way::Plain, DType::F16, 1e-2),
            ] {
                for together in [false, true] {
                    let name = format!("{name}, {way:?} {dtype:?} in one tensor {together}");
                    compare(&name, &run(way, dtype, None, together), &exact, allowed);
                }
            }
            if batch == 1 {
                for (dtype, allowed) in [(DType::F32, 1e-5), (DType::F16, 1e-2)] {
                    let Buckets { buckets, tokens } = Buckets::of(&lengths, Grain::CPU);
                    let packing =
                        Packing::new(buckets, Tensor::from_ints(tokens.as_slice(), &Device::flex()));
                    let ours = run(Way::Blocks, dtype, Some(packing), false);
                    compare(&format!("{name}, packed {dtype:?}"), &ours, &exact, allowed);
                }
            }
        }
    }
}

#[test]
fn blocks_of_any_size_compute_the_options() {
    for scores in SCORES {
        let heads = heads(2, 170, scores);
        let starts = starts(heads, &[23, 120]);
        let exact = definition(heads, Some(&starts));
        for size in [1, 40, 64, 169, 170] {
            let [q, k, v, g] = data(heads).map(Tensor::inner);
            let mut split = Split::new(&[q, k, v], [(0, 0), (1, 0), (2, 0)], heads, None);
            split.block = Some(size);
            let mask = mask(heads, Some(&starts), None);
            let o = attend(&split, &mask, arithmetic(DType::F32));
            let g = heads.split(g, 0, None);
            let [dq, dk, dv] = attend_backward(split, g, &mask, arithmetic(DType::F32));
            let keys = heads.of_keys();
            let of_heads = [(o, heads), (dq, heads), (dk, keys), (dv, keys)];
            let ours = of_heads.map(|(x, heads)| list(heads.merge(x, DType::F32)));
            compare(&format!("{scores:?} in blocks of {size}"), &ours, &exact, 1e-5);
        }
    }
}

/// New tokens over a cache with room for more, after padding.
#[test]
fn cached_keys_are_seen_within_the_window() {
    for scores in SCORES {
        let whole = heads(2, 150, scores);
        let starts = starts(whole, &[11, 200]);
        let [exact, ..] = definition(whole, Some(&starts));
        let columns = whole.columns();
        for (new, dtype, allowed) in
            [(1, DType::F32, 1e-5), (9, DType::F32, 1e-5), (1, DType::F16, 1e-2), (70, DType::F16, 1e-2)]
        {
            let [q, k, v, _] = data(whole).map(|x| narrow(x.inner(), dtype));
            let q = q.reshape([2, 150, columns]).narrow(1, 150 - new, new).reshape([2 * new, columns]);
            let cached = [k, v].map(|x| {
                let x = x.reshape([2, 150, whole.of_keys().columns()]);
                Tensor::cat(vec![x.clone(), x.narrow(1, 0, 7) * 100.0], 1)
            });
            let heads = Heads { sequence: new, ..whole };
            let mask = mask(whole, Some(&starts), None);
            let o = attend_cached(q, cached, heads, 150, &mask, arithmetic(dtype), Way::Fused);
            let last = |b: usize| exact[((b + 1) * 150 - new) * columns..(b + 1) * 150 * columns].to_vec();
            println!("{scores:?}, {new} {dtype:?}");
            assert_close(&list(o), &[last(0), last(1)].concat(), allowed);
        }
    }
}

/// Scores of a block are of its queries' windows, and blocks are no more than pay.
#[test]
fn blocks_grow_with_the_window() {
    use super::blocks::{block, block_sizes};

    let sizes = |sequence, window| block_sizes(1, 28, sequence, Scores { window, ..Scores::default() });
    // √(2^24 / 28) is 774.
    assert_eq!(block(1, 28, 100_000, 100_000, Some(512)), 832);
    let (count, largest) = sizes(100_000, Some(512));
    assert_eq!(count, 100_000usize.div_ceil(832));
    assert!(largest <= 832 * (832 + 512 + 64) && 4 * 28 * largest <= 192 << 20);
    // 192 MiB hold 1004 rows of a quarter of a long window and the window.
    assert_eq!(block(1, 1, 100_000, 100_000, Some(40_000)), 960);
    assert_eq!(sizes(4000, Some(4000)), sizes(4000, None));
}

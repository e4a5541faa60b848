//! The options of attention's scores: scale, soft cap and window, each alone and all together, on every path of the GPU.

use burn::tensor::{DType, Tensor, TensorData};
use runner::common::{Compute, DeviceId};
use runner::device::Feature;
use runner::ops::Ops;
use runner::ops::attention::{Heads, Mask, Scores, Way, attend_cached, path};
use runner::ops::dense::Arithmetic;

use super::definition::{by_definition, compare, data, mask, results, starts};
use crate::reference::float;
use crate::{lacks, on_gpu};

/// With windows shorter and longer than a tile, and a soft cap that bends most scores.
const SCORES: [Scores; 6] = [
    Scores { scale: Some(0.05), soft_cap: None, window: None },
    Scores { scale: None, soft_cap: Some(1.5), window: None },
    Scores { scale: None, soft_cap: None, window: Some(29) },
    Scores { scale: None, soft_cap: None, window: Some(100) },
    Scores { scale: Some(0.2), soft_cap: Some(2.0), window: Some(70) },
    Scores { scale: Some(0.1), soft_cap: Some(50.0), window: Some(131) },
];

/// batch, sequence, kv_heads, group and head_dim.
const SIZES: [[usize; 5]; 9] = [
    [2, 140, 1, 4, 64],
    [1, 257, 2, 1, 80],
    [1, 150, 1, 7, 96],
    [2, 201, 1, 1, 128],
    [1, 147, 1, 4, 192],
    [1, 203, 2, 1, 256],
    [1, 133, 1, 7, 256],
    [1, 140, 1, 4, 72],
    [2, 90, 2, 1, 8],
];

const PRECISIONS: [(Compute, f64); 2] = [(Compute::Bf16, 5e-3), (Compute::Fp16, 7e-4)];

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn fused_attention_with_options_against_its_definition() {
    on_gpu(|gpu, checks| {
        if lacks(Feature::FusedAttention) {
            return;
        }
        let device = gpu.burn();
        for [batch, sequence, kv_heads, group, head_dim] in SIZES {
            for (scores, (compute, tolerance)) in
                SCORES.into_iter().flat_map(|scores| PRECISIONS.map(|precision| (scores, precision)))
            {
                let heads = Heads { batch, sequence, kv_heads, group, head_dim, scores };
                let taken = path(DeviceId::Cuda(0), compute, &Ops::default(), head_dim);
                checks.verdict("the path", taken.starts_with("fused"), &taken);
                for lengths in [None, Some([37, 1, 190, 64])] {
                    let starts = lengths.map(|lengths| starts(heads, &lengths));
                    let mask =
                        starts.as_ref().map_or_else(Mask::default, |starts| mask(starts, heads, &device));
                    let expected = by_definition(heads, starts.as_deref(), compute);
                    let run = || results(&device, heads, &mask, compute, Way::Fused, true);
                    let (name, got) = (format!("fused {heads:?} {compute} {lengths:?}"), run());
                    compare(checks, &name, &got, &expected, tolerance);
                    checks.verdict(&format!("{name}, again"), run() == got, "the same bits");
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn blocks_of_queries_with_options_against_their_definition() {
    on_gpu(|gpu, checks| {
        let device = gpu.burn();
        // The second is so large that a window makes several blocks.
        for ([batch, sequence, kv_heads, group, head_dim], all) in
            [([2, 203, 2, 3, 20], &SCORES[..]), ([4, 1101, 1, 8, 16], &SCORES[4..5])]
        {
            for scores in all.iter().copied() {
                let heads = Heads { batch, sequence, kv_heads, group, head_dim, scores };
                let starts = starts(heads, &[37, 1, 700, 64]);
                let mask = mask(&starts, heads, &device);
                for (compute, tolerance) in [(Compute::Fp32, 2e-5), (Compute::Bf16, 1e-2)] {
                    let expected = by_definition(heads, Some(&starts), compute);
                    let got = results(&device, heads, &mask, compute, Way::Blocks, false);
                    compare(checks, &format!("blocks {heads:?} {compute}"), &got, &expected, tolerance);
                }
            }
        }
    });
}

/// One and several new tokens over a cache with room for more.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cached_attention_with_options_against_its_definition() {
    on_gpu(|gpu, checks| {
        let device = gpu.burn();
        for [batch, sequence, kv_heads, group, head_dim] in [[2, 303, 2, 3, 64], [3, 150, 1, 7, 256]] {
            for scores in SCORES {
                let whole = Heads { batch, sequence, kv_heads, group, head_dim, scores };
                let starts = starts(whole, &[11, 400]);
                let mask = mask(&starts, whole, &device);
                for (compute, tolerance) in [(Compute::Fp32, 2e-5), (Compute::Bf16, 1e-2)] {
                    let [expected, ..] = by_definition(whole, Some(&starts), compute);
                    let tokens = |values: Vec<f32>| {
                        let columns = values.len() / whole.tokens();
                        let values = TensorData::new(values, [batch, sequence, columns]);
                        Tensor::<3>::from_data(values, (&device, DType::F32)).cast(float(compute))
                    };
                    let [q, k, v, _] = data(whole, compute).map(tokens);
                    let cached = [k, v].map(|x| Tensor::cat(vec![x.clone(), x.narrow(1, 0, 7) * 100.0], 1));
                    for new in [1, 20] {
                        let columns = whole.columns();
                        let q = q.clone().narrow(1, sequence - new, new).reshape([batch * new, columns]);
                        let (heads, arithmetic) = (Heads { sequence: new, ..whole }, Arithmetic::of(compute));
                        let o =
                            attend_cached(q, cached.clone(), heads, sequence, &mask, arithmetic, Way::Fused);
                        let got: Vec<f64> = o.into_data().iter().collect();
                        let last = expected.chunks(sequence * columns);
                        let last: Vec<f64> =
                            last.flat_map(|x| &x[(sequence - new) * columns..]).copied().collect();
                        let off = got.iter().zip(&last).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                        let norm = last.iter().map(|x| x * x).sum::<f64>().sqrt();
                        checks.below(&format!("{new} after {heads:?} {compute}"), off / norm, tolerance);
                    }
                }
            }
        }
    });
}

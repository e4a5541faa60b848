//! Causal attention: the fused kernels and blocks of queries, against the definition in f64.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use runner::common::{Compute, DeviceId};
use runner::device::Feature;
use runner::ops::Ops;
use runner::ops::attention::{Buckets, Grain, Heads, Mask, Packing, Way, attention, attention_packed, path};
use runner::ops::dense::Arithmetic;
use runner::recipe::{Recipe, Source};
use runner::train::train;

use crate::reference::{float, random};
use crate::{Checks, lacks, on_gpu};

const NAMES: [&str; 4] = ["o", "dq", "dk", "dv"];

/// Of a token in a sequence: segments of these lengths by turns.
fn starts(heads: Heads, lengths: &[usize]) -> Vec<i32> {
    let sequence = |batch: usize| {
        let mut starts = Vec::new();
        for length in lengths.iter().cycle().skip(batch) {
            let length = (*length).min(heads.sequence - starts.len());
            starts.extend(vec![starts.len() as i32; length]);
            if starts.len() == heads.sequence {
                break;
            }
        }
        starts
    };
    (0..heads.batch).flat_map(sequence).collect()
}

fn mask(starts: &[i32], heads: Heads, device: &Device) -> Mask {
    let starts =
        Tensor::<1, Int>::from_data(TensorData::new(starts.to_vec(), [starts.len()]), (device, DType::I32));
    Mask { starts: Some(starts.reshape([heads.batch, heads.sequence])), packing: None }
}

/// q, k, v and the gradient of the result, rounded to the compute type.
fn data(heads: Heads, compute: Compute) -> [Vec<f32>; 4] {
    let (queries, keys) = (heads.columns(), heads.of_keys().columns());
    let mut seed = 0;
    [queries, keys, keys, queries].map(|columns| {
        seed += 1;
        let x =
            Tensor::<2>::from_data(random([heads.tokens(), columns], seed), (&Device::flex(), DType::F32));
        x.cast(float(compute)).cast(FloatDType::F32).into_data().try_to_vec().expect("floats")
    })
}

/// o and the gradients of q, k and v, these side by side in one tensor or in three.
fn results(
    device: &Device,
    heads: Heads,
    mask: &Mask,
    compute: Compute,
    way: Way,
    together: bool,
) -> [Vec<f64>; 4] {
    let device = device.clone().autodiff();
    let tensor = |values: Vec<f32>| {
        let columns = values.len() / heads.tokens();
        Tensor::<2>::from_data(TensorData::new(values, [heads.tokens(), columns]), (&device, DType::F32))
    };
    let [q, k, v, g] = data(heads, compute).map(tensor);
    let [q, k, v] = [q, k, v].map(Tensor::require_grad);
    let arithmetic = Arithmetic::of(compute);
    let o = match together {
        true => {
            let qkv = Tensor::cat(vec![q.clone(), k.clone(), v.clone()], 1).cast(float(compute));
            attention_packed(qkv, heads, mask, arithmetic, way)
        }
        false => attention(q.clone(), k.clone(), v.clone(), heads, mask, arithmetic, way),
    };
    let list = |t: Tensor<2>| t.into_data().iter::<f64>().collect::<Vec<f64>>();
    let values = list(o.clone().inner());
    let mut gradients = (o.cast(FloatDType::F32) * g).sum().backward();
    let mut gradient = |t: &Tensor<2>| list(t.grad_remove(&mut gradients).expect("a gradient"));
    [values, gradient(&q), gradient(&k), gradient(&v)]
}

/// The same by its definition.
fn by_definition(heads: Heads, starts: Option<&[i32]>, compute: Compute) -> [Vec<f64>; 4] {
    let Heads { batch, sequence, kv_heads, group, head_dim } = heads;
    let [q, k, v, g] = data(heads, compute).map(|x| x.into_iter().map(f64::from).collect::<Vec<f64>>());
    let [mut o, mut dq, mut dk, mut dv] = [&q, &q, &k, &v].map(|x| vec![0.0; x.len()]);
    let scale = 1.0 / (head_dim as f64).sqrt();
    for (b, h, i) in (0..batch)
        .flat_map(|b| (0..kv_heads * group).flat_map(move |h| (0..sequence).map(move |i| (b, h, i))))
    {
        let of_query = ((b * sequence + i) * kv_heads * group + h) * head_dim;
        let of_key = |j: usize| ((b * sequence + j) * kv_heads + h / group) * head_dim;
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let begin = starts.map_or(0, |starts| starts[b * sequence + i] as usize);
        let exps: Vec<f64> = (begin..=i)
            .map(|j| (scale * dot(&q[of_query..][..head_dim], &k[of_key(j)..][..head_dim])).exp())
            .collect();
        let sum: f64 = exps.iter().sum();
        let g = &g[of_query..][..head_dim];
        for (j, e) in (begin..=i).zip(&exps) {
            for d in 0..head_dim {
                o[of_query + d] += e / sum * v[of_key(j) + d];
            }
        }
        let delta = dot(g, &o[of_query..][..head_dim]);
        for (j, e) in (begin..=i).zip(&exps) {
            let p = e / sum;
            let ds = scale * p * (dot(g, &v[of_key(j)..][..head_dim]) - delta);
            for d in 0..head_dim {
                dv[of_key(j) + d] += p * g[d];
                dq[of_query + d] += ds * k[of_key(j) + d];
                dk[of_key(j) + d] += ds * q[of_query + d];
            }
        }
    }
    [o, dq, dk, dv]
}

/// ‖got − expected‖ / ‖expected‖ of each.
fn compare(checks: &mut Checks, name: &str, got: &[Vec<f64>; 4], expected: &[Vec<f64>; 4], tolerance: f64) {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    for ((part, got), expected) in NAMES.into_iter().zip(got).zip(expected) {
        let off = norm(&mut got.iter().zip(expected).map(|(a, b)| a - b));
        checks.below(&format!("{name}, {part}"), off / norm(&mut expected.iter().copied()), tolerance);
    }
}

/// Sizes that are no multiples of a tile, grouped queries, one tensor and three, segments and none; and the same bits
/// again.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn fused_attention_against_its_definition() {
    on_gpu(|gpu, checks| {
        if lacks(Feature::FusedAttention) {
            return;
        }
        let device = gpu.burn();
        for (batch, sequence, kv_heads, group, head_dim) in [
            (2, 140, 1, 3, 64),
            (1, 30, 1, 1, 64),
            (1, 150, 1, 2, 128),
            (2, 70, 1, 2, 80),
            (1, 130, 3, 1, 16),
        ] {
            let heads = Heads { batch, sequence, kv_heads, group, head_dim };
            for (compute, tolerance) in [(Compute::Bf16, 4e-3), (Compute::Fp16, 6e-4)] {
                let taken = path(DeviceId::Cuda(0), compute, &Ops::default(), head_dim);
                checks.verdict("the path", taken.starts_with("fused"), &taken);
                for lengths in [None, Some([37, 1, 90, 64])] {
                    let starts = lengths.map(|lengths| starts(heads, &lengths));
                    let mask =
                        starts.as_ref().map_or_else(Mask::default, |starts| mask(starts, heads, &device));
                    let expected = by_definition(heads, starts.as_deref(), compute);
                    let name = format!("fused attention {heads:?} {compute} {lengths:?}");
                    let run = |together| results(&device, heads, &mask, compute, Way::Fused, together);
                    let together = run(true);
                    compare(checks, &name, &together, &expected, tolerance);
                    compare(checks, &format!("{name}, three tensors"), &run(false), &expected, tolerance);
                    let again = run(true);
                    checks.verdict(&format!("{name}, again"), again == together, "the same bits");
                }
            }
        }
    });
}

/// Many samples in one sequence: their segments' mask, batches of their own and the fused kernels give the same.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn packed_attention() {
    on_gpu(|gpu, checks| {
        let device = gpu.burn();
        let heads = Heads { batch: 1, sequence: 5000, kv_heads: 2, group: 2, head_dim: 64 };
        let lengths: Vec<usize> = (0..).map(|number| 3 + number * 153 % 471).take(40).collect();
        let starts = starts(heads, &lengths);
        let mut lengths: Vec<usize> = starts.chunk_by(|a, b| a == b).map(<[i32]>::len).collect();
        lengths.retain(|length| *length > 0);
        // As CUDA divides them, and finer.
        let grains = [Grain::CUDA, Grain::CPU];
        for (compute, tolerance) in [(Compute::Fp32, 1e-5), (Compute::Bf16, 8e-3)] {
            let run = |grain: Option<Grain>, way: Way| {
                let packing = grain.map(|grain| {
                    let Buckets { buckets, tokens } = Buckets::of(&lengths, grain);
                    let count = tokens.len();
                    let tokens = Tensor::from_data(TensorData::new(tokens, [count]), (&device, DType::I32));
                    Packing::new(buckets, tokens)
                });
                let mask = Mask { packing, ..mask(&starts, heads, &device) };
                results(&device, heads, &mask, compute, way, false)
            };
            let whole = run(None, Way::Blocks);
            for grain in grains {
                let name = format!("packed attention {compute}, {grain:?}");
                compare(checks, &name, &run(Some(grain), Way::Blocks), &whole, tolerance);
            }
            let name = format!("packed attention {compute}, fused");
            compare(checks, &name, &run(Some(Grain::CUDA), Way::Fused), &whole, tolerance);
        }
    });
}

const TRAINED: &str = r#"title = "fused attention"
device = "cuda:0"
[model]
kind = "qwen2"
vocab_size = 300
hidden_size = 384
intermediate_size = 512
num_hidden_layers = 2
num_attention_heads = 6
num_key_value_heads = 2
max_position_embeddings = 256
[data]
corpus = "generated"
size = "100 KiB"
vocab_size = 300
[precision]
compute = "bf16"
[train]
batch_size = 3
seq_len = 200
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
warmup = 1
steps = 4
[grid]
"data.sampler" = ["standard", "packed"]
"ops.fused_attention" = [true, false]
"#;

/// Rows with padding and packed ones train alike with it and without, and a row says which ran.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn fused_attention_in_training() {
    on_gpu(|_, checks| {
        if lacks(Feature::FusedAttention) {
            return;
        }
        let source = Source { path: "fused.toml".into(), text: TRAINED.into() };
        let cells = Recipe::parse(&source).expect("a recipe").cells;
        let mut blocks_of = BTreeMap::new();
        for cell in cells.iter().rev() {
            let sampler = cell.settings()["data.sampler"].to_string();
            let result = train(cell, &runner::world::World::alone(), u64::MAX, None, |_| (), &mut |_, _| ())
                .unwrap_or_else(|_| panic!("{sampler} ends"));
            let path = &result.paths["attention"];
            if !cell.ops.fused_attention {
                checks.verdict(&sampler, path.starts_with("blocks of queries"), path);
                blocks_of.insert(sampler, result);
                continue;
            }
            checks.verdict(&sampler, path.starts_with("fused"), path);
            let blocks = &blocks_of[&sampler];
            let apart = result.loss.iter().zip(&blocks.loss).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            checks.below(&format!("{sampler}: losses {:?}", result.loss), apart, 2e-2);
            let [fused, blocks] = [&result, blocks].map(|result| result.memory.live_peak);
            let estimate = cell.estimate().total();
            checks.verdict(
                &sampler,
                fused < blocks,
                &format!("{fused} bytes, {estimate} estimated, {blocks} in blocks"),
            );
        }
    });
}

//! Causal attention: the fused kernels and blocks of queries, against the definition in f64.

mod cross;
mod definition;
mod scores;

use std::collections::BTreeMap;

use burn::tensor::{DType, Tensor, TensorData};
use runner::common::{Compute, DeviceId};
use runner::device::Feature;
use runner::ops::Ops;
use runner::ops::attention::{Buckets, Grain, Heads, Mask, Packing, Scores, Way, path};
use runner::recipe::{Recipe, Source};
use runner::train::train_alone;

use crate::{lacks, on_gpu};
use definition::{by_definition, compare, mask, results, starts};

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
            let heads = Heads { batch, sequence, kv_heads, group, head_dim, scores: Scores::default() };
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
        let scores = Scores::default();
        let heads = Heads { batch: 1, sequence: 5000, kv_heads: 2, group: 2, head_dim: 64, scores };
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
            let result = train_alone(cell, None, false).unwrap_or_else(|_| panic!("{sampler} ends"));
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

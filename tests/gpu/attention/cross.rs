//! Attention over keys of any sequence with a bias by distance, on the GPU as on the CPU; and the references of T5 with blocks
//! that stay and that move.

use std::path::Path;

use burn::tensor::{DType, Device, Tensor, TensorData};
use runner::common::Compute;
use runner::ops::attention::cross::{CrossHeads, cross_attention};
use runner::ops::attention::relative::{Buckets, RelativeBias};
use runner::ops::attention::{Heads, Scores, Way};
use runner::ops::dense::Arithmetic;
use runner::verify;

use crate::on_gpu;
use crate::reference::random;

/// o, and the gradients of q, k, v and the table.
fn results(device: &Device, heads: Heads, (keys, causal): (usize, bool), compute: Compute) -> [Vec<f64>; 5] {
    let device = device.clone().autodiff();
    let tensor = |[rows, columns]: [usize; 2], seed| {
        Tensor::<2>::from_data(random([rows, columns], seed), (&device, DType::F32)).require_grad()
    };
    let (batch, wide, slim) = (heads.batch, heads.columns(), heads.of_keys().columns());
    let [q, k, v] = [(heads.sequence, wide, 1), (keys, slim, 2), (keys, slim, 3)]
        .map(|(length, columns, seed)| tensor([batch * length, columns], seed));
    let table = tensor([12, heads.kv_heads * heads.group], 4);
    let g = tensor([batch * heads.sequence, wide], 5);
    let buckets = Buckets { count: 12, max_distance: 60, bidirectional: !causal };
    let inner = device.clone().inner();
    let pairs = buckets.of_pairs(&buckets.table(&inner), heads.sequence, keys);
    let bias = RelativeBias { table: table.clone(), buckets: pairs };
    // The last keys of all sequences but the first.
    let padding: Vec<bool> = (0..batch * keys).map(|i| !causal && i >= keys && i % keys > keys - 4).collect();
    let padding = Tensor::from_data(TensorData::new(padding, [batch, keys]), &inner);
    let cross = CrossHeads { heads, keys, causal, padding: Some(padding) };
    let qkv = [q.clone(), k.clone(), v.clone()];
    let o = cross_attention(qkv, Some(bias), &cross, Arithmetic::of(compute), Way::Fused);
    let gradients = (o.clone().cast(DType::F32) * g).sum().backward();
    let list = |x: Tensor<2>| x.cast(DType::F32).into_data().iter::<f64>().collect::<Vec<_>>();
    let of = |x: &Tensor<2>| list(x.grad(&gradients).expect("a gradient"));
    [list(o.inner()), of(&q), of(&k), of(&v), of(&table)]
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn attention_with_a_bias_is_that_of_the_cpu() {
    on_gpu(|gpu, checks| {
        let scores = Scores { scale: Some(1.0), ..Scores::default() };
        for (sequence, keys, causal) in [(37, 37, false), (130, 130, true), (70, 201, false), (1, 19, false)]
        {
            for (kv_heads, group, head_dim) in [(3, 1, 16), (2, 2, 24)] {
                let heads = Heads { batch: 3, sequence, kv_heads, group, head_dim, scores };
                let expected = results(&Device::flex(), heads, (keys, causal), Compute::Fp32);
                for (compute, tolerance) in [(Compute::Fp32, 1e-5), (Compute::Bf16, 5e-2)] {
                    let got = results(&gpu.burn(), heads, (keys, causal), compute);
                    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
                    for ((part, got), expected) in
                        ["o", "dq", "dk", "dv", "table"].iter().zip(&got).zip(&expected)
                    {
                        let off = norm(&mut got.iter().zip(expected).map(|(a, b)| a - b));
                        let name = format!("{heads:?} over {keys}, {compute}, {part}");
                        checks.below(&name, off / norm(&mut expected.iter().copied()), tolerance);
                    }
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn references_of_t5_pass() {
    on_gpu(|_, checks| {
        for name in ["t5", "t5_gated"] {
            for settings in [
                &[][..],
                &["precision.compute=bf16", "precision.autocast=true"],
                &["offload.strategy=overlap", "offload.optimizer=host", "offload.activations=host"],
                &["checkpoint.blocks=2", "train.accumulation_steps=2"],
            ] {
                let all = ["device=cuda:0"].iter().chain(settings);
                let settings = all.map(|setting| setting.parse().expect("a setting")).collect();
                let options = verify::Options { settings, atol: None };
                let folder = Path::new("tests/fixtures/families").join(name);
                let compared = verify::verify(&folder, &options).expect("a reference");
                checks.verdict(name, verify::passes(&compared), &verify::table(&compared));
            }
        }
    });
}

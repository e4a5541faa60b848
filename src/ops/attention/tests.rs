//! Blocks of queries against the whole.

use burn::tensor::{DType, Int, Tensor};

use super::blocks::block;
use super::blocks::{Split, attend, attend_backward};
use super::{Buckets, Grain, Heads, Mask, Packing, Scores, Way, attention, attention_packed, path};
use crate::ops::dense::Arithmetic;
use crate::ops::product::Fp32Math;
use crate::ops::testing::{assert_close, random};

fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

#[test]
fn blocks_of_any_size_give_the_same() {
    let arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    let heads =
        Heads { batch: 2, sequence: 50, kv_heads: 2, group: 3, head_dim: 4, scores: Scores::default() };
    let run = |block: usize| {
        let inputs = [(24, 1), (8, 2), (8, 3)].map(|(columns, seed)| random([100, columns], seed).inner());
        let mut split = Split::new(&inputs, [(0, 0), (1, 0), (2, 0)], heads, None);
        split.block = Some(block);
        let o = attend(&split, &Mask::default(), arithmetic);
        let g = heads.split(random([100, 24], 4).inner(), 0, None);
        let [dq, dk, dv] = attend_backward(split, g, &Mask::default(), arithmetic);
        [list(o), list(dq), list(dk), list(dv)]
    };
    let whole = run(50);
    for size in [1, 16, 49] {
        for (part, whole) in run(size).iter().zip(&whole) {
            assert_close(part, whole, 1e-5);
        }
    }
}

/// Samples of 90, 3, 71 and 36 tokens as batches of their own, in rows of up to 128, give what the mask of
/// their segments gives.
#[test]
fn packed_samples_are_batches_of_their_own() {
    let arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    let heads =
        Heads { batch: 1, sequence: 200, kv_heads: 2, group: 2, head_dim: 4, scores: Scores::default() };
    let lengths = [90, 3, 71, 36];
    let of_each = [(0, 90), (90, 3), (93, 71), (164, 36)];
    let starts: Vec<i32> = of_each.into_iter().flat_map(|(start, length)| vec![start; length]).collect();
    let device = burn::tensor::Device::flex();
    let starts = Tensor::<1, Int>::from_ints(starts.as_slice(), &device).reshape([1, 200]);
    let run = |grain: Option<Grain>, together: bool| {
        let packing = grain.map(|grain| {
            let Buckets { buckets, tokens } = Buckets::of(&lengths, grain);
            Packing::new(buckets, Tensor::from_ints(tokens.as_slice(), &device))
        });
        let mask = Mask { starts: Some(starts.clone()), packing };
        let inputs =
            [(16, 1), (8, 2), (8, 3)].map(|(columns, seed)| random([200, columns], seed).require_grad());
        let o = match together {
            true => {
                let qkv = Tensor::cat(inputs.to_vec(), 1);
                attention_packed(qkv, heads, &mask, arithmetic, Way::Blocks)
            }
            false => {
                let [q, k, v] = inputs.clone();
                attention(q, k, v, heads, &mask, arithmetic, Way::Blocks)
            }
        };
        let gradients = (o.clone() * random([200, 16], 4)).sum().backward();
        let gradients = inputs.map(|input| list(input.grad(&gradients).expect("a gradient")));
        std::iter::once(list(o.inner())).chain(gradients).collect::<Vec<_>>()
    };
    let whole = run(None, false);
    for together in [false, true] {
        for grain in [Grain::CPU, Grain::CUDA] {
            for (part, whole) in run(Some(grain), together).iter().zip(&whole) {
                assert_close(part, whole, 1e-5);
            }
        }
    }
}

#[test]
fn a_block_fits_its_bytes_and_is_worth_its_launches() {
    // 8 sequences of 1024, 20 heads: a quarter is 256, and 192 MiB / (4 · 160 · 1024) rows are 307.
    assert_eq!(block(8, 20, 1024, 1024, None), 256);
    // 4 sequences of 512, 14 heads: the whole square is 56 MiB.
    assert!(block(4, 14, 512, 512, None) >= 512);
    // One token after a hundred thousand.
    assert!(block(1, 32, 1, 100_000, None) >= 1);
    assert!(4 * 64 * 100_000 * block(2, 32, 100_000, 100_000, None) <= 192 << 20);
}

/// Without fused kernels the blocks run, and a row says so.
#[test]
fn the_path_follows_the_recipe_and_the_device() {
    use crate::common::{Compute, DeviceId};
    use crate::ops::{Operator, Ops};

    let blocks = Ops { fused_attention: false, ..Ops::default() };
    let plain = Ops { attention: Operator::Plain, ..Ops::default() };
    assert_eq!(
        [Ops::default(), blocks, plain].each_ref().map(Way::from),
        [Way::Fused, Way::Blocks, Way::Plain]
    );
    let path = |device, ops| path(device, Compute::Bf16, &ops, 64);
    assert_eq!(path(DeviceId::Cpu, Ops::default()), "blocks of queries");
    assert_eq!(path(DeviceId::Cuda(0), blocks), "blocks of queries (ops.fused_attention = false)");
    assert_eq!(path(DeviceId::Cuda(0), plain), "composed of Burn's operators");
}

//! Blocks of queries against the whole.

use burn::tensor::{DType, Int, Tensor};

use super::blocks::block;
use super::blocks::{Split, attend, attend_backward};
use super::{Buckets, Grain, Heads, Mask, Packing, attention, attention_packed};
use crate::ops::Operator;
use crate::ops::dense::Arithmetic;
use crate::ops::product::Fp32Math;
use crate::ops::testing::{assert_close, random};

fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

#[test]
fn blocks_of_any_size_give_the_same() {
    let arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    let heads = Heads { batch: 2, sequence: 50, kv_heads: 2, group: 3, head_dim: 4 };
    let run = |block: usize| {
        let inputs = [(24, 1), (8, 2), (8, 3)].map(|(columns, seed)| random([100, columns], seed).inner());
        let mut split = Split::new(&inputs, [(0, 0), (1, 0), (2, 0)], heads, None);
        split.block = Some(block);
        let o = attend(&split, &Mask::default(), 0, arithmetic);
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
    let heads = Heads { batch: 1, sequence: 200, kv_heads: 2, group: 2, head_dim: 4 };
    let lengths = [90, 3, 71, 36];
    let numbers: Vec<i32> = (0..).zip(lengths).flat_map(|(n, length)| vec![n; length]).collect();
    let device = burn::tensor::Device::flex();
    let segments = Tensor::<1, Int>::from_ints(numbers.as_slice(), &device).reshape([1, 200]);
    let run = |grain: Option<Grain>, together: bool| {
        let packing = grain.map(|grain| {
            let Buckets { buckets, tokens } = Buckets::of(&lengths, grain);
            Packing::new(buckets, Tensor::from_ints(tokens.as_slice(), &device))
        });
        let mask = Mask { segments: Some(segments.clone()), packing };
        let inputs =
            [(16, 1), (8, 2), (8, 3)].map(|(columns, seed)| random([200, columns], seed).require_grad());
        let o = match together {
            true => {
                let qkv = Tensor::cat(inputs.to_vec(), 1);
                attention_packed(qkv, heads, &mask, arithmetic, Operator::Custom)
            }
            false => {
                let [q, k, v] = inputs.clone();
                attention(q, k, v, heads, &mask, arithmetic, Operator::Custom)
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
    assert_eq!(block(8, 20, 1024, 1024), 256);
    // 4 sequences of 512, 14 heads: the whole square is 56 MiB.
    assert!(block(4, 14, 512, 512) >= 512);
    // One token after a hundred thousand.
    assert!(block(1, 32, 1, 100_000) >= 1);
    assert!(4 * 64 * 100_000 * block(2, 32, 100_000, 100_000) <= 192 << 20);
}

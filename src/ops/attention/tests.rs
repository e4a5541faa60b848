//! Blocks of queries against the whole.

use burn::tensor::{DType, Int, Tensor};

use super::blocks::{Split, attend, attend_backward};
use super::{Heads, Mask, block, packed_block};
use crate::ops::dense::Arithmetic;
use crate::ops::linear::Fp32Math;
use crate::ops::testing::{assert_close, random};

fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

#[test]
fn blocks_of_any_size_give_the_same() {
    let arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    let heads = Heads { batch: 2, sequence: 50, kv_heads: 2, group: 3, head_dim: 4 };
    let run = |block: usize| {
        let part = |columns: usize, seed: u64| (random([100, columns], seed).inner(), 0);
        let mut split = Split::new([part(24, 1), part(8, 2), part(8, 3)], heads, arithmetic);
        split.block = Some(block);
        let o = attend(&split, &Mask::default(), 0, arithmetic);
        let g = random([100, 24], 4).inner();
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

/// Samples of 90, 71 and 39 tokens: what lies before a block's first sample is not computed, and nothing
/// changes.
#[test]
fn packed_samples_need_no_keys_before_their_own() {
    let arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    let heads = Heads { batch: 1, sequence: 200, kv_heads: 2, group: 2, head_dim: 4 };
    let lengths = [90u32, 71, 39];
    let numbers: Vec<i32> = (0..).zip(lengths).flat_map(|(n, length)| vec![n; length as usize]).collect();
    let starts: Vec<u32> =
        [0, 90, 161].into_iter().zip(lengths).flat_map(|(s, n)| vec![s; n as usize]).collect();
    let device = burn::tensor::Device::flex();
    let segments = Tensor::<1, Int>::from_ints(numbers.as_slice(), &device).reshape([1, 200]);
    let run = |starts: Option<Vec<u32>>, block: Option<usize>| {
        let mask = Mask { segments: Some(segments.clone()), starts: starts.map(Into::into) };
        let part = |columns: usize, seed: u64| (random([200, columns], seed).inner(), 0);
        let mut split = Split::new([part(16, 1), part(8, 2), part(8, 3)], heads, arithmetic);
        split.block = block;
        let o = attend(&split, &mask, 0, arithmetic);
        let [dq, dk, dv] = attend_backward(split, random([200, 16], 4).inner(), &mask, arithmetic);
        [list(o), list(dq), list(dk), list(dv)]
    };
    let whole = run(None, Some(200));
    for block in [None, Some(16), Some(64), Some(100)] {
        for (part, whole) in run(Some(starts.clone()), block).iter().zip(&whole) {
            assert_close(part, whole, 1e-5);
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
    // 12 heads and samples of 256: 12 · 1088 · 1344 scores are 67 MiB in fp32.
    assert_eq!(packed_block(12, 256, true), 1088);
    assert_eq!(packed_block(12, 256, false), 64);
    let most = packed_block(64, 100_000, true);
    assert!(most == 64 || 4 * 64 * most * (most + 100_000) <= 192 << 20, "{most}");
}

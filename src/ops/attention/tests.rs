//! Blocks of queries against the whole.

use burn::tensor::{DType, Tensor};

use super::blocks::{Split, attend, attend_backward};
use super::{Heads, Mask, block};
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

//! The ladder of tensor parallelism on ranks as threads: layers that are divided give the loss and the gradients of whole
//! ones, with one sum in each direction.

use std::time::Duration;

use burn::tensor::activation::relu;

use super::*;
use crate::ops::Operator;
use crate::ops::dense::{Arithmetic, WeightLayout, dense};
use crate::ops::norm::norm;
use crate::ops::product::Fp32Math;
use crate::ops::testing::{assert_close, random};
use crate::world::World;
use crate::world::tests::on_ranks;

const LIMIT: Duration = Duration::from_secs(20);
const FP32: Arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
const TOKENS: usize = 6;
const HIDDEN: usize = 8;
const INNER: usize = 12;

fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// x, a norm's factors, W with its bias, V with its bias, whole.
struct Layers {
    x: Tensor<2>,
    factors: Tensor<1>,
    w: Tensor<2>,
    w_bias: Tensor<1>,
    v: Tensor<2>,
    v_bias: Tensor<1>,
}

impl Layers {
    /// The part of rank `place` of `of`.
    fn part(place: usize, of: usize) -> Self {
        let (first, columns) = (place * INNER / of, INNER / of);
        let leaf = |tensor: Tensor<2>| tensor.inner().autodiff().require_grad();
        let vector = |size, seed| random::<1>([size], seed).inner();
        Self {
            x: leaf(random([TOKENS, HIDDEN], 1)),
            factors: vector(HIDDEN, 2).autodiff().require_grad(),
            w: leaf(random([HIDDEN, INNER], 3).narrow(1, first, columns)),
            w_bias: vector(INNER, 4).narrow(0, first, columns).autodiff().require_grad(),
            v: leaf(random([INNER, HIDDEN], 5).narrow(0, first, columns)),
            v_bias: vector(HIDDEN, 6).autodiff().require_grad(),
        }
    }

    /// The squares of V relu(W norm(x)) added up, and the gradients in the order of the fields.
    fn run(&self, with_norm: bool, ranks: &ProcessGroup) -> (f64, [Vec<f64>; 6]) {
        let Self { x, factors, w, w_bias, v, v_bias } = self;
        let normal = match with_norm {
            true => norm(x.clone(), factors.clone(), None, 1e-5, DType::F32, Operator::Custom),
            false => x.clone() * factors.clone().unsqueeze_dim(0),
        };
        let layer = |x, weight: &Tensor<2>, bias| dense(x, weight.clone(), bias, WeightLayout::InOut, FP32);
        let inner = relu(layer(copy_to_ranks(normal, ranks), w, Some(w_bias.clone().into())));
        let y = sum_over_ranks(layer(inner, v, None), Some(v_bias.clone().into()), ranks);
        let loss = y.square().sum();
        let mut gradients = loss.clone().backward();
        let mut of = |tensor: &Tensor<2>| list(tensor.grad_remove(&mut gradients).expect("a gradient"));
        let [dx, dw, dv] = [x, w, v].map(&mut of);
        let mut of = |tensor: &Tensor<1>| list(tensor.grad_remove(&mut gradients).expect("a gradient"));
        let [dfactors, dw_bias, dv_bias] = [factors, w_bias, v_bias].map(&mut of);
        (list(loss)[0], [dx, dfactors, dw, dw_bias, dv, dv_bias])
    }
}

/// The columns of matrices one after the other, of so many columns together.
fn side_by_side(parts: &[&Vec<f64>], rows: usize) -> Vec<f64> {
    let row = |row: usize| {
        parts
            .iter()
            .flat_map(move |part| part[row * part.len() / rows..(row + 1) * part.len() / rows].to_vec())
    };
    (0..rows).flat_map(row).collect()
}

#[test]
fn two_layers_divided_among_ranks_are_the_whole_ones_with_one_sum_in_each_direction() {
    for with_norm in [false, true] {
        let (loss, whole) = Layers::part(0, 1).run(with_norm, World::alone().all());
        for size in [2, 4] {
            let results = on_ranks(size, LIMIT, |world| {
                let result = Layers::part(world.rank(), size).run(with_norm, world.all());
                (result, world.traffic().sent)
            });
            for ((of_rank, gradients), sent) in &results {
                assert!((of_rank - loss).abs() <= 1e-5 * loss, "{of_rank} and {loss}");
                // What is not divided has the whole gradient on every rank, with the same bits.
                for i in [0, 1, 5] {
                    assert_close(&gradients[i], &whole[i], 1e-5);
                    assert_eq!(gradients[i], results[0].0.1[i]);
                }
                // Two sums of the hidden columns, of which a rank sends 2 (N - 1) / N; the rest is text.
                let numbers = (2 * TOKENS * HIDDEN * 4 * 2 * (size - 1) / size) as u64;
                assert!((numbers..numbers + 2000).contains(sent), "{sent} bytes of {numbers}");
            }
            let parts = |i: usize| results.iter().map(|((_, g), _)| &g[i]).collect::<Vec<_>>();
            assert_close(&side_by_side(&parts(2), HIDDEN), &whole[2], 1e-5);
            assert_close(&side_by_side(&parts(3), 1), &whole[3], 1e-5);
            assert_close(&parts(4).into_iter().flatten().copied().collect::<Vec<_>>(), &whole[4], 1e-5);
        }
    }
}

#[test]
fn one_rank_copies_and_sums_nothing() {
    let world = World::alone();
    let x = random::<2>([3, 5], 1);
    assert_eq!(list(copy_to_ranks(x.clone(), world.all())), list(x.clone()));
    assert_eq!(list(sum_over_ranks(x.clone(), None, world.all())), list(x));
    assert_eq!(world.traffic().sent, 0);
}

/// Sums of values of fewer bits are in fp32 and rounded once: 256 + 1 is no number of bf16, 256 + 1 + 1 is.
#[test]
fn sums_are_in_fp32_whatever_the_type() {
    let sums = on_ranks(3, LIMIT, |world| {
        let value = if world.rank() == 0 { 256.0 } else { 1.0 };
        let x = Tensor::<2>::full([1, 2], value, (&burn::tensor::Device::flex(), DType::BF16));
        list(sum_over_ranks(x, None, world.all()))
    });
    assert!(sums.iter().all(|sum| *sum == [258.0, 258.0]), "{sums:?}");
}

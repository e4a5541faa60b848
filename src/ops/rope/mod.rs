//! Rotary position embedding (Su et al. 2021) with its backward, which is the rotation by the opposite angle.
//!
//! The first d numbers of every head are turned in pairs: i and i + d/2, as Hugging Face's Llama does, or 2i and
//! 2i + 1, as in the paper and GPT-J. At position p pair i is turned by p·θ^(−2i/d).

mod cpu;
pub mod cuda;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::backend::{cube, cube_int, on_cuda, uncube};
use super::cost::{Cost, Moment, Setting};
use super::embedding::Ids;
use super::function::custom;
use super::name::OperatorName;
use super::{Operator, narrow, wide};
use crate::ops::rope::cuda as kernels;
use crate::ops::slices;

/// Which numbers of a head are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairs {
    pub head_dim: usize,
    /// The first so many of them; even.
    pub turned: usize,
    /// Whether the numbers of a pair are neighbours; else half of what is turned lies between them.
    pub neighbours: bool,
}

impl Pairs {
    /// All numbers of a head, in pairs of its halves.
    pub fn halves(head_dim: usize) -> Self {
        Self { head_dim, turned: head_dim, neighbours: false }
    }
}

/// Cosines and sines, [positions, pairs of a head] each, in fp32.
#[derive(Clone, Debug)]
pub struct Rotation {
    pairs: Pairs,
    cosine: Tensor<2>,
    sine: Tensor<2>,
}

impl Rotation {
    /// The angles are computed in fp32, as the reference implementations do: at position 10000 fp32
    /// rounds an angle by 5e-4, which weights trained with such angles expect.
    pub fn new(positions: usize, pairs: Pairs, theta: f64, device: &Device) -> Self {
        let (half, turned) = (pairs.turned / 2, pairs.turned as f32);
        let frequencies: Vec<f32> =
            (0..half).map(|i| 1.0 / (theta as f32).powf((2 * i) as f32 / turned)).collect();
        let table = |f: fn(f32) -> f32| {
            let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |w| f(p as f32 * w)));
            let data = TensorData::new(angles.collect::<Vec<f32>>(), [positions * half]);
            // CUDA aligns the rows of a new matrix; a vector has none, so the table has no gaps.
            Tensor::<1>::from_data(data, (device, DType::F32)).reshape([positions, half])
        };
        Self { pairs, cosine: table(f32::cos), sine: table(f32::sin) }
    }
}

/// x [tokens, heads · head_dim] turned by each token's position [tokens].
///
/// # Panics
/// When a position is beyond the rotation's.
pub fn rope(x: Tensor<2>, rotation: &Rotation, positions: &Ids, operator: Operator) -> Tensor<2> {
    positions.expect_rows(rotation.cosine.dims()[0], "positions");
    let positions = &positions.ids;
    if operator == Operator::Plain {
        let _scope = OperatorName::Rope.scope();
        return turn(x, rotation, positions, false);
    }
    let (rotation, positions) = (rotation.clone(), positions.clone());
    custom(OperatorName::Rope, [x.into_dispatch()], |[x]| {
        let y = fused(Tensor::from_dispatch(x), &rotation, &positions, false);
        (y, move |g: Tensor<2>, _| [Some(fused(g, &rotation, &positions, true).into_dispatch())])
    })
}

/// The same of the first `columns` of x on CUDA, the heads of queries and keys, with the others as they are.
///
/// # Panics
/// As [`rope`], and when x is not on CUDA.
pub fn rope_first(x: Tensor<2>, columns: usize, rotation: &Rotation, positions: &Ids) -> Tensor<2> {
    positions.expect_rows(rotation.cosine.dims()[0], "positions");
    let (rotation, positions) = (rotation.clone(), positions.ids.clone());
    custom(OperatorName::Rope, [x.into_dispatch()], |[x]| {
        let y = on_device(Tensor::from_dispatch(x), columns, &rotation, &positions, false);
        (y, move |g: Tensor<2>, _| [Some(on_device(g, columns, &rotation, &positions, true).into_dispatch())])
    })
}

fn on_device(
    x: Tensor<2>,
    columns: usize,
    rotation: &Rotation,
    positions: &Tensor<1, Int>,
    inverse: bool,
) -> Tensor<2> {
    let [cosine, sine] = [&rotation.cosine, &rotation.sine].map(|table| cube(table.clone()));
    uncube(kernels::rope(cube(x), columns, rotation.pairs, &cosine, &sine, &cube_int(positions), inverse))
}

fn fused(x: Tensor<2>, rotation: &Rotation, positions: &Tensor<1, Int>, inverse: bool) -> Tensor<2> {
    if on_cuda(&x) {
        let columns = x.dims()[1];
        return on_device(x, columns, rotation, positions, inverse);
    }
    if slices::takes(&x) {
        let tables = [&rotation.cosine, &rotation.sine].map(Clone::clone);
        return cpu::rope(x, tables, rotation.pairs, positions, inverse);
    }
    turn(x, rotation, positions, inverse)
}

fn turn(x: Tensor<2>, rotation: &Rotation, positions: &Tensor<1, Int>, inverse: bool) -> Tensor<2> {
    let Pairs { head_dim, turned, neighbours } = rotation.pairs;
    let [tokens, columns] = x.dims();
    let (heads, half) = (columns / head_dim, turned / 2);
    let dtype = x.dtype();
    let x = wide(x).reshape([tokens, heads, head_dim]);
    // The numbers of a pair along the dimension `of_pair`, of two.
    let (shape, of_pair) =
        if neighbours { ([tokens, heads, half, 2], 3) } else { ([tokens, heads, 2, half], 2) };
    let pairs = x.clone().narrow(2, 0, turned).reshape(shape);
    let one = if neighbours { [tokens, heads, half, 1] } else { [tokens, heads, 1, half] };
    let angles = |table: &Tensor<2>| {
        let of_tokens = table.clone().select(0, positions.clone()).reshape([tokens, 1, half]);
        of_tokens.expand([tokens, heads, half]).reshape(one)
    };
    let (cosine, sine) = (angles(&rotation.cosine), angles(&rotation.sine));
    let sine = if inverse { sine * -1.0 } else { sine };
    let (first, second) = (pairs.clone().narrow(of_pair, 0, 1), pairs.narrow(of_pair, 1, 1));
    let pairs = Tensor::cat(
        vec![first.clone() * cosine.clone() - second.clone() * sine.clone(), second * cosine + first * sine],
        of_pair,
    );
    let y = pairs.reshape([tokens, heads, turned]);
    let y = match turned == head_dim {
        true => y,
        false => Tensor::cat(vec![y, x.narrow(2, turned, head_dim - turned)], 2),
    };
    narrow(y.reshape([tokens, columns]), dtype)
}

/// The cost for x [tokens, heads · head_dim]. The result takes the place of x, and dx that of g, but on the CPU in fewer bits.
/// Composed of Burn's operators it keeps cosines and sines for each token.
pub fn cost(setting: &Setting, heads: u64, pairs: Pairs) -> Cost {
    let columns = heads * pairs.head_dim as u64;
    let angles = setting.wide(pairs.turned as u64);
    let (x, wide) = (setting.activation(columns), setting.wide(columns));
    let plain = setting.ops.rope == Operator::Plain;
    let kept = if plain { angles } else { 0 };
    let moment = if setting.has_kernels() && !plain { 0 } else { 2 * wide + angles + x };
    let moment = Moment::workspace(moment);
    let launches = if plain { [8, 8] } else { [1, 1] };
    Cost { input: x, output: x, kept, launches, ..Cost::new(moment, moment) }
        .named(OperatorName::Rope, setting)
}

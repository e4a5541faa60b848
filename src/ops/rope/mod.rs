//! Rotary position embedding (Su et al. 2021) with its backward, which is the rotation by the opposite angle.
//!
//! The first d numbers of every head are turned in pairs: i and i + d/2, as Hugging Face's Llama does, or 2i and
//! 2i + 1, as in the paper and GPT-J. At position p pair i is turned by p·θ^(−2i/d), or by p times what a [`Scaling`]
//! makes of that frequency. Where frequencies depend on the length of the sequence, this is the largest position of the
//! batch and one more, as in transformers, but that a longer batch before it makes no difference.

mod cpu;
pub mod cuda;
mod parameters;
mod scaling;

use std::sync::{Arc, Mutex};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
pub use parameters::RopeParameters;
pub use scaling::{Scaling, Yarn};

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
    /// d of the frequencies: a part of the head. Where it is odd, the last pair has one number more than it, as in
    /// transformers' GPT-NeoX.
    pub dimension: usize,
    /// Whether the numbers of a pair are neighbours; else half of what is turned lies between them.
    pub neighbours: bool,
}

impl Pairs {
    /// All numbers of a head, in pairs of its halves.
    pub fn halves(head_dim: usize) -> Self {
        Self { head_dim, dimension: head_dim, neighbours: false }
    }

    /// How many numbers of a head are turned, from the first on.
    pub fn turned(&self) -> usize {
        self.dimension.next_multiple_of(2)
    }
}

/// Cosines and sines, [positions, pairs of a head] each, in fp32.
type Tables = [Tensor<2>; 2];

/// What turns queries and keys.
#[derive(Clone, Debug)]
pub struct Rotation {
    pairs: Pairs,
    theta: f64,
    scaling: Arc<Scaling>,
    /// Of the shortest sequences.
    tables: Tables,
    /// Of sequences of another length, where that matters: the latest.
    longer: Arc<Mutex<Option<(usize, Tables)>>>,
}

impl Rotation {
    /// Of sequences of at most so many positions, without scaling.
    pub fn new(positions: usize, pairs: Pairs, theta: f64, device: &Device) -> Self {
        Self::scaled(positions, pairs, theta, Scaling::None, device)
    }

    pub fn scaled(positions: usize, pairs: Pairs, theta: f64, scaling: Scaling, device: &Device) -> Self {
        let tables = tables(positions, pairs, (theta, &scaling), scaling.length(0), device);
        Self { pairs, theta, scaling: Arc::new(scaling), tables, longer: Arc::default() }
    }

    /// For these positions.
    fn tables(&self, positions: &Ids) -> Tables {
        let rows = self.tables[0].dims()[0];
        positions.expect_rows(rows, "positions");
        let length = self.scaling.length(positions.below());
        if length == self.scaling.length(0) {
            return self.tables.clone();
        }
        let mut longer = self.longer.lock().expect("no thread panicked with it");
        match &*longer {
            Some((known, tables)) if *known == length => tables.clone(),
            _ => {
                let scaling = (self.theta, &*self.scaling);
                let made = tables(rows, self.pairs, scaling, length, &self.tables[0].device());
                *longer = Some((length, made.clone()));
                made
            }
        }
    }
}

/// The angles are computed in fp32, as the reference implementations do: at position 10000 fp32
/// rounds an angle by 5e-4, which weights trained with such angles expect.
fn tables(
    positions: usize,
    pairs: Pairs,
    (theta, scaling): (f64, &Scaling),
    length: usize,
    device: &Device,
) -> Tables {
    let half = pairs.turned() / 2;
    let frequencies = scaling.frequencies(theta, pairs.dimension, length);
    let factor = scaling.attention_factor() as f32;
    let table = |f: fn(f32) -> f32| {
        let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |w| f(p as f32 * w) * factor));
        let data = TensorData::new(angles.collect::<Vec<f32>>(), [positions * half]);
        // CUDA aligns the rows of a new matrix; a vector has none, so the table has no gaps.
        Tensor::<1>::from_data(data, (device, DType::F32)).reshape([positions, half])
    };
    [table(f32::cos), table(f32::sin)]
}

/// x [tokens, heads · head_dim] turned by each token's position [tokens].
///
/// # Panics
/// When a position is beyond the rotation's.
pub fn rope(x: Tensor<2>, rotation: &Rotation, positions: &Ids, operator: Operator) -> Tensor<2> {
    let turn = Turn::new(rotation, positions);
    if operator == Operator::Plain {
        let _scope = OperatorName::Rope.scope();
        return turn.composed(x, false);
    }
    custom(OperatorName::Rope, [x.into_dispatch()], |[x]| {
        let y = turn.fused(Tensor::from_dispatch(x), false);
        (y, move |g: Tensor<2>, _| [Some(turn.fused(g, true).into_dispatch())])
    })
}

/// The same of the first `columns` of x, the heads of queries and keys, with the others as they are.
///
/// # Panics
/// As [`rope`].
pub fn rope_first(x: Tensor<2>, columns: usize, rotation: &Rotation, positions: &Ids) -> Tensor<2> {
    let turn = Turn::new(rotation, positions);
    custom(OperatorName::Rope, [x.into_dispatch()], |[x]| {
        let y = turn.first(Tensor::from_dispatch(x), columns, false);
        (y, move |g: Tensor<2>, _| [Some(turn.first(g, columns, true).into_dispatch())])
    })
}

/// The rotation of some tokens.
struct Turn {
    pairs: Pairs,
    tables: Tables,
    /// [tokens]
    positions: Tensor<1, Int>,
}

impl Turn {
    fn new(rotation: &Rotation, positions: &Ids) -> Self {
        let tables = rotation.tables(positions);
        Self { pairs: rotation.pairs, tables, positions: positions.ids.clone() }
    }

    fn on_device(&self, x: Tensor<2>, columns: usize, inverse: bool) -> Tensor<2> {
        let [cosine, sine] = self.tables.each_ref().map(|table| cube(table.clone()));
        let positions = cube_int(&self.positions);
        uncube(kernels::rope(cube(x), columns, self.pairs, &cosine, &sine, &positions, inverse))
    }

    /// Turns the first columns.
    fn first(&self, x: Tensor<2>, columns: usize, inverse: bool) -> Tensor<2> {
        if on_cuda(&x) {
            return self.on_device(x, columns, inverse);
        }
        let others = x.clone().narrow(1, columns, x.dims()[1] - columns);
        Tensor::cat(vec![self.fused(x.narrow(1, 0, columns), inverse), others], 1)
    }

    fn fused(&self, x: Tensor<2>, inverse: bool) -> Tensor<2> {
        if on_cuda(&x) {
            let columns = x.dims()[1];
            return self.on_device(x, columns, inverse);
        }
        if slices::takes(&x) {
            return cpu::rope(x, self.tables.clone(), self.pairs, &self.positions, inverse);
        }
        self.composed(x, inverse)
    }

    fn composed(&self, x: Tensor<2>, inverse: bool) -> Tensor<2> {
        let (Pairs { head_dim, neighbours, .. }, turned) = (self.pairs, self.pairs.turned());
        let [tokens, columns] = x.dims();
        let (heads, half) = (columns / head_dim, turned / 2);
        let dtype = x.dtype();
        let x = wide(x).reshape([tokens, heads, head_dim]);
        // The numbers of a pair along the dimension `of_pair`, of two.
        let (shape, of_pair) =
            if neighbours { ([tokens, heads, half, 2], 3) } else { ([tokens, heads, 2, half], 2) };
        let pairs = x.clone().narrow(2, 0, turned).reshape(shape);
        let one = if neighbours { [tokens, heads, half, 1] } else { [tokens, heads, 1, half] };
        let [cosine, sine] = self.tables.each_ref().map(|table| {
            let of_tokens = table.clone().select(0, self.positions.clone()).reshape([tokens, 1, half]);
            of_tokens.expand([tokens, heads, half]).reshape(one)
        });
        let sine = if inverse { sine * -1.0 } else { sine };
        let (first, second) = (pairs.clone().narrow(of_pair, 0, 1), pairs.narrow(of_pair, 1, 1));
        let pairs = Tensor::cat(
            vec![
                first.clone() * cosine.clone() - second.clone() * sine.clone(),
                second * cosine + first * sine,
            ],
            of_pair,
        );
        let y = pairs.reshape([tokens, heads, turned]);
        let y = match turned == head_dim {
            true => y,
            false => Tensor::cat(vec![y, x.narrow(2, turned, head_dim - turned)], 2),
        };
        narrow(y.reshape([tokens, columns]), dtype)
    }
}

/// What else [`rope_first`] of `columns` of x [tokens, `all`] costs on the CPU, where these are copied and then joined with the
/// others.
pub fn joined_cost(setting: &Setting, columns: u64, all: u64) -> Cost {
    let [turned, whole] = [columns, all].map(|columns| setting.activation(columns));
    let made = Moment::workspace(turned + whole);
    Cost { input: whole, output: whole, ..Cost::new(made, made) }
}

/// The cost for x [tokens, heads · head_dim]. The result takes the place of x, and dx that of g, but on the CPU in fewer bits.
/// Composed of Burn's operators it keeps cosines and sines for each token.
pub fn cost(setting: &Setting, heads: u64, pairs: Pairs) -> Cost {
    let columns = heads * pairs.head_dim as u64;
    let angles = setting.wide(pairs.turned() as u64);
    let (x, wide) = (setting.activation(columns), setting.wide(columns));
    let plain = setting.ops.rope == Operator::Plain;
    let kept = if plain { angles } else { 0 };
    let moment = if setting.has_kernels() && !plain { 0 } else { 2 * wide + angles + x };
    let moment = Moment::workspace(moment);
    let launches = if plain { [8, 8] } else { [1, 1] };
    Cost { input: x, output: x, kept, launches, ..Cost::new(moment, moment) }
        .named(OperatorName::Rope, setting)
}

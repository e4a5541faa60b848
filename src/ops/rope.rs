//! Rotary position embedding (Su et al. 2021) in the half-split form of Hugging Face, with its
//! backward, which is the rotation by the opposite angle.
//!
//! Of every head's d numbers, i and i + d/2 form a pair, turned at position p by p·θ^(−2i/d).

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::backend::{cube, cube_int, on_cuda, uncube};
use super::cost::{Cost, Moment, Setting};
use super::cpu;
use super::embedding::Ids;
use super::function::custom;
use super::kernels::rope as kernels;
use super::name::OperatorName;
use super::{Operator, narrow, wide};

/// Cosines and sines, [positions, head_dim / 2] each, in fp32.
#[derive(Clone, Debug)]
pub struct Rotation {
    cosine: Tensor<2>,
    sine: Tensor<2>,
}

impl Rotation {
    /// The angles are computed in fp32, as the reference implementations do: at position 10000 fp32
    /// rounds an angle by 5e-4, which weights trained with such angles expect.
    pub fn new(positions: usize, head_dim: usize, theta: f64, device: &Device) -> Self {
        let half = head_dim / 2;
        let frequencies: Vec<f32> =
            (0..half).map(|i| 1.0 / (theta as f32).powf((2 * i) as f32 / head_dim as f32)).collect();
        let table = |f: fn(f32) -> f32| {
            let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |w| f(p as f32 * w)));
            let data = TensorData::new(angles.collect::<Vec<f32>>(), [positions, half]);
            Tensor::from_data(data, (device, DType::F32))
        };
        Self { cosine: table(f32::cos), sine: table(f32::sin) }
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
    uncube(kernels::rope(cube(x), columns, &cosine, &sine, &cube_int(positions), inverse))
}

fn fused(x: Tensor<2>, rotation: &Rotation, positions: &Tensor<1, Int>, inverse: bool) -> Tensor<2> {
    if on_cuda(&x) {
        let columns = x.dims()[1];
        return on_device(x, columns, rotation, positions, inverse);
    }
    if cpu::takes(&x) {
        let tables = [&rotation.cosine, &rotation.sine].map(Clone::clone);
        return cpu::elementwise::rope(x, tables, positions, inverse);
    }
    turn(x, rotation, positions, inverse)
}

fn turn(x: Tensor<2>, rotation: &Rotation, positions: &Tensor<1, Int>, inverse: bool) -> Tensor<2> {
    let [tokens, columns] = x.dims();
    let half = rotation.cosine.dims()[1];
    let dtype = x.dtype();
    let pairs = wide(x).reshape([tokens, columns / (2 * half), 2, half]);
    let angles = |table: &Tensor<2>| {
        table.clone().select(0, positions.clone()).reshape([tokens, 1, 1, half]).expand([
            tokens,
            columns / (2 * half),
            1,
            half,
        ])
    };
    let (cosine, sine) = (angles(&rotation.cosine), angles(&rotation.sine));
    let sine = if inverse { sine * -1.0 } else { sine };
    let (first, second) = (pairs.clone().narrow(2, 0, 1), pairs.narrow(2, 1, 1));
    let turned = Tensor::cat(
        vec![first.clone() * cosine.clone() - second.clone() * sine.clone(), second * cosine + first * sine],
        2,
    );
    narrow(turned.reshape([tokens, columns]), dtype)
}

/// For x [tokens, heads · head_dim]. The result takes the place of x, and dx that of g, except in bf16 and fp16 on the
/// CPU. Composed of Burn's operators it keeps cosines and sines for each token.
pub fn cost(setting: &Setting, heads: u64, head_dim: u64) -> Cost {
    let columns = heads * head_dim;
    let (x, wide, angles) = (setting.activation(columns), setting.wide(columns), setting.wide(head_dim));
    let plain = setting.ops.rope == Operator::Plain;
    let kept = if plain { angles } else { 0 };
    let moment = if setting.has_kernels() && !plain { 0 } else { 2 * wide + angles + x };
    let moment = Moment::workspace(moment);
    Cost { input: x, output: x, kept, ..Cost::new(moment, moment) }.named(OperatorName::Rope, setting)
}

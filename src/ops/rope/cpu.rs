//! Rotary positions on the CPU in fp32.

use burn::tensor::{Int, Tensor};
use cpu_kernels::rope;

use super::Pairs;
use crate::ops::backend::unflex;
use crate::ops::slices::{buffer, integers, numbers};

/// x [tokens, heads · head_dim] turned by each token's position, in its memory where nobody else holds it; `cosine` and
/// `sine` are [positions, pairs of a head].
pub fn rope(
    x: Tensor<2>,
    [cosine, sine]: [Tensor<2>; 2],
    pairs: Pairs,
    positions: &Tensor<1, Int>,
    inverse: bool,
) -> Tensor<2> {
    let [_, columns] = x.dims();
    let (mut x, cosine, sine) = (buffer(x), buffer(cosine), buffer(sine));
    let positions: Vec<usize> = integers(positions).into_iter().map(|position| position as usize).collect();
    let sign = if inverse { -1.0 } else { 1.0 };
    let pairs = rope::Pairs { head: pairs.head_dim, half: pairs.turned() / 2, neighbours: pairs.neighbours };
    rope::turn(x.storage_mut(), columns, [numbers(&cosine), numbers(&sine)], pairs, &positions, sign);
    unflex(x)
}

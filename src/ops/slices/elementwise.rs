//! Sums, GELU, rotary positions and the sums of an embedding's gradient.

use burn::tensor::{Int, Tensor};
use burn_flex::FlexTensor;
use cpu_kernels::{elementwise, rope};

use super::{buffer, filled, integers, numbers, tensor};
use crate::ops::backend::unflex;
use crate::ops::rope::Pairs;

/// x + y, in the memory of the one that nobody else holds.
pub fn add<const D: usize>(x: Tensor<D>, y: Tensor<D>) -> Tensor<D> {
    let (x, y) = (buffer(x), buffer(y));
    let (mut sum, other) = if x.is_unique() { (x, y) } else { (y, x) };
    elementwise::add(sum.storage_mut(), numbers(&other));
    unflex(sum)
}

/// GELU by the tanh formula.
pub fn gelu(x: Tensor<2>) -> Tensor<2> {
    let shape = x.dims();
    let x = buffer(x);
    // SAFETY: the kernel writes every element.
    unsafe { filled(shape, |y| elementwise::gelu(numbers(&x), y)) }
}

/// dx, in the memory of g where nobody else holds it.
pub fn gelu_backward(x: Tensor<2>, g: Tensor<2>) -> Tensor<2> {
    let (x, mut g) = (buffer(x), buffer(g));
    elementwise::gelu_backward(numbers(&x), g.storage_mut());
    unflex(g)
}

/// x [tokens, heads · head_dim] turned by each token's position, in its memory where nobody else holds it; `cosine` and
/// `sine` are [positions, pairs of a head].
pub fn rope(
    x: Tensor<2>,
    [cosine, sine]: [Tensor<2>; 2],
    Pairs { head_dim, turned, neighbours }: Pairs,
    positions: &Tensor<1, Int>,
    inverse: bool,
) -> Tensor<2> {
    let [_, columns] = x.dims();
    let (mut x, cosine, sine) = (buffer(x), buffer(cosine), buffer(sine));
    let positions: Vec<usize> = integers(positions).into_iter().map(|position| position as usize).collect();
    let sign = if inverse { -1.0 } else { 1.0 };
    let pairs = rope::Pairs { head: head_dim, half: turned / 2, neighbours };
    rope::turn(x.storage_mut(), columns, [numbers(&cosine), numbers(&sine)], pairs, &positions, sign);
    unflex(x)
}

/// [rows, columns] with row i of g added to row ids[i], one after the other.
pub fn scatter(g: Tensor<2>, ids: &Tensor<1, Int>, rows: usize) -> Tensor<2> {
    let [_, columns] = g.dims();
    let g: FlexTensor = buffer(g);
    let mut sums = vec![0.0; rows * columns];
    for (g, id) in numbers(&g).chunks_exact(columns).zip(integers(ids)) {
        let sums = &mut sums[id as usize * columns..][..columns];
        sums.iter_mut().zip(g).for_each(|(sum, g)| *sum += g);
    }
    tensor(sums, [rows, columns])
}

//! Sums of an embedding's gradient on the CPU in fp32.

use burn::tensor::{Int, Tensor};
use burn_flex::FlexTensor;

use crate::ops::slices::{buffer, integers, numbers, tensor};

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

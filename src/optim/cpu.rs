//! One step of an optimizer on flat parameters, in their memory where nobody else holds it.

use burn::tensor::Tensor;
use cpu_kernels::adamw::{self, AdamWStep};
use cpu_kernels::{reduce, sgd};
use rayon::prelude::*;

use crate::ops::backend::unflex;
use crate::ops::slices::{buffer, numbers, tensor};

/// Elements that one thread takes at a time: 256 KiB of each array.
const CHUNK: usize = 1 << 16;

/// Parameters and both moments after the step along clip · g.
pub fn adamw([p, g, m, v]: [Tensor<1>; 4], step: AdamWStep, clip: f32) -> [Tensor<1>; 3] {
    let (mut p, g, mut m, mut v) = (buffer(p), buffer(g), buffer(m), buffer(v));
    let [p_all, m_all, v_all] = [&mut p, &mut m, &mut v].map(|tensor| tensor.storage_mut::<f32>());
    let state = p_all.par_chunks_mut(CHUNK).zip(m_all.par_chunks_mut(CHUNK)).zip(v_all.par_chunks_mut(CHUNK));
    let all = numbers(&g).par_chunks(CHUNK).zip(state);
    all.for_each(|(g, ((p, m), v))| adamw::update(g, p, m, v, step, clip));
    [p, m, v].map(unflex)
}

/// Parameters after the step, and the moments where there are any.
pub fn sgd(
    p: Tensor<1>,
    g: Tensor<1>,
    m: Option<Tensor<1>>,
    step: sgd::SgdStep,
) -> (Tensor<1>, Option<Tensor<1>>) {
    let (mut p, g) = (buffer(p), buffer(g));
    let parts = p.storage_mut::<f32>().par_chunks_mut(CHUNK).zip(numbers(&g).par_chunks(CHUNK));
    let Some(mut m) = m.map(buffer) else {
        parts.for_each(|(p, g)| sgd::descend(g, p, step));
        return (unflex(p), None);
    };
    let parts = parts.zip(m.storage_mut::<f32>().par_chunks_mut(CHUNK));
    parts.for_each(|((p, g), m)| sgd::roll(g, p, m, step));
    (unflex(p), Some(unflex(m)))
}

/// Σ x², [1].
pub fn sum_of_squares(x: Tensor<1>) -> Tensor<1> {
    tensor(vec![reduce::sum_of_squares(numbers(&buffer(x)))], [1])
}

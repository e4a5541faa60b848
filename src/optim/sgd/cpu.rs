//! One step of SGD on the CPU in fp32, in the tensors' memory where nobody else holds it.

use burn::tensor::Tensor;
use cpu_kernels::sgd;
use rayon::prelude::*;

use crate::ops::backend::unflex;
use crate::ops::slices::{CHUNK, buffer, numbers};

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

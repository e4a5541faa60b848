//! One step of AdamW on the CPU in fp32, in the tensors' memory where nobody else holds it.

use burn::tensor::Tensor;
use cpu_kernels::adamw::{self, AdamWStep};
use rayon::prelude::*;

use crate::ops::backend::unflex;
use crate::ops::slices::{CHUNK, buffer, numbers};

/// Parameters and both moments after the step along clip · g.
pub fn adamw([p, g, m, v]: [Tensor<1>; 4], step: AdamWStep, clip: f32) -> [Tensor<1>; 3] {
    let (mut p, g, mut m, mut v) = (buffer(p), buffer(g), buffer(m), buffer(v));
    let [p_all, m_all, v_all] = [&mut p, &mut m, &mut v].map(|tensor| tensor.storage_mut::<f32>());
    let state = p_all.par_chunks_mut(CHUNK).zip(m_all.par_chunks_mut(CHUNK)).zip(v_all.par_chunks_mut(CHUNK));
    let all = numbers(&g).par_chunks(CHUNK).zip(state);
    all.for_each(|(g, ((p, m), v))| adamw::update(g, p, m, v, step, clip));
    [p, m, v].map(unflex)
}

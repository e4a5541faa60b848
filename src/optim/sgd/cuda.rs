//! Stochastic gradient descent in one kernel, in place.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::kernels::launch::{buffer, contiguous, elementwise, expect, float, vector, writable};

/// What one step of SGD multiplies by.
#[derive(CubeType, CubeLaunch, Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    pub lr: f32,
    pub momentum: f32,
    pub weight_decay: f32,
}

#[cube(launch_unchecked)]
fn update<P: Float, G: Float, N: Size>(
    p: &mut [Vector<P, N>],
    g: &[Vector<G, N>],
    m: ComptimeOption<&mut [Vector<f32, N>]>,
    clip: ComptimeOption<&[f32]>,
    applied: ComptimeOption<&[f32]>,
    by: SgdStep,
    #[define(P, G)] _types: [ElemType; 2],
) {
    let mut end = p.len();
    #[comptime]
    if let ComptimeOption::Some(applied) = applied {
        let applied = applied[0];
        if applied == 0.0f32 {
            end = 0usize;
        }
    }
    if ABSOLUTE_POS < end {
        let value = Vector::<f32, N>::cast_from(p[ABSOLUTE_POS]);
        let mut gradient = Vector::<f32, N>::cast_from(g[ABSOLUTE_POS]);
        #[comptime]
        if let ComptimeOption::Some(clip) = clip {
            gradient *= Vector::new(clip[0]);
        }
        let mut step = gradient + Vector::new(by.weight_decay) * value;
        #[comptime]
        if let ComptimeOption::Some(m) = m {
            step = Vector::new(by.momentum) * m[ABSOLUTE_POS] + step;
            m[ABSOLUTE_POS] = step;
        }
        p[ABSOLUTE_POS] = Vector::cast_from(value - Vector::new(by.lr) * step);
    }
}

/// One step of `torch.optim.SGD`:
///
/// ```text
/// g ← clip · g + weight_decay · p
/// m ← momentum · m + g          (without m: m = g)
/// p ← p − lr · m
/// ```
///
/// p and g of one shape and any float types, m f32, clip [1] f32, or 1 without it. Where applied [1] f32 is 0, p and m
/// stay as they are. Returns p and m, each in its own memory where nobody else holds it.
pub fn sgd(
    p: CubeTensor,
    g: &CubeTensor,
    m: Option<CubeTensor>,
    clip: Option<&CubeTensor>,
    applied: Option<&CubeTensor>,
    step: SgdStep,
) -> (CubeTensor, Option<CubeTensor>) {
    let (p, g) = (writable(p), contiguous(g));
    let elements = p.meta.num_elements();
    let m = m.map(writable);
    expect(&g, g.dtype, elements, "g");
    clip.inspect(|clip| expect(clip, DType::F32, 1, "clip"));
    applied.inspect(|applied| expect(applied, DType::F32, 1, "applied"));
    m.as_ref().inspect(|m| expect(m, DType::F32, elements, "m"));
    let vector = vector(DType::F32, &[elements]);
    elementwise!(
        update,
        &p,
        vector,
        buffer(&p),
        buffer(&g),
        m.as_ref().map(buffer).into(),
        clip.map(buffer).into(),
        applied.map(buffer).into(),
        SgdStepLaunch::new(step.lr, step.momentum, step.weight_decay),
        [p.dtype, g.dtype].map(float),
    );
    (p, m)
}

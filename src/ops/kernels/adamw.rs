//! AdamW in one kernel, in place.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

pub use cpu_kernels::adamw::AdamWStep;

use super::launch::{Grid, buffer, contiguous, expect, float, vector, writable};

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn update<P: Float, G: Float, N: Size>(
    p: &mut [Vector<P, N>],
    g: &[Vector<G, N>],
    m: &mut [Vector<f32, N>],
    v: &mut [Vector<f32, N>],
    clip: ComptimeOption<&[f32]>,
    shared: ComptimeOption<&[f32]>,
    decay: f32,
    beta1: f32,
    beta2: f32,
    rest1: f32,
    rest2: f32,
    eps: f32,
    rate: f32,
    correction: f32,
    #[define(P, G)] _types: [ElemType; 2],
) {
    let mut end = p.len();
    let mut rate = rate;
    let mut correction = correction;
    #[comptime]
    if let ComptimeOption::Some(shared) = shared {
        if shared[0] == 0.0f32 {
            end = 0usize;
        }
        rate /= shared[1];
        correction *= shared[2].sqrt();
    }
    if ABSOLUTE_POS < end {
        let mut gradient = Vector::<f32, N>::cast_from(g[ABSOLUTE_POS]);
        #[comptime]
        if let ComptimeOption::Some(clip) = clip {
            gradient *= Vector::new(clip[0]);
        }
        let mean = Vector::new(beta1) * m[ABSOLUTE_POS] + Vector::new(rest1) * gradient;
        let square = Vector::new(beta2) * v[ABSOLUTE_POS] + Vector::new(rest2) * gradient * gradient;
        let divisor = square.sqrt() / Vector::new(correction) + Vector::new(eps);
        let value = Vector::<f32, N>::cast_from(p[ABSOLUTE_POS]) * Vector::new(decay);
        m[ABSOLUTE_POS] = mean;
        v[ABSOLUTE_POS] = square;
        p[ABSOLUTE_POS] = Vector::cast_from(value - Vector::new(rate) * mean / divisor);
    }
}

/// One step of `torch.optim.AdamW`:
///
/// ```text
/// g ← clip · g,  p ← p · decay
/// m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²
/// p ← p − rate · m / (√v / correction + eps)
/// ```
///
/// p, g, m and v of one shape, p and g of any float types, m and v f32; clip [1] f32, or 1 without it. shared [3] f32 holds
/// whether the step is applied, 1 − β₁ᵗ and 1 − β₂ᵗ: with it rate is divided by the second and correction
/// multiplied by the root of the third, and where the first is 0, p, m and v stay as they are. Returns p,
/// m and v, each in its own memory where nobody else holds it.
pub fn adamw(
    p: CubeTensor,
    g: &CubeTensor,
    m: CubeTensor,
    v: CubeTensor,
    clip: Option<&CubeTensor>,
    shared: Option<&CubeTensor>,
    step: AdamWStep,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let [p, m, v] = [p, m, v].map(writable);
    let g = contiguous(g);
    let elements = p.meta.num_elements();
    expect(&g, g.dtype, elements, "g");
    expect(&m, DType::F32, elements, "m");
    expect(&v, DType::F32, elements, "v");
    if let Some(clip) = clip {
        expect(clip, DType::F32, 1, "clip");
    }
    if let Some(shared) = shared {
        expect(shared, DType::F32, 3, "shared");
    }
    let vector = vector(DType::F32, &[elements]);
    let grid = Grid::of(elements / vector);
    let AdamWStep { decay, beta1, beta2, rest1, rest2, eps, rate, correction } = step;
    // SAFETY: the buffers hold `elements` elements and the kernel checks their end.
    unsafe {
        update::launch_unchecked(
            &p.client,
            grid.count,
            grid.dim,
            vector,
            buffer(&p),
            buffer(&g),
            buffer(&m),
            buffer(&v),
            clip.map(buffer).into(),
            shared.map(buffer).into(),
            decay,
            beta1,
            beta2,
            rest1,
            rest2,
            eps,
            rate,
            correction,
            [float(p.dtype), float(g.dtype)],
        );
    }
    (p, m, v)
}

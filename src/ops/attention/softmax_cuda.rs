//! Masked softmax of a block of attention scores, forward and backward.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;

use super::softmax_kernels::{ViewLaunch, softmax, softmax_backward};
use crate::ops::kernels::launch::{buffer, contiguous, expect, float, over, sizes, vector};
use crate::ops::kernels::row::{BATCH, Rows};

/// Which keys a query sees: those up to its own position, and of its own segment only. Every query
/// sees at least itself.
#[derive(Clone, Debug)]
pub struct Mask {
    /// Position of the first query of the block; row r is the query at `query_start + r / group`.
    pub query_start: usize,
    pub group: usize,
    pub kv_heads: usize,
    /// [batch, total] i32: the packed sample, or padding, that each position belongs to. Without it
    /// all positions see each other.
    pub segments: Option<CubeTensor>,
}

/// P = softmax(scale · scores) over each row's visible keys, 0 elsewhere.
///
/// scores [N, R, C] f32 with N = batch · kv_heads matrices, R rows of a query block and the key
/// positions 0..C → [N, R, C] of type `out`, in the memory of the scores where that is f32 and
/// nobody else holds them.
pub fn masked_softmax(scores: CubeTensor, mask: &Mask, scale: f32, out: DType) -> CubeTensor {
    let scores = burn_cubecl::kernel::into_contiguous(scores);
    let plan = Plan::new(&scores, mask);
    let (p, p_argument) = over(&scores, 0, out);
    // SAFETY: `Plan` made the view from the sizes of the tensors, and the kernel stays within the
    // rows of the scores.
    unsafe {
        softmax::launch_unchecked(
            &scores.client,
            plan.rows.count(plan.all_rows),
            plan.rows.dim(),
            plan.vector,
            buffer(&scores),
            p_argument,
            plan.segments.as_ref().map(buffer).into(),
            plan.segments.as_ref().map(buffer).into(),
            plan.view,
            plan.columns,
            scale,
            plan.rows.threads,
            plan.fits,
            float(out),
        );
    }
    p
}

/// P as [`masked_softmax`], computed again from the scores, and dS = scale · P ⊙ (dP − Σⱼ P ⊙ dP):
/// dp [N, R, C] f32 → both [N, R, C] of type `out`, in the memory of the scores and of dp where
/// that is f32 and nobody else holds them.
pub fn masked_softmax_backward(
    scores: CubeTensor,
    dp: CubeTensor,
    mask: &Mask,
    scale: f32,
    out: DType,
) -> (CubeTensor, CubeTensor) {
    let [scores, dp] = [scores, dp].map(burn_cubecl::kernel::into_contiguous);
    expect(&dp, DType::F32, scores.meta.num_elements(), "dp");
    let plan = Plan::new(&scores, mask);
    let (p, p_argument) = over(&scores, 0, out);
    let (ds, ds_argument) = over(&dp, 1, out);
    // SAFETY: as in `masked_softmax`.
    unsafe {
        softmax_backward::launch_unchecked(
            &scores.client,
            plan.rows.count(plan.all_rows),
            plan.rows.dim(),
            plan.vector,
            buffer(&scores),
            buffer(&dp),
            p_argument,
            ds_argument,
            plan.segments.as_ref().map(buffer).into(),
            plan.segments.as_ref().map(buffer).into(),
            plan.view,
            plan.columns,
            scale,
            plan.rows.threads,
            plan.fits,
            float(out),
        );
    }
    (p, ds)
}

/// How the kernels cover a block of scores.
struct Plan {
    rows: Rows,
    all_rows: usize,
    vector: usize,
    /// Vectors of a row.
    columns: usize,
    /// Whether one batch of the threads holds a row.
    fits: bool,
    segments: Option<CubeTensor>,
    view: ViewLaunch,
}

impl Plan {
    fn new(scores: &CubeTensor, mask: &Mask) -> Self {
        let [matrices, rows, keys] = sizes(scores, "scores");
        expect(scores, DType::F32, matrices * rows * keys, "scores");
        let last = mask.query_start + (rows - 1) / mask.group;
        assert!(last < keys, "the query at {last} does not see itself among {keys} keys");
        let segments = mask.segments.as_ref().map(contiguous);
        let total = segments.as_ref().map_or(keys, |segments| {
            let [batch, total] = sizes(segments, "segments");
            expect(segments, DType::I32, batch * total, "segments");
            assert_eq!(batch * mask.kv_heads, matrices, "matrices of {batch} sequences");
            assert!(keys <= total, "{keys} keys of sequences of {total}");
            total
        });
        let vector = vector(DType::F32, &[keys, total]);
        let columns = keys / vector;
        let view = ViewLaunch::new(mask.query_start, mask.group, mask.kv_heads, rows, total);
        let all_rows = matrices * rows;
        let rows = Rows::of(columns, BATCH);
        let fits = columns <= rows.threads * BATCH;
        Self { rows, all_rows, vector, columns, fits, segments, view }
    }
}

//! Masked softmax of a block of attention scores, forward and backward.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;

use super::softmax_kernels::{softmax, softmax_backward};
use super::softmax_rows::{Options, ViewLaunch};
use crate::ops::kernels::launch::{buffer, contiguous, expect, float, over, sizes, vector};
use crate::ops::kernels::row::{BATCH, Rows};

/// Which keys a query sees: those up to its own position, within its window, and of its own segment only. Every query
/// sees at least itself.
#[derive(Clone, Debug)]
pub struct Mask {
    /// Position of the first query of the block; row r is the query at `query_start + r / group`.
    pub query_start: usize,
    /// Position of the first key.
    pub key_start: usize,
    /// Keys that a query sees at most, up to itself.
    pub window: Option<usize>,
    pub group: usize,
    pub kv_heads: usize,
    /// [batch, total] i32: the packed sample, or padding, that each position belongs to. Without it
    /// all positions see each other.
    pub segments: Option<CubeTensor>,
}

/// How scores follow from products of queries and keys: scale · product, and with a soft cap c the
/// c · tanh(· / c) of that.
#[derive(Clone, Copy, Debug)]
pub struct Scaling {
    pub scale: f32,
    pub soft_cap: Option<f32>,
}

impl Scaling {
    fn cap(&self) -> f32 {
        self.soft_cap.unwrap_or(1.0)
    }
}

/// P = softmax of each row's scores over its visible keys, 0 elsewhere.
///
/// Products of queries and keys [N, R, C] f32 with N = batch · kv_heads matrices, R rows of a query block and
/// C key positions → [N, R, C] of type `out`, in the memory of the products where that is f32 and
/// nobody else holds them.
pub fn masked_softmax(scores: CubeTensor, mask: &Mask, scaling: Scaling, out: DType) -> CubeTensor {
    let scores = burn_cubecl::kernel::into_contiguous(scores);
    let plan = Plan::new(&scores, mask, scaling);
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
            scaling.scale,
            scaling.cap(),
            plan.rows.threads,
            plan.fits,
            plan.options,
            float(out),
        );
    }
    p
}

/// P as [`masked_softmax`], computed again from the products, and the gradient of these: scale · P ⊙ (dP − Σⱼ P ⊙ dP),
/// and with a soft cap c of scores z times 1 − (z / c)². dp [N, R, C] f32 → both [N, R, C] of type `out`, in the memory
/// of the products and of dp where that is f32 and nobody else holds them.
pub fn masked_softmax_backward(
    scores: CubeTensor,
    dp: CubeTensor,
    mask: &Mask,
    scaling: Scaling,
    out: DType,
) -> (CubeTensor, CubeTensor) {
    let [scores, dp] = [scores, dp].map(burn_cubecl::kernel::into_contiguous);
    expect(&dp, DType::F32, scores.meta.num_elements(), "dp");
    let plan = Plan::new(&scores, mask, scaling);
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
            scaling.scale,
            scaling.cap(),
            plan.rows.threads,
            plan.fits,
            plan.options,
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
    options: Options,
    segments: Option<CubeTensor>,
    view: ViewLaunch,
}

impl Plan {
    fn new(scores: &CubeTensor, mask: &Mask, scaling: Scaling) -> Self {
        let [matrices, rows, keys] = sizes(scores, "scores");
        expect(scores, DType::F32, matrices * rows * keys, "scores");
        let (last, end) = (mask.query_start + (rows - 1) / mask.group, mask.key_start + keys);
        assert!(last < end, "the query at {last} does not see itself among the keys up to {end}");
        let first = mask.window.map_or(0, |window| (mask.query_start + 1).saturating_sub(window));
        assert!(mask.key_start <= first, "the query at {} sees keys from {first} on", mask.query_start);
        let segments = mask.segments.as_ref().map(contiguous);
        let total = segments.as_ref().map_or(end, |segments| {
            let [batch, total] = sizes(segments, "segments");
            expect(segments, DType::I32, batch * total, "segments");
            assert_eq!(batch * mask.kv_heads, matrices, "matrices of {batch} sequences");
            assert!(end <= total, "keys up to {end} of sequences of {total}");
            total
        });
        let vector = vector(DType::F32, &[keys, mask.key_start, total]);
        let columns = keys / vector;
        let window = mask.window.unwrap_or(end);
        let (query_start, key_start) = (mask.query_start, mask.key_start);
        let view = ViewLaunch::new(query_start, key_start, window, mask.group, mask.kv_heads, rows, total);
        let all_rows = matrices * rows;
        let rows = Rows::of(columns, BATCH);
        let fits = columns <= rows.threads * BATCH;
        let options = Options { windowed: mask.window.is_some(), capped: scaling.soft_cap.is_some() };
        Self { rows, all_rows, vector, columns, fits, options, segments, view }
    }
}

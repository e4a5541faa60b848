//! Cross entropy over a vocabulary that is seen in chunks of columns, so that the logits of a
//! token never exist all at once.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;

use super::Logits;
use super::cuda_kernels::{Form, finish, gradient, observe_rows, reset, shape};
use crate::ops::kernels::launch::{
    Grid, buffer, contiguous, elementwise, empty, expect, float, over, sizes, vector,
};
use crate::ops::kernels::row::{BATCH, Rows};

/// What is known of each token after some chunks: three tensors [T] f32.
pub struct LossState {
    /// The largest logit.
    pub maximum: CubeTensor,
    /// Σ exp(logit − maximum)
    pub sum: CubeTensor,
    /// The logit of the label; 0 until it has been seen.
    pub target: CubeTensor,
}

/// The arguments of a kernel for logits of this form: scale, soft cap, and which of them count.
fn arguments(Logits { scale, soft_cap }: Logits) -> (f32, f32, Form) {
    let form = Form { scaled: scale != 1.0, capped: soft_cap.is_some() };
    (scale as f32, soft_cap.unwrap_or(1.0) as f32, form)
}

impl LossState {
    /// Of `tokens` tokens before the first chunk, on the device of `like`.
    pub fn new(like: &CubeTensor, tokens: usize) -> Self {
        let [maximum, sum, target] = std::array::from_fn(|_| empty(like, [tokens], DType::F32));
        let grid = Grid::of(tokens);
        // SAFETY: the buffers hold `tokens` elements and the kernel checks their end.
        unsafe {
            reset::launch_unchecked(
                &like.client,
                grid.count,
                grid.dim,
                buffer(&maximum),
                buffer(&sum),
                buffer(&target),
            );
        }
        Self { maximum, sum, target }
    }
}

/// Logits of products in f32, in their memory where nobody else holds it.
pub fn logits(products: CubeTensor, form: Logits) -> CubeTensor {
    let products = burn_cubecl::kernel::into_contiguous(products);
    expect(&products, DType::F32, products.meta.num_elements(), "products");
    let vector = vector(DType::F32, &[products.meta.num_elements()]);
    let (scale, soft_cap, form) = arguments(form);
    let (logits, to) = over(&products, 0, DType::F32);
    elementwise!(shape, &products, vector, buffer(&products), to, scale, soft_cap, form);
    logits
}

/// Takes the logits, of this form, of products [T, C] f32 with the vocabulary's entries `first..first + C` into `state`. The
/// labels [T] are i32; a negative one is a token that does not count.
pub fn observe_chunk(
    logits: &CubeTensor,
    labels: &CubeTensor,
    first: usize,
    form: Logits,
    state: &mut LossState,
) {
    let (logits, labels) = (contiguous(logits), contiguous(labels));
    let [tokens, width] = sizes(&logits, "logits");
    expect(&logits, DType::F32, tokens * width, "logits");
    expect(&labels, DType::I32, tokens, "labels");
    for tensor in [&state.maximum, &state.sum, &state.target] {
        expect(tensor, DType::F32, tokens, "the state");
    }
    let vector = vector(DType::F32, &[width]);
    let columns = width / vector;
    let rows = Rows::of(columns, BATCH);
    let (scale, soft_cap, form) = arguments(form);
    // SAFETY: the kernel stays within `tokens` rows of `columns` vectors, which the buffers hold.
    unsafe {
        observe_rows::launch_unchecked(
            &logits.client,
            rows.count(tokens),
            rows.dim(),
            vector,
            buffer(&logits),
            buffer(&logits),
            buffer(&labels),
            buffer(&state.maximum),
            buffer(&state.sum),
            buffer(&state.target),
            first as i32,
            columns,
            scale,
            soft_cap,
            form,
            rows.threads,
        );
    }
}

/// The loss of each token, lse − target or 0 for one that does not count, and its
/// lse = log Σ exp(logit) over all chunks: both [T] f32.
pub fn token_losses(state: &LossState, labels: &CubeTensor) -> (CubeTensor, CubeTensor) {
    let labels = contiguous(labels);
    let [tokens] = sizes(&state.maximum, "the state");
    expect(&labels, DType::I32, tokens, "labels");
    let [losses, lse] = std::array::from_fn(|_| empty(&labels, [tokens], DType::F32));
    let grid = Grid::of(tokens);
    // SAFETY: the buffers hold `tokens` elements and the kernel checks their end.
    unsafe {
        finish::launch_unchecked(
            &labels.client,
            grid.count,
            grid.dim,
            buffer(&state.maximum),
            buffer(&state.sum),
            buffer(&state.target),
            buffer(&labels),
            buffer(&losses),
            buffer(&lse),
        );
    }
    (losses, lse)
}

/// (exp(logit − lse) − \[label = entry\]) · scale, times the derivative of logits of this form by products, rows of zeros
/// for tokens that do not count.
///
/// Products `logits` [T, C] f32 of the entries `first..first + C`, lse [T] f32, labels [T] i32, scale [1] f32
/// → [T, C] of type `out`, in the memory of the products where that is f32 and nobody else holds
/// them.
pub fn chunk_gradient(
    logits: CubeTensor,
    lse: &CubeTensor,
    (labels, first): (&CubeTensor, usize),
    form: Logits,
    scale: &CubeTensor,
    out: DType,
) -> CubeTensor {
    let (logits, labels) = (burn_cubecl::kernel::into_contiguous(logits), contiguous(labels));
    let [tokens, width] = sizes(&logits, "logits");
    expect(&logits, DType::F32, tokens * width, "logits");
    expect(lse, DType::F32, tokens, "lse");
    expect(&labels, DType::I32, tokens, "labels");
    expect(scale, DType::F32, 1, "scale");
    let vector = vector(DType::F32, &[width]);
    let columns = width / vector;
    let rows = Rows::of(columns, BATCH);
    let (logit_scale, soft_cap, form) = arguments(form);
    let (dlogits, argument) = over(&logits, 0, out);
    // SAFETY: the kernel stays within `tokens` rows of `columns` vectors, which the buffers hold.
    unsafe {
        gradient::launch_unchecked(
            &logits.client,
            rows.count(tokens),
            rows.dim(),
            vector,
            buffer(&logits),
            argument,
            buffer(lse),
            buffer(&labels),
            buffer(scale),
            first as i32,
            columns,
            logit_scale,
            soft_cap,
            form,
            rows.threads,
            float(out),
        );
    }
    dlogits
}

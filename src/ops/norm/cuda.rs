//! RMSNorm and LayerNorm over the rows of a matrix, forward and backward.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::kernels::columns::sum_partial;
use crate::ops::kernels::launch::{buffer, contiguous, empty, expect, float, like, sizes, vector, wider};
use crate::ops::kernels::row::Rows;
use crate::ops::norm::Terms;
use crate::ops::norm::cuda_kernels::{normalize, normalize_backward};

/// Vectors of a row that a thread of the forward pass holds.
const FORWARD_VECTORS: usize = 4;

/// How the backward pass fills a multiprocessor. All blocks run at once, each over many rows: more
/// blocks would only make more partial sums.
struct Occupancy {
    /// Elements of a row that a thread holds of each tensor: more loads in flight, more registers.
    elements: usize,
    /// Threads on a multiprocessor, as many as the registers allow.
    threads: usize,
}

// Measured on an H200.
const RMS_BACKWARD: Occupancy = Occupancy { elements: 8, threads: 1024 };
/// Here the registers also hold what is added to dx.
const RMS_BACKWARD_ADDING: Occupancy = Occupancy { elements: 8, threads: 768 };
const LAYER_BACKWARD: Occupancy = Occupancy { elements: 16, threads: 512 };
/// Multiprocessors where the driver does not say.
const MULTIPROCESSORS: u32 = 128;

/// The gradients of a norm's weight and bias, of which blocks have parts.
pub struct Parts {
    weight: CubeTensor,
    bias: Option<CubeTensor>,
}

impl Parts {
    /// dweight [H] as `out`, and dbias [H] of LayerNorm.
    pub fn sum(self, out: DType) -> (CubeTensor, Option<CubeTensor>) {
        sum_partial(&self.weight, self.bias.as_ref(), out)
    }
}

/// RMSNorm: y = x · rstd ⊙ weight, with rstd = 1 / √(mean(x²) + eps) of each row. With a bias it is LayerNorm: y = (x −
/// mean) · rstd ⊙ weight + bias, with rstd = 1 / √(variance + eps) and the biased variance. With `plus_one` the weight is 1 more.
///
/// x [T, H], weight and bias [H] of one type → y [T, H] of type `out`; mean, where there is a bias, and rstd, [T] f32.
pub fn norm(
    x: &CubeTensor,
    weight: &CubeTensor,
    bias: Option<&CubeTensor>,
    Terms { epsilon, plus_one }: Terms,
    out: DType,
) -> (CubeTensor, Option<CubeTensor>, CubeTensor) {
    let (x, weight, bias) = (contiguous(x), contiguous(weight), bias.map(contiguous));
    let [tokens, width] = sizes(&x, "x");
    expect(&weight, weight.dtype, width, "weight");
    bias.as_ref().inspect(|bias| expect(bias, weight.dtype, width, "bias"));
    let vector = vector(wider(x.dtype, wider(weight.dtype, out)), &[width]);
    let columns = width / vector;
    let rows = Rows::of(columns, FORWARD_VECTORS);
    let y = like(&x, out);
    let rstd = empty(&x, [tokens], DType::F32);
    let mean = bias.as_ref().map(|_| empty(&x, [tokens], DType::F32));
    // SAFETY: the kernel stays within `tokens` rows of `columns` vectors, which the buffers hold.
    unsafe {
        normalize::launch_unchecked(
            &x.client,
            rows.count(tokens),
            rows.dim(),
            vector,
            buffer(&x),
            buffer(&weight),
            bias.as_ref().map(buffer).into(),
            buffer(&y),
            mean.as_ref().map(buffer).into(),
            buffer(&rstd),
            width as f32,
            epsilon as f32,
            columns,
            columns.div_ceil(rows.threads),
            rows.threads,
            plus_one,
            [float(x.dtype), float(weight.dtype), float(out)],
        );
    }
    (y, mean, rstd)
}

/// The gradients of [`norm`] from g [T, H], that of y: dx + earlier [T, H] of x's type, and dweight and, with a mean, dbias
/// in parts. `earlier` is [T, H] of x's type.
pub fn norm_backward(
    x: &CubeTensor,
    (weight, plus_one): (&CubeTensor, bool),
    (mean, rstd): (Option<&CubeTensor>, &CubeTensor),
    g: &CubeTensor,
    earlier: Option<&CubeTensor>,
) -> (CubeTensor, Parts) {
    let (x, weight, g, earlier) = (contiguous(x), contiguous(weight), contiguous(g), earlier.map(contiguous));
    let [tokens, width] = sizes(&x, "x");
    expect(&weight, weight.dtype, width, "weight");
    expect(&g, g.dtype, tokens * width, "g");
    expect(rstd, DType::F32, tokens, "rstd");
    mean.inspect(|mean| expect(mean, DType::F32, tokens, "mean"));
    earlier.as_ref().inspect(|earlier| expect(earlier, x.dtype, tokens * width, "earlier"));
    let vector = vector(wider(x.dtype, wider(weight.dtype, g.dtype)), &[width]);
    let columns = width / vector;
    let Occupancy { elements, threads } = match (mean, &earlier) {
        (Some(_), _) => LAYER_BACKWARD,
        (None, None) => RMS_BACKWARD,
        (None, Some(_)) => RMS_BACKWARD_ADDING,
    };
    let rows = Rows::of(columns, elements / vector);
    let hardware = &x.client.properties().hardware;
    let multiprocessors = hardware.num_streaming_multiprocessors.unwrap_or(MULTIPROCESSORS) as usize;
    let block = rows.threads * rows.per_block;
    let blocks = rows.blocks(tokens).min(multiprocessors * (threads / block));
    let dx = like(&x, x.dtype);
    let partial_weight = empty(&x, [blocks, width], DType::F32);
    let partial_bias = mean.map(|_| empty(&x, [blocks, width], DType::F32));
    // SAFETY: the kernel stays within `tokens` rows of `columns` vectors and writes one row of the
    // partial sums for each block.
    unsafe {
        normalize_backward::launch_unchecked(
            &x.client,
            CubeCount::Static(blocks as u32, 1, 1),
            rows.dim(),
            vector,
            buffer(&x),
            buffer(&weight),
            mean.map(buffer).into(),
            buffer(rstd),
            buffer(&g),
            earlier.as_ref().map(buffer).into(),
            buffer(&dx),
            buffer(&partial_weight),
            partial_bias.as_ref().map(buffer).into(),
            width as f32,
            columns,
            columns.div_ceil(rows.threads),
            rows.threads,
            rows.per_block,
            mean.is_some(),
            plus_one,
            [float(x.dtype), float(weight.dtype), float(g.dtype)],
        );
    }
    (dx, Parts { weight: partial_weight, bias: partial_bias })
}

//! Matrix products of tensors outside of autodiff's graph, accumulated in fp32. On CUDA cuBLASLt multiplies, on Burn's own
//! buffers and stream; without that library Burn does, and the row says so. On the CPU our own kernel makes the products
//! whose result is fp32, from operands widened to it, and Burn makes the others.

pub mod cpu;
#[cfg(test)]
mod tests;

use std::ops::Range;

use burn::tensor::{DType, Tensor};

use super::backend::{self, cube, on_cuda, uncube};
use super::function::custom;
use super::name::OperatorName;
use super::narrow;
pub use crate::device::cuda::Fp32Math;
use crate::device::cuda::{self, Output};

/// One operand of a product, or its transpose, which is read in place: a matrix [rows, columns], or a batch of
/// them [batch, rows, columns].
#[derive(Clone)]
pub struct Factor<const D: usize> {
    tensor: Tensor<D>,
    transposed: bool,
    /// `None`: all of them.
    rows: Option<Range<usize>>,
    columns: Option<Range<usize>>,
}

/// The tensor as it is.
pub fn plain<const D: usize>(tensor: Tensor<D>) -> Factor<D> {
    Factor { tensor, transposed: false, rows: None, columns: None }
}

/// The tensor's transpose, of each matrix of a batch.
pub fn transpose<const D: usize>(tensor: Tensor<D>) -> Factor<D> {
    Factor { transposed: true, ..plain(tensor) }
}

impl<const D: usize> Factor<D> {
    /// These rows of every matrix alone, counted before the transposition.
    #[must_use]
    pub fn rows(self, rows: Range<usize>) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// These columns of every matrix alone, counted before the transposition.
    #[must_use]
    pub fn columns(self, columns: Range<usize>) -> Self {
        Self { columns: Some(columns), ..self }
    }

    /// The size of what is multiplied, in rows (D − 2) or in columns (D − 1).
    fn outer(&self, place: usize) -> usize {
        let stored = if self.transposed { 2 * D - 3 - place } else { place };
        let part = if stored == D - 2 { &self.rows } else { &self.columns };
        part.as_ref().map_or(self.tensor.dims()[stored], Range::len)
    }

    /// Whether the CPU's kernel multiplies it for a result of this type.
    fn is_for_kernel(&self, dtype: DType) -> bool {
        dtype == DType::F32 && !on_cuda(&self.tensor)
    }

    /// As cuBLASLt reads it.
    fn view(self) -> cuda::View {
        let Self { tensor, transposed, rows, columns } = self;
        let view = cuda::View::from(cuda::Operand { tensor: cube(tensor), transposed });
        let view = rows.into_iter().fold(view, cuda::View::rows);
        columns.into_iter().fold(view, cuda::View::columns)
    }

    /// A tensor of its own, widened to `dtype`, which is then also the accumulator's type.
    fn operand(self, dtype: DType) -> Tensor<D> {
        let Self { mut tensor, transposed, rows, columns } = self;
        if rows.is_some() || columns.is_some() {
            let part = part(tensor.dims(), rows, columns);
            tensor = tensor.slice(part);
        }
        // In this order: a transpose is first copied in its own order where it is cast.
        let tensor = narrow(tensor, dtype);
        if transposed { tensor.transpose() } else { tensor }
    }
}

/// These rows and columns of every matrix of a tensor.
fn part<const D: usize>(
    dims: [usize; D],
    rows: Option<Range<usize>>,
    columns: Option<Range<usize>>,
) -> [Range<usize>; D] {
    let mut part = dims.map(|size| 0..size);
    for (place, some) in [(D - 2, rows), (D - 1, columns)] {
        if let Some(Range { start, end }) = some {
            let all = dims[place];
            assert!(start < end && end <= all, "matmul: {start}..{end} of {all} rows or columns");
            part[place] = start..end;
        }
    }
    part
}

/// Whether cuBLASLt multiplies.
///
/// # Panics
/// When cuBLASLt is missing on CUDA and Burn cannot multiply instead.
fn has_blas<const D: usize>(lhs: &Factor<D>, math: Fp32Math) -> bool {
    let has = backend::has_blas(&lhs.tensor);
    assert!(
        has || lhs.tensor.dtype() != DType::F32 || math == Fp32Math::Tf32 || !on_cuda(&lhs.tensor),
        "fp32 products on CUDA need cuBLASLt, since Burn multiplies fp32 in TF32 there: install it \
         (pip's nvidia-cublas-cu12, or nvidia-cublas with a driver of CUDA 13), set LD_LIBRARY_PATH, or use precision.compute = \"tf32\""
    );
    has
}

/// lhs · rhs of operands of one dtype, as a new tensor of `dtype`: the operands' own, or fp32 for gradients and
/// logits. The CPU has no TF32: fp32 is exact there whatever `math` asks for.
///
/// # Panics
/// When the shapes or dtypes do not fit, as all products here.
pub fn product<const D: usize>(lhs: Factor<D>, rhs: Factor<D>, dtype: DType, math: Fp32Math) -> Tensor<D> {
    if has_blas(&lhs, math) {
        return uncube(cuda::matmul(lhs.view(), rhs.view(), Output::New(dtype), math));
    }
    composed(lhs, rhs, dtype)
}

/// sum + lhs · rhs, in the memory of `sum` where nobody else holds it; without a sum a new tensor of `dtype`.
pub fn product_add<const D: usize>(
    sum: Option<Tensor<D>>,
    lhs: Factor<D>,
    rhs: Factor<D>,
    dtype: DType,
    math: Fp32Math,
) -> Tensor<D> {
    let Some(sum) = sum else { return product(lhs, rhs, dtype, math) };
    if has_blas(&lhs, math) {
        return uncube(cuda::matmul(lhs.view(), rhs.view(), Output::AddTo(cube(sum)), math));
    }
    if lhs.is_for_kernel(sum.dtype()) {
        let [lhs, rhs] = operands(lhs, rhs, DType::F32);
        let rows = 0..sum.dims()[D - 2];
        return cpu::product_into(sum, rows, true, lhs, rhs);
    }
    let product = composed(lhs, rhs, sum.dtype());
    sum + product
}

/// Writes lhs · rhs into a range of rows of every matrix of `target`, or adds it to them, in place
/// where nobody else holds the target.
pub fn product_into<const D: usize>(
    target: Tensor<D>,
    rows: Range<usize>,
    accumulate: bool,
    lhs: Factor<D>,
    rhs: Factor<D>,
    math: Fp32Math,
) -> Tensor<D> {
    if has_blas(&lhs, math) {
        let output = Output::Into { tensor: cube(target), rows, columns: None, accumulate };
        return uncube(cuda::matmul(lhs.view(), rhs.view(), output, math));
    }
    if lhs.is_for_kernel(target.dtype()) {
        let [lhs, rhs] = operands(lhs, rhs, DType::F32);
        return cpu::product_into(target, rows, accumulate, lhs, rhs);
    }
    let mut product = composed(lhs, rhs, target.dtype());
    let part = part(target.dims(), Some(rows), None);
    if accumulate {
        product = target.clone().slice(part.clone()) + product;
    }
    target.slice_assign(part, product)
}

/// lhs · rhs, with the bias [n] in every row where there is one, bias and result of `dtype`; and with a tensor of the
/// result's shape and type where there is one, which stays as it is. cuBLASLt rounds the sum of all once, if it adds the
/// bias in the same kernel.
pub fn product_bias(
    lhs: Factor<2>,
    rhs: Factor<2>,
    bias: Option<Tensor<1>>,
    onto: Option<Tensor<2>>,
    dtype: DType,
    math: Fp32Math,
) -> Tensor<2> {
    if has_blas(&lhs, math) {
        let output = onto.map_or(Output::New(dtype), |onto| Output::Onto(cube(onto)));
        let (lhs, rhs) = (lhs.view(), rhs.view());
        return uncube(match bias {
            Some(bias) => cuda::matmul_bias(lhs, rhs, cube(bias), output, math),
            None => cuda::matmul(lhs, rhs, output, math),
        });
    }
    let y = match bias {
        Some(bias) if lhs.is_for_kernel(dtype) => {
            let [lhs, rhs] = operands(lhs, rhs, dtype);
            cpu::product(lhs, rhs, Some(bias))
        }
        Some(bias) => composed(lhs, rhs, dtype) + bias.unsqueeze(),
        None => composed(lhs, rhs, dtype),
    };
    match onto {
        Some(onto) => onto + y,
        None => y,
    }
}

/// The operands widened to `dtype`.
fn operands<const D: usize>(lhs: Factor<D>, rhs: Factor<D>, dtype: DType) -> [Tensor<D>; 2] {
    assert_eq!(lhs.tensor.dtype(), rhs.tensor.dtype(), "matmul: both operands must have one dtype");
    let [lhs, rhs] = [lhs, rhs].map(|factor| factor.operand(dtype));
    assert_eq!(lhs.dims()[..D - 2], rhs.dims()[..D - 2], "matmul: the batches");
    [lhs, rhs]
}

/// lhs · rhs without cuBLASLt.
fn composed<const D: usize>(lhs: Factor<D>, rhs: Factor<D>, dtype: DType) -> Tensor<D> {
    let has_kernel = lhs.is_for_kernel(dtype);
    let sizes = [lhs.outer(D - 2), rhs.outer(D - 1)];
    let widened = !on_cuda(&lhs.tensor) && adds_in_half(dtype, sizes);
    let [lhs, rhs] = operands(lhs, rhs, if widened { DType::F32 } else { dtype });
    match has_kernel || widened {
        true => narrow(cpu::product(lhs, rhs, None), dtype),
        false => lhs.matmul(rhs),
    }
}

/// Whether Burn's product of so many rows and columns adds up in fp16 on the CPU: with a vector it does.
fn adds_in_half(dtype: DType, rows_and_columns: [usize; 2]) -> bool {
    dtype == DType::F16 && rows_and_columns.contains(&1)
}

/// lhs · rhs inside of the graph, for the operator `name` composed of Burn's own: a node of its own, with the same
/// products as the operators with hand-written backward take. The CPU's in other types than fp32 is Burn's, if it adds up in fp32.
pub fn composed_product<const D: usize>(
    name: OperatorName,
    lhs: Tensor<D>,
    rhs: Tensor<D>,
    math: Fp32Math,
) -> Tensor<D> {
    let is_burns =
        lhs.dtype() != DType::F32 && !adds_in_half(lhs.dtype(), [lhs.dims()[D - 2], rhs.dims()[D - 1]]);
    if !on_cuda(&lhs) && is_burns {
        return lhs.matmul(rhs);
    }
    custom(name, [lhs.into_dispatch(), rhs.into_dispatch()], |inputs| {
        let [lhs, rhs] = inputs.map(Tensor::<D>::from_dispatch);
        let dtype = lhs.dtype();
        let result = product(plain(lhs.clone()), plain(rhs.clone()), dtype, math);
        (result, move |g: Tensor<D>, [want_lhs, want_rhs]| {
            let dlhs = want_lhs.then(|| product(plain(g.clone()), transpose(rhs), dtype, math));
            let drhs = want_rhs.then(|| product(transpose(lhs), plain(g), dtype, math));
            [dlhs, drhs].map(|gradient| gradient.map(Tensor::into_dispatch))
        })
    })
}

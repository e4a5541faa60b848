//! Matrix products of tensors outside of autodiff's graph, on each backend's fastest path.

use std::ops::Range;

use burn::backend::{Backend, DispatchKindConversion, DispatchTensor, DispatchTensorKind, Flex};
use burn::tensor::{DType, Float, Tensor};
use burn_cubecl::CubeBackend as Cube;

use super::linear::{self, Fp32Math, Matmul, Side};

/// One side of a product, or its transpose, which is read in place.
#[derive(Clone)]
pub struct Factor {
    tensor: Tensor<2>,
    transposed: bool,
}

/// The tensor as it is.
pub fn plain(tensor: Tensor<2>) -> Factor {
    Factor { tensor, transposed: false }
}

/// The tensor's transpose.
pub fn transpose(tensor: Tensor<2>) -> Factor {
    Factor { tensor, transposed: true }
}

impl Factor {
    fn side<B: Backend>(self) -> Side<B>
    where
        DispatchTensor: DispatchKindConversion<B>,
    {
        let tensor = lower::<B, 2>(self.tensor);
        if self.transposed { linear::transpose(tensor) } else { linear::plain(tensor) }
    }
}

/// Whether a tensor outside of the graph lives on a CUDA device.
pub fn on_cuda<const D: usize>(tensor: &Tensor<D>) -> bool {
    matches!(tensor.clone().into_dispatch().kind, DispatchTensorKind::Cube(_))
}

/// A tensor outside of the graph as its backend's own.
pub fn lower<B: Backend, const D: usize>(tensor: Tensor<D>) -> B::FloatTensorPrimitive
where
    DispatchTensor: DispatchKindConversion<B>,
{
    tensor
        .try_into_primitive::<B>()
        .unwrap_or_else(|e| panic!("the inputs of an operator must be on one device: {e:?}"))
}

/// The inverse of [`lower`].
pub fn lift<B: Backend, const D: usize>(tensor: B::FloatTensorPrimitive) -> Tensor<D>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    Tensor::<D, Float>::from_primitive::<B>(tensor)
}

/// lhs · rhs of two matrices of one dtype, accumulated in fp32, as a new tensor of `dtype`.
pub fn product(lhs: Factor, rhs: Factor, dtype: DType, math: Fp32Math) -> Tensor<2> {
    if on_cuda(&lhs.tensor) {
        lift::<Cube, 2>(Cube::matmul(lhs.side(), rhs.side(), dtype, math))
    } else {
        lift::<Flex, 2>(Flex::matmul(lhs.side(), rhs.side(), dtype, math))
    }
}

/// sum + lhs · rhs, in the memory of `sum` where nobody else holds it.
pub fn product_add(sum: Tensor<2>, lhs: Factor, rhs: Factor, math: Fp32Math) -> Tensor<2> {
    if on_cuda(&sum) {
        lift::<Cube, 2>(Cube::matmul_add(lower::<Cube, 2>(sum), lhs.side(), rhs.side(), math))
    } else {
        lift::<Flex, 2>(Flex::matmul_add(lower::<Flex, 2>(sum), lhs.side(), rhs.side(), math))
    }
}

/// One side of a batch of products [batch, rows, columns]: of every matrix a range of rows, or the
/// transpose of that.
#[derive(Clone)]
pub struct BatchFactor {
    tensor: Tensor<3>,
    rows: Range<usize>,
    transposed: bool,
}

pub fn batch_plain(tensor: Tensor<3>) -> BatchFactor {
    let rows = 0..tensor.dims()[1];
    BatchFactor { tensor, rows, transposed: false }
}

/// The transpose of every matrix.
pub fn batch_transpose(tensor: Tensor<3>) -> BatchFactor {
    BatchFactor { transposed: true, ..batch_plain(tensor) }
}

impl BatchFactor {
    /// Takes these rows, as they lie in memory, alone.
    pub fn rows(self, rows: Range<usize>) -> Self {
        Self { rows, ..self }
    }

    fn composed(self, dtype: DType) -> Tensor<3> {
        let tensor = self.tensor.narrow(1, self.rows.start, self.rows.len());
        let tensor = super::narrow(tensor, dtype);
        if self.transposed { tensor.swap_dims(1, 2) } else { tensor }
    }
}

/// lhs · rhs of every pair of matrices, accumulated in fp32, as a new tensor of `dtype`.
pub fn batch_product(lhs: BatchFactor, rhs: BatchFactor, dtype: DType, math: Fp32Math) -> Tensor<3> {
    let _ = math;
    lhs.composed(dtype).matmul(rhs.composed(dtype))
}

/// Writes lhs · rhs into a range of rows of every matrix of `target`, or adds it to them, in place
/// where nobody else holds the target.
pub fn batch_product_into(
    target: Tensor<3>,
    rows: Range<usize>,
    add: bool,
    lhs: BatchFactor,
    rhs: BatchFactor,
    math: Fp32Math,
) -> Tensor<3> {
    let [batch, _, columns] = target.dims();
    let product = batch_product(lhs, rhs, target.dtype(), math);
    let range = [0..batch, rows, 0..columns];
    let product = if add { target.clone().slice(range.clone()) + product } else { product };
    target.slice_assign(range, product)
}

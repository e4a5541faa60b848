//! Matrix products, most of them of tensors outside of autodiff's graph, on each backend's fastest path:
//! [`super::linear`] for tensors whose backend is known only when the program runs.

use std::ops::Range;

use burn::backend::Flex;
use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeBackend;

use super::backend::{Computes, on_cuda};
use super::function::custom;
use super::linear::{self, Fp32Math, Matmul, Output, Side};

/// One side of a product, or its transpose, which is read in place: a matrix, or a batch of them.
#[derive(Clone)]
pub struct Factor<const D: usize> {
    tensor: Tensor<D>,
    transposed: bool,
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
    pub fn rows(self, rows: Range<usize>) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// These columns of every matrix alone, counted before the transposition.
    pub fn columns(self, columns: Range<usize>) -> Self {
        Self { columns: Some(columns), ..self }
    }

    fn side<B: Computes>(self) -> Side<B> {
        let tensor = B::lower(self.tensor);
        let side = if self.transposed { linear::transpose(tensor) } else { linear::plain(tensor) };
        let side = self.rows.into_iter().fold(side, Side::rows);
        self.columns.into_iter().fold(side, Side::columns)
    }
}

/// Evaluates an expression with `$B` as the backend of a tensor.
macro_rules! on_backend {
    ($tensor:expr, $B:ident => $result:expr) => {
        if on_cuda(&$tensor) {
            type $B = CubeBackend;
            $result
        } else {
            type $B = Flex;
            $result
        }
    };
}

/// lhs · rhs of operands of one dtype, accumulated in fp32, as a new tensor of `dtype`.
pub fn product<const D: usize>(lhs: Factor<D>, rhs: Factor<D>, dtype: DType, math: Fp32Math) -> Tensor<D> {
    on_backend!(lhs.tensor, B => B::lift::<D>(B::matmul(lhs.side(), rhs.side(), dtype, math)))
}

/// sum + lhs · rhs, in the memory of `sum` where nobody else holds it.
pub fn product_add<const D: usize>(
    sum: Tensor<D>,
    lhs: Factor<D>,
    rhs: Factor<D>,
    math: Fp32Math,
) -> Tensor<D> {
    on_backend!(sum, B => B::lift::<D>(B::matmul_add(B::lower::<D>(sum), lhs.side(), rhs.side(), math)))
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
    on_backend!(target, B => {
        let output = Output::Into { tensor: B::lower::<D>(target), rows, accumulate };
        B::lift::<D>(B::batch_matmul(lhs.side(), rhs.side(), output, math))
    })
}

/// lhs · rhs + bias in every row.
pub fn product_bias(
    lhs: Factor<2>,
    rhs: Factor<2>,
    bias: Tensor<1>,
    dtype: DType,
    math: Fp32Math,
) -> Tensor<2> {
    on_backend!(bias, B => {
        let bias = B::lower::<1>(bias);
        B::lift::<2>(B::matmul_bias(lhs.side(), rhs.side(), bias, Output::New(dtype), math))
    })
}

/// lhs · rhs inside of the graph, for operators composed of Burn's own: on CUDA a node of its own, with
/// the same products as the operators with hand-written backward take; the CPU's is Burn's.
pub fn composed_product<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>, math: Fp32Math) -> Tensor<D> {
    if !on_cuda(&lhs) {
        return lhs.matmul(rhs);
    }
    custom([lhs.into_dispatch(), rhs.into_dispatch()], |inputs| {
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

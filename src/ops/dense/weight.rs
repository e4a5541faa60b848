//! A weight of a linear layer: how it lies in memory, how it is stored, and what it is multiplied in.

use burn::tensor::{DType, Tensor};

use crate::common::Compute;
use crate::device::dtype;
use crate::ops::product::{Factor, Fp32Math, plain, transpose};
use crate::ops::{autocast, nf4, rounded};

/// How a weight matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightLayout {
    /// [inputs, outputs]: GPT-2's Conv1D.
    InOut,
    /// [outputs, inputs]: `torch.nn.Linear`.
    OutIn,
}

impl WeightLayout {
    /// The shape of a weight from `inputs` to `outputs` columns.
    pub fn shape<T>(self, inputs: T, outputs: T) -> [T; 2] {
        match self {
            Self::InOut => [inputs, outputs],
            Self::OutIn => [outputs, inputs],
        }
    }

    /// The outputs of a weight of this shape.
    pub fn outputs(self, [rows, columns]: [usize; 2]) -> usize {
        match self {
            Self::InOut => columns,
            Self::OutIn => rows,
        }
    }

    /// The matrix that x is multiplied by.
    pub fn weight(self, weight: Tensor<2>) -> Factor<2> {
        match self {
            Self::InOut => plain(weight),
            Self::OutIn => transpose(weight),
        }
    }

    /// Its transpose.
    pub fn transposed(self, weight: Tensor<2>) -> Factor<2> {
        match self {
            Self::InOut => transpose(weight),
            Self::OutIn => plain(weight),
        }
    }

    /// The factors of the weight's gradient, xᵀg as it lies in memory.
    pub fn gradient(self, x: Tensor<2>, g: Tensor<2>) -> (Factor<2>, Factor<2>) {
        match self {
            Self::InOut => (transpose(x), plain(g)),
            Self::OutIn => (transpose(g), plain(x)),
        }
    }
}

/// The arithmetic of matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// What the operands are rounded to and the result is stored in.
    pub dtype: DType,
    /// How fp32 operands are multiplied.
    pub math: Fp32Math,
}

impl Arithmetic {
    pub fn of(compute: Compute) -> Self {
        Self { dtype: dtype(compute), math: Fp32Math::of(compute) }
    }

    /// The same in the type of the autocast region around the call.
    #[must_use]
    pub fn in_region(self) -> Self {
        Self { dtype: autocast::region().unwrap_or(self.dtype), ..self }
    }
}

/// A weight matrix, or a bias.
#[derive(Clone, Debug)]
pub struct Weight<const D: usize = 2> {
    pub stored: Tensor<D>,
    /// The same in the type it is multiplied in, outside of autodiff, where a cast is kept.
    pub cast: Option<Tensor<D>>,
    /// The shape of a frozen weight whose 4-bit codes are what is stored, as [`nf4`] has them.
    pub packed: Option<[usize; 2]>,
}

impl<const D: usize> Weight<D> {
    pub fn new(stored: Tensor<D>, cast: Option<Tensor<D>>) -> Self {
        Self { stored, cast, packed: None }
    }

    /// As `dtype`; what is stored must be outside of autodiff's graph.
    pub fn narrow(self, dtype: DType) -> Tensor<D> {
        match (self.packed, self.cast) {
            (Some(shape), _) => nf4::unpack(self.stored, shape, dtype),
            (None, Some(cast)) if cast.dtype() == dtype => cast,
            (None, _) => rounded(self.stored, dtype),
        }
    }

    /// As an operator keeps it for backward: as `dtype`, or packed.
    #[must_use]
    pub fn kept(self, dtype: DType) -> Self {
        match self.packed {
            Some(_) => Self { cast: None, ..self },
            None => self.narrow(dtype).into(),
        }
    }

    /// Outside of the graph: a constant.
    #[must_use]
    pub fn outside(self) -> Self {
        Self { stored: self.stored.inner(), ..self }
    }
}

impl Weight {
    /// The shape of the matrix that is multiplied, which a packed weight does not have itself.
    pub fn dims(&self) -> [usize; 2] {
        self.packed.unwrap_or_else(|| self.stored.dims())
    }
}

impl<const D: usize> From<Tensor<D>> for Weight<D> {
    fn from(stored: Tensor<D>) -> Self {
        Self::new(stored, None)
    }
}

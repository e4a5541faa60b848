//! What a product reads and writes: [`Operand`]s, parts of them ([`View`]), and the memory they lie
//! in.

use std::ops::Range;

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use crate::device::cuda::blas::Layout;

/// One side of a product, or its transpose: a matrix [rows, columns] or a batch of them
/// [batch, rows, columns].
pub struct Operand {
    pub tensor: CubeTensor,
    pub transposed: bool,
}

impl Operand {
    /// These rows of every matrix, counted before the transposition, read in place.
    #[must_use]
    pub fn rows(self, rows: Range<usize>) -> View {
        View::from(self).rows(rows)
    }

    /// These columns of every matrix, counted before the transposition, read in place.
    #[must_use]
    pub fn columns(self, columns: Range<usize>) -> View {
        View::from(self).columns(columns)
    }
}

/// A part of an operand.
pub struct View {
    pub(super) operand: Operand,
    /// `None`: all of them.
    pub(super) rows: Option<Range<usize>>,
    pub(super) columns: Option<Range<usize>>,
}

impl View {
    /// As [`Operand::rows`].
    #[must_use]
    pub fn rows(mut self, rows: Range<usize>) -> Self {
        self.rows = Some(rows);
        self
    }

    /// As [`Operand::columns`].
    #[must_use]
    pub fn columns(mut self, columns: Range<usize>) -> Self {
        self.columns = Some(columns);
        self
    }
}

impl From<Operand> for View {
    fn from(operand: Operand) -> Self {
        Self { operand, rows: None, columns: None }
    }
}

/// A batch of matrices whose memory is row-major.
pub struct Matrix {
    pub tensor: CubeTensor,
    pub place: Place,
}

/// Where in a tensor's memory a batch of matrices lies.
#[derive(Clone, Copy)]
pub struct Place {
    dtype: DType,
    /// Elements before the first matrix.
    offset: usize,
    /// As it lies in memory.
    rows: usize,
    columns: usize,
    stride: usize,
    pub batch: usize,
    batch_stride: usize,
    transposed: bool,
}

impl Matrix {
    /// Where the view lies; a tensor whose rows and columns are both scattered is copied.
    ///
    /// # Panics
    /// When the tensor is not of rank 2 or 3 or a range is empty or leaves it.
    pub fn new(view: impl Into<View>) -> Self {
        let View { operand: Operand { mut tensor, transposed }, rows: some_rows, columns: some_columns } =
            view.into();
        let rank = tensor.rank();
        assert!(rank == 2 || rank == 3, "matmul takes matrices and batches of them, not rank {rank}");
        let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
        let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
        let batch = if rank == 3 { shape[0] } else { 1 };
        let packed = [rows * columns, columns, 1];
        // A dimension of one element may have any stride.
        let mut places = match tensor.is_contiguous() {
            true => packed,
            false => [if rank == 3 { strides[0] } else { 0 }, strides[rank - 2], strides[rank - 1]],
        };
        let by_rows = |[_, down, right]: [usize; 3]| right == 1 && down >= columns;
        let by_columns = |[_, down, right]: [usize; 3]| down == 1 && right >= rows;
        if !by_rows(places) && !by_columns(places) {
            (tensor, places) = (into_contiguous(tensor), packed);
        }
        let part = |some: Option<Range<usize>>, all: usize, what: &str| {
            let some = some.unwrap_or(0..all);
            assert!(
                some.start < some.end && some.end <= all,
                "matmul: {what} {}..{} of {all}",
                some.start,
                some.end
            );
            some
        };
        let (r, c) = (part(some_rows, rows, "rows"), part(some_columns, columns, "columns"));
        let [batch_stride, down, right] = places;
        let offset = r.start * down + c.start * right;
        let batch_stride = if batch > 1 { batch_stride } else { 0 };
        let (rows, columns, stride, transposed) = match by_rows(places) {
            true => (r.len(), c.len(), down, transposed),
            false => (c.len(), r.len(), right, !transposed),
        };
        let dtype = tensor.dtype;
        Self {
            tensor,
            place: Place { dtype, offset, rows, columns, stride, batch, batch_stride, transposed },
        }
    }

    /// The first elements of a packed tensor of any shape as a row [1, columns], the same in every
    /// product of a batch.
    pub fn row(tensor: CubeTensor, columns: usize, batch: usize) -> Self {
        let dtype = tensor.dtype;
        let lies = Place {
            dtype,
            offset: 0,
            rows: 1,
            columns,
            stride: columns,
            batch,
            batch_stride: 0,
            transposed: false,
        };
        Self { tensor, place: lies }
    }

    /// Its transpose.
    pub fn transpose(mut self) -> Self {
        self.place.transposed = !self.place.transposed;
        self
    }

    /// Rows and columns of the matrix that is multiplied.
    pub fn shape(&self) -> [usize; 2] {
        let Place { rows, columns, transposed, .. } = self.place;
        if transposed { [columns, rows] } else { [rows, columns] }
    }
}

impl Place {
    /// Where the first matrix lies in a tensor that lies at `pointer`.
    pub fn address(&self, pointer: u64) -> u64 {
        pointer + (self.offset * self.dtype.size()) as u64
    }

    pub fn layout(&self, pointer: u64) -> Layout {
        // The matrices after the first must be as aligned as it is; 0 is aligned to anything.
        let step = (self.batch_stride * self.dtype.size()) as u64;
        let zeros = self.address(pointer).trailing_zeros().min(step.trailing_zeros()).min(8);
        Layout {
            dtype: self.dtype,
            rows: self.rows,
            columns: self.columns,
            stride: self.stride,
            batch_stride: self.batch_stride,
            transposed: self.transposed,
            alignment: 1 << zeros,
        }
    }
}

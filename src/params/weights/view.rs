//! [`View`]: one tensor in its file, or some of its rows.

use std::ops::Range;

use safetensors::Dtype;

use super::WeightsError;
use super::convert::{Float, convert};

/// A tensor's bytes where they lie in the mapped file; little-endian, row-major, not aligned.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// As stored in the file.
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// Rows `rows` of the first dimension, shape [rows.len(), ...].
    ///
    /// # Errors
    /// When the tensor has no such rows.
    pub fn rows(&self, rows: Range<usize>) -> Result<View<'a>, WeightsError> {
        let total = self.shape.first().copied().unwrap_or(0);
        if rows.start > rows.end || rows.end > total {
            return Err(self.error(format!("has {total} rows, so rows {rows:?} do not exist")));
        }
        let row_bytes = self.bytes.len().checked_div(total).unwrap_or(0);
        let mut shape = self.shape.clone();
        shape[0] = rows.len();
        let bytes = &self.bytes[rows.start * row_bytes..rows.end * row_bytes];
        Ok(View { name: self.name.clone(), dtype: self.dtype, shape, bytes })
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Writes the elements into `out` as `dtype`, rounding to nearest even where it is narrower.
    ///
    /// # Errors
    /// When the tensor or `dtype` is none of F32, F16 and BF16, or `out` is not
    /// elements × bytes of `dtype` long.
    pub fn write_to(&self, out: &mut [u8], dtype: Dtype) -> Result<(), WeightsError> {
        let float = |dtype| {
            Float::of(dtype)
                .ok_or_else(|| self.error(format!("cannot be read as {dtype:?}; only F32, F16 and BF16 can")))
        };
        let (from, to) = (float(self.dtype)?, float(dtype)?);
        if out.len() != self.elements() * to.bytes() {
            let needed = self.elements() * to.bytes();
            return Err(self.error(format!("needs {needed} bytes as {dtype:?}, not {}", out.len())));
        }
        convert(self.bytes, from, out, to);
        Ok(())
    }

    fn error(&self, message: String) -> WeightsError {
        WeightsError::Tensor(format!("tensor {} {message}", self.name))
    }
}

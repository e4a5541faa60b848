//! [`Problems`]: fixed random problems for the SwiGLU network.

use burn::tensor::{DType, Device, Distribution, Tensor};

use super::Feed;
use crate::device::{drawing, dtype};
use crate::model::swiglu::{Regression, SwigluConfig};
use crate::recipe::Cell;

/// One problem for each micro-batch, drawn when the first step asks for them. They are the same in every
/// step, so that the loss must fall.
pub struct Problems {
    shape: [usize; 2],
    count: usize,
    dtype: DType,
    device: Device,
    drawn: Vec<Regression>,
}

impl Problems {
    pub fn new(config: &SwigluConfig, cell: &Cell) -> Self {
        Self {
            shape: [cell.train.tokens(), config.hidden_size],
            count: cell.train.accumulation_steps,
            dtype: dtype(cell.precision.compute),
            device: cell.device_id().burn(),
            // Before memory is counted: the tensors alone are the cell's.
            drawn: Vec::with_capacity(cell.train.accumulation_steps),
        }
    }
}

impl Feed<Regression> for Problems {
    fn next(&mut self) -> Vec<Regression> {
        let Self { shape, count, dtype, device, drawn } = self;
        let _drawing = drawing();
        let random = || Tensor::random(*shape, Distribution::Normal(0.0, 1.0), (&*device, *dtype));
        let part = 1.0 / *count as f64;
        drawn.resize_with(*count, || Regression { x: random(), target: random(), part });
        drawn.clone()
    }
}

#[cfg(test)]
#[path = "problems_tests.rs"]
mod tests;

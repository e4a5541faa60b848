//! [`Problems`]: fixed random problems for the SwiGLU network.

use burn::tensor::{DType, Device, Distribution};

use super::Feed;
use crate::data::Share;
use crate::device::{drawing, dtype, random};
use crate::model::swiglu::{Regression, SwigluConfig};
use crate::recipe::Cell;

/// One problem for each micro-batch, drawn in the first step. They are the same in every step, so that the loss must
/// fall.
pub struct Problems {
    /// Shape of a problem with all shares.
    shape: [usize; 2],
    share: Share,
    count: usize,
    dtype: DType,
    device: Device,
    drawn: Vec<Regression>,
}

impl Problems {
    pub fn new(config: &SwigluConfig, cell: &Cell, share: Share) -> Self {
        Self {
            shape: [cell.train.tokens(), config.hidden_size],
            share,
            count: cell.train.accumulation_steps,
            dtype: dtype(cell.precision.compute),
            device: cell.device_id().burn(),
            // Before memory is counted: only the tensors count as the cell's.
            drawn: Vec::with_capacity(cell.train.accumulation_steps),
        }
    }
}

impl Feed<Regression> for Problems {
    fn next(&mut self) -> Vec<Regression> {
        let Self { shape, share, count, dtype, device, drawn } = self;
        let _drawing = drawing();
        let random = || random(*shape, Distribution::Normal(0.0, 1.0), (&*device, *dtype));
        // The product copies the rows, so that those of other shares are freed.
        let random = || match *share {
            Share::WHOLE => random(),
            share => random().slice([share.range(shape[0])]) * 1.0,
        };
        let part = 1.0 / (*count * share.of) as f64;
        drawn.resize_with(*count, || Regression { x: random(), target: random(), part });
        drawn.clone()
    }
}

#[cfg(test)]
#[path = "problems_tests.rs"]
mod tests;

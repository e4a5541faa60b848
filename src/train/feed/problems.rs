//! [`Problems`]: fixed random problems for the SwiGLU network.

use burn::tensor::{DType, Device, Distribution, Tensor};

use super::Feed;
use crate::data::Share;
use crate::device::{drawing, dtype, random};
use crate::model::swiglu::{Regression, SwigluConfig};
use crate::recipe::Cell;

/// A problem for each micro-batch, drawn in the first step. They are the same in every step, so that the loss must fall, and
/// the rows of one that is drawn for the whole step, so that they are the same however it is divided.
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

    /// Whoever calls this holds [`drawing`].
    fn draw(&self) -> impl Iterator<Item = Regression> + use<> {
        let Self { shape: [rows, width], share, count, .. } = *self;
        let own = share.range(rows);
        let divided = || -> Vec<Tensor<2>> {
            let spread = Distribution::Normal(0.0, 1.0);
            let all = random([count * rows, width], spread, (&self.device, self.dtype));
            if (count, share) == (1, Share::WHOLE) {
                return vec![all];
            }
            // The product copies the rows, so that those of others are freed.
            let of = |first| {
                let rows = first + own.start..first + own.end;
                all.clone().slice([rows]) * 1.0
            };
            (0..count).map(|n| of(n * rows)).collect()
        };
        let part = 1.0 / (count * share.of) as f64;
        divided().into_iter().zip(divided()).map(move |(x, target)| Regression { x, target, part })
    }
}

impl Feed<Regression> for Problems {
    fn next(&mut self) -> Vec<Regression> {
        if self.drawn.is_empty() {
            let _drawing = drawing();
            let problems = self.draw();
            self.drawn.extend(problems);
        }
        self.drawn.clone()
    }
}

#[cfg(test)]
#[path = "problems_tests.rs"]
mod tests;

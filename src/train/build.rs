//! [`Build`]: from a cell's sections to its network and what feeds it.

use super::feed::{Feed, Problems, TokenFeed};
use crate::model::language::{Computation, Gpt2, Llama, LmBatch};
use crate::model::swiglu::SwigluStack;
use crate::model::{Model, Network};
use crate::params::source::Source;
use crate::params::{NamedShape, WeightsFrom};
use crate::recipe::Cell;
use crate::residence::Placement;
use crate::words::refusal::refuse;

/// A network that a cell trains.
pub trait Build: Network {
    /// With weights as the recipe says, on the autodiff device. Files that cannot be used end the cell.
    fn build(cell: &Cell) -> Self;

    /// What its steps work on, from `cell.seed`. Files that cannot be used end the cell.
    fn feed(cell: &Cell) -> Box<dyn Feed<Self::Batch>>;
}

impl Build for SwigluStack {
    fn build(cell: &Cell) -> Self {
        let Model::Swiglu(config) = &cell.model else { unreachable!("checked by kind") };
        let device = cell.device_id().burn().autodiff();
        Self::new(config, cell.checkpoint.level, cell.ops.swiglu, cell.precision.compute, &device)
    }

    fn feed(cell: &Cell) -> Box<dyn Feed<Self::Batch>> {
        let Model::Swiglu(config) = &cell.model else { unreachable!("checked by kind") };
        Box::new(Problems::new(config, cell))
    }
}

impl Build for Llama {
    fn build(cell: &Cell) -> Self {
        let (Model::Qwen2(model) | Model::Llama(model)) = &cell.model else {
            unreachable!("checked by kind")
        };
        let source = source(cell, &model.weights, &model.config.tensors());
        Self::new(&model.config, cell.train.seq_len, &source, computation(cell), Some(placement(cell)))
    }

    fn feed(cell: &Cell) -> Box<dyn Feed<Self::Batch>> {
        tokens(cell)
    }
}

impl Build for Gpt2 {
    fn build(cell: &Cell) -> Self {
        let Model::Gpt2(model) = &cell.model else { unreachable!("checked by kind") };
        let source = source(cell, &model.weights, &model.config.tensors());
        Self::new(&model.config, cell.train.seq_len, &source, computation(cell), Some(placement(cell)))
    }

    fn feed(cell: &Cell) -> Box<dyn Feed<Self::Batch>> {
        tokens(cell)
    }
}

fn tokens(cell: &Cell) -> Box<dyn Feed<LmBatch>> {
    Box::new(TokenFeed::open(cell).unwrap_or_else(|e| refuse(e)))
}

fn source(cell: &Cell, from: &WeightsFrom, expected: &[NamedShape]) -> Source {
    Source::open(from, expected, cell.device_id(), cell.precision.stored()).unwrap_or_else(|e| refuse(e))
}

fn computation(cell: &Cell) -> Computation {
    Computation { arithmetic: cell.precision.arithmetic(), ops: cell.ops, level: cell.checkpoint.level }
}

fn placement(cell: &Cell) -> Placement {
    Placement {
        offload: cell.offload,
        device: cell.device_id(),
        accumulates: cell.train.accumulation_steps > 1,
    }
}

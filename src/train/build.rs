//! [`Build`]: makes the network of a cell and its feed from the cell's sections.

use burn::tensor::{Device, Tensor};

use super::feed::{Feed, Problems, TokenFeed, on_device};
use crate::common::DeviceId;
use crate::common::refusal::refuse;
use crate::data::{Collated, Share};
use crate::device::{dtype, integers};
use crate::model::generate::{NotNumbers, Request, generate};
use crate::model::language::{Computation, Decoder, LmBatch};
use crate::model::swiglu::SwigluStack;
use crate::model::{Model, Network, Parts};
use crate::parallel::Groups;
use crate::params::source::Source;
use crate::recipe::Cell;
use crate::residence::{Placement, Sharding};

/// A network that a cell trains.
pub trait Build: Network {
    /// Makes `parts` of the network on the autodiff device, with weights as the recipe says. Layers that are divided among
    /// ranks of `groups` have this rank's share. Files that cannot be used end the cell.
    fn build(cell: &Cell, groups: &Groups, parts: Parts) -> Self;

    /// Makes the feed of a share of every batch, from `cell.seed`. Files that cannot be used end the cell.
    fn feed(cell: &Cell, share: Share) -> Box<dyn Feed<Self::Batch>>;

    /// The head's input for the tokens that predict something, [tokens, columns]; the network is outside of autodiff.
    fn features(&self, _batch: &Self::Batch) -> Tensor<2> {
        unreachable!("checked: a language model is evaluated")
    }

    /// Every prompt with its continuation, as [`generate`]; the network is outside of autodiff.
    fn generate(
        &self,
        _prompts: &[Vec<u32>],
        _request: &Request,
        _stops: &dyn Fn(&[u32]) -> bool,
        _device: &Device,
    ) -> Result<Vec<Vec<u32>>, NotNumbers> {
        unreachable!("checked: a language model answers")
    }

    /// The loss in nats of each token of a batch, as [`Decoder::token_losses`].
    fn token_losses(&self, _batch: Collated, _device: DeviceId) -> Vec<f32> {
        unreachable!("checked: a language model chooses")
    }
}

impl Build for SwigluStack {
    fn build(cell: &Cell, groups: &Groups, _: Parts) -> Self {
        let Model::Swiglu(config) = &cell.model else { unreachable!("checked by kind") };
        let source = Source::random(cell.device_id(), dtype(cell.precision.compute)).among(&groups.tensor);
        Self::new(config, cell.checkpoint, cell.ops.swiglu, cell.precision.compute, &source)
    }

    fn feed(cell: &Cell, share: Share) -> Box<dyn Feed<Self::Batch>> {
        let Model::Swiglu(config) = &cell.model else { unreachable!("checked by kind") };
        Box::new(Problems::new(config, cell, share))
    }
}

impl Build for Decoder {
    fn build(cell: &Cell, groups: &Groups, parts: Parts) -> Self {
        let model = cell.model.language().expect("checked by kind");
        let source = model.source(cell.device_id(), cell.precision.stored(), &cell.tuning());
        let arithmetic = cell.precision.arithmetic();
        let computation = Computation::new(arithmetic, cell.ops, cell.checkpoint);
        let source = source.unwrap_or_else(|e| refuse(e)).among(&groups.tensor);
        let homes = (Some(placement(cell)), sharding(cell, groups));
        model.network(cell.positions(), &source, computation, homes, parts)
    }

    fn feed(cell: &Cell, share: Share) -> Box<dyn Feed<Self::Batch>> {
        Box::new(TokenFeed::open(cell, share).unwrap_or_else(|e| refuse(e)))
    }

    fn features(&self, batch: &LmBatch) -> Tensor<2> {
        let labels: Vec<i32> = batch.labels.clone().into_data().iter::<i32>().collect();
        let rows = (0..labels.len()).filter(|row| labels[*row] >= 0).map(|row| row as i32).collect();
        let hidden = self.hidden(&batch.tokens, None).inner();
        hidden.clone().select(0, integers(rows, &hidden.device()))
    }

    fn generate(
        &self,
        prompts: &[Vec<u32>],
        request: &Request,
        stops: &dyn Fn(&[u32]) -> bool,
        device: &Device,
    ) -> Result<Vec<Vec<u32>>, NotNumbers> {
        generate(self, prompts, request, stops, device)
    }

    fn token_losses(&self, batch: Collated, device: DeviceId) -> Vec<f32> {
        Decoder::token_losses(self, &on_device(batch, device))
    }
}

/// Where the cell's parameters live.
pub fn placement(cell: &Cell) -> Placement {
    Placement {
        offload: cell.offload,
        device: cell.device_id(),
        accumulates: cell.train.accumulation_steps > 1,
        updates: cell.train.optimizer.rule().is_some(),
        recomputes: cell.checkpoint.blocks > 0,
    }
}

/// How replicas divide the cell's parameters; `None` if each has everything.
pub fn sharding(cell: &Cell, groups: &Groups) -> Option<Sharding> {
    Sharding::of(cell.parallel.shard, &groups.replicas)
}

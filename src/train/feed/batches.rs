//! [`Batches`]: a text, and the batches that are made of it.

use std::sync::Arc;

use super::prepared::{Prepared, finish, on_device};
use crate::common::DeviceId;
use crate::common::refusal::refuse;
use crate::data::{
    Collator, DataError, Dataset, Draws, Loader, Packed, Part, Position, Sampler, SamplerConfig, Samples,
    SamplingPlan, Share, Standard, Stream, Tokenize,
};
use crate::model::language::LmBatch;
use crate::recipe::Cell;

/// A text and the batches made of it.
pub struct Batches {
    pub plan: SamplingPlan,
    pub collator: Arc<Collator>,
}

impl Batches {
    pub fn open(
        cell: &Cell,
        data: &Dataset,
        part: Part,
        config: SamplerConfig,
        share: Share,
    ) -> Result<Self, DataError> {
        let samples = data.samples(part, &config, cell.train.seq_len)?;
        Ok(Self::of(cell, samples, config, share))
    }

    pub fn of(cell: &Cell, samples: Samples, mut config: SamplerConfig, share: Share) -> Self {
        // The recipe says how samples are loaded. The host of a GPU has cores left to make a step's blocks ahead; on the
        // CPU they would be missing to the kernels, and the batches would count as the cell's memory.
        if !config.sampler.keeps_samples() && cell.device_id() != DeviceId::Cpu {
            (config.num_workers, config.prefetch_factor) = (1, cell.train.accumulation_steps);
        }
        let (batch_size, max_length) = (cell.train.batch_size, cell.train.seq_len);
        let lengths = Arc::new(samples.lengths());
        let plan = SamplingPlan { config, lengths, batch_size, max_length, seed: u64::from(cell.seed) };
        let virtual_tokens = cell.tuning().virtual_tokens;
        let collator =
            Collator { samples, config, batch_size, max_length, start: start(cell), virtual_tokens, share };
        Self { plan, collator: Arc::new(collator) }
    }

    /// Held-out text in blocks, as in training; or in packed samples, so that every sampler gets the same tokens and as many
    /// in each batch.
    pub fn held_out(cell: &Cell, data: &Dataset, trained: SamplerConfig) -> Result<(Self, Draws), DataError> {
        let packed = SamplerConfig {
            sampler: Sampler::Packed(Packed::default()),
            tokenize: Tokenize::Once,
            ..trained
        };
        let standard = SamplerConfig { sampler: Sampler::Standard(Standard {}), ..packed };
        let config = match trained.sampler.keeps_samples() {
            true if start(cell).is_some() => standard,
            true => packed,
            false => trained,
        };
        let mut source = Self::open(cell, data, Part::HeldOut, config, Share::WHOLE)?;
        // If there are several batches, all weigh the same in the mean.
        source.plan.config.drop_last = source.tokens() >= cell.train.tokens() as u64;
        let draws = Draws::new(source.plan.clone(), Position::default());
        Ok((source, draws))
    }

    /// Of all samples.
    pub fn tokens(&self) -> u64 {
        self.plan.lengths.iter().map(|length| u64::from(*length)).sum()
    }

    pub fn loader(&self, start: Position, device: DeviceId) -> Loader<Prepared> {
        Loader::new(&self.plan, &self.collator, start, finish(device))
    }

    pub fn streamed(&self, stream: Stream, start: Position, device: DeviceId) -> Loader<Prepared> {
        let loader = Loader::streamed(&self.plan, &self.collator, stream, start, finish(device));
        loader.unwrap_or_else(|e| refuse(e))
    }

    /// A batch that does not count as seen.
    pub fn alone(&self, samples: &[u32], device: DeviceId) -> LmBatch {
        on_device(self.collator.collate(samples).unwrap_or_else(|e| refuse(e)), device)
    }
}

/// The token that a target begins with, of an encoder and a decoder.
fn start(cell: &Cell) -> Option<u32> {
    cell.model.language()?.architecture().encoder.map(|encoder| encoder.start)
}

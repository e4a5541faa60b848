//! Training on samples: what a sampler draws, collated by a loader and brought to the device.

use std::sync::Arc;

use burn::tensor::Device;

use super::{LmBatch, Tokens, next_labels};
use crate::data::{
    Collated, Collator, DataError, Dataset, Draws, Finish, LastSample, Loader, Packed, Plan, Position,
    Sampler, SamplerConfig, Samples, Segments, Tokenize,
};
use crate::device::{DeviceId, Staging};
use crate::measure::Counts;
use crate::measure::Load;
use crate::model::Steps;
use crate::ops::attention::{Bucket, Buckets, Grain, Mask, Packing};
use crate::ops::embedding::{Ids, ScatterPlan};
use crate::recipe::Cell;
use crate::words::refusal::refuse;

/// Widths of batches that a device prepares for, besides the largest: beyond them one finds little new.
const MOST_WIDTHS: usize = 32;

/// A collated batch with all that the device needs of it.
struct Prepared {
    /// [`Ids`] of the tokens and of their positions, four each, labels, and of packed samples the segments'
    /// numbers and the buckets' tokens.
    arrays: Vec<Vec<i32>>,
    /// What the ids of tokens and of positions are below.
    bounds: [usize; 2],
    rows: usize,
    width: usize,
    buckets: Option<Vec<Bucket>>,
    /// Labels that count.
    counted: usize,
    counts: Counts,
}

impl Prepared {
    fn on_cpu(batch: Collated) -> Self {
        Self::new(batch, Grain::CPU)
    }

    fn on_cuda(batch: Collated) -> Self {
        Self::new(batch, Grain::CUDA)
    }

    fn new(batch: Collated, grain: Grain) -> Self {
        let counted = batch.counted();
        // What predicts nothing is padding, or the last token of a sample: no token looks back at either.
        let plan = |ids: &[i32]| ScatterPlan::of(ids, |token| batch.labels[token] >= 0);
        let (ids, positions) = (plan(&batch.ids), plan(&batch.positions));
        let bounds = [&batch.ids, &batch.positions].map(|ids| Ids::bound(ids));
        let Collated { rows, width, counts, .. } = batch;
        let mut arrays = Ids::arrays(batch.ids, ids).to_vec();
        arrays.extend(Ids::arrays(batch.positions, positions));
        arrays.push(batch.labels);
        let buckets = batch.segments.map(|segments| {
            let Buckets { buckets, tokens } = Buckets::of(&segments.lengths, grain);
            arrays.extend([segments.numbers, tokens]);
            buckets
        });
        Self { arrays, bounds, rows, width, buckets, counted, counts }
    }

    fn upload(self, staging: &mut Staging) -> LmBatch {
        let Self { arrays, bounds, rows, width, buckets, counted, .. } = self;
        let mut tensors = staging.upload(arrays).into_iter();
        let mut next = || tensors.next().expect("one for each array");
        let [ids, positions] = bounds.map(|below| Ids::from_tensors([next(), next(), next(), next()], below));
        let labels = next();
        let mask = buckets.map_or_else(Mask::default, |buckets| Mask {
            segments: Some(next().reshape([rows, width])),
            packing: Some(Packing::new(buckets, next())),
        });
        let tokens = Tokens { ids, positions, batch: rows, sequence: width, mask };
        LmBatch { tokens, labels, total: counted as f64 }
    }
}

/// How a batch becomes what a device needs of it.
fn finish(device: DeviceId) -> Finish<Prepared> {
    if device == DeviceId::Cpu { Prepared::on_cpu } else { Prepared::on_cuda }
}

impl LmBatch {
    /// As [`LmBatch::new`], of `samples` of equal length, as a sampler hands them over: packed into one row, or
    /// a row each.
    pub fn sampled(ids: &[u32], labels: &[i64], samples: usize, packed: bool, device: DeviceId) -> Self {
        let length = ids.len() / samples;
        let each = |value: fn(usize, usize) -> usize| -> Vec<i32> {
            (0..samples).flat_map(|sample| (0..length).map(move |i| value(sample, i) as i32)).collect()
        };
        let segments =
            packed.then(|| Segments { numbers: each(|sample, _| sample), lengths: vec![length; samples] });
        let batch = Collated {
            rows: if packed { 1 } else { samples },
            width: if packed { ids.len() } else { length },
            ids: ids.iter().map(|id| *id as i32).collect(),
            positions: each(|_, i| i),
            labels: next_labels(labels, length),
            segments,
            counts: Counts::default(),
        };
        finish(device)(batch).upload(&mut Staging::plain(&device.burn()))
    }
}

/// Micro-batches of samples. An epoch's last step may have fewer of them.
pub struct SampleFeed {
    plan: Plan,
    collator: Arc<Collator>,
    /// `None` until the first step is asked for, so that no time before it is saved.
    loader: Option<Loader<Prepared>>,
    /// `None` where nothing is evaluated.
    eval: Option<Held>,
    accumulation_steps: usize,
    finish: Finish<Prepared>,
    staging: Staging,
    plain: Device,
    loads: Vec<Load>,
}

/// Held-out samples, packed: the same tokens for every sampler, and as many in each batch.
struct Held {
    collator: Collator,
    draws: Draws,
}

impl SampleFeed {
    /// A corpus or a tokenizer that cannot be used ends the cell.
    pub fn open(cell: &Cell, device: &Device) -> Self {
        let sampler = *cell.data.sampler().expect("chosen by it");
        let (plan, collator, eval) = Self::samples(cell, sampler).unwrap_or_else(|e| refuse(e));
        Self {
            plan,
            collator: Arc::new(collator),
            loader: None,
            eval,
            accumulation_steps: cell.train.accumulation_steps,
            finish: finish(cell.device_id()),
            staging: cell.device_id().staging(sampler.pinned),
            plain: device.clone(),
            loads: Vec::new(),
        }
    }

    fn samples(cell: &Cell, config: SamplerConfig) -> Result<(Plan, Collator, Option<Held>), DataError> {
        let (seed, max_length) = (u64::from(cell.seed), cell.train.seq_len);
        let vocab = cell.model.vocab_size().expect("a language model");
        let Dataset::Text(data) = Dataset::open(&cell.data, seed, vocab)? else {
            unreachable!("a sampler needs text")
        };
        let of = |samples: Samples, config: SamplerConfig| {
            let lengths = Arc::new(samples.lengths());
            let batch_size = cell.train.batch_size;
            let plan = Plan { config, lengths, batch_size, max_length, seed };
            (plan, Collator { samples, config, batch_size, max_length })
        };
        let train = data.samples(data.train_split, config.samples, max_length, config.tokenize)?;
        let (plan, collator) = of(train, config);
        if cell.eval.is_none() {
            return Ok((plan, collator, None));
        }
        let held_out = data.samples(data.eval_split, config.samples, max_length, Tokenize::Once)?;
        let packed = Sampler::Packed(Packed { last_sample: LastSample::Cut });
        let tokens: u32 = held_out.lengths().iter().sum();
        // Batches of equal weight in the mean, where there is more than one.
        let drop_last = tokens as usize >= cell.train.tokens();
        let (eval_plan, eval) = of(held_out, SamplerConfig { sampler: packed, drop_last, ..config });
        let draws = Draws::new(eval_plan, Position::default());
        Ok((plan, collator, Some(Held { collator: eval, draws })))
    }

    /// The step's losses add up to the mean over its real tokens.
    fn weigh(mut batches: Vec<LmBatch>) -> Vec<LmBatch> {
        let total = batches.iter().map(|batch| batch.total).sum();
        batches.iter_mut().for_each(|batch| batch.total = total);
        batches
    }

    /// Tokens of a row of a batch.
    fn width(&self, samples: &[u32]) -> usize {
        let longest = samples.iter().map(|i| self.plan.lengths[*i as usize]).max();
        self.collator.width(longest.unwrap_or(0) as usize)
    }

    /// A batch outside of the run.
    fn alone(collator: &Collator, samples: &[u32], finish: Finish<Prepared>, device: &Device) -> LmBatch {
        let collated = collator.collate(samples).unwrap_or_else(|e| refuse(e));
        finish(collated).upload(&mut Staging::plain(device))
    }
}

impl Steps<LmBatch> for SampleFeed {
    fn next(&mut self) -> Vec<LmBatch> {
        let loader = self
            .loader
            .get_or_insert_with(|| Loader::new(&self.plan, &self.collator, Position::default(), self.finish));
        let (mut batches, mut load) = (Vec::new(), Load::default());
        for _ in 0..self.accumulation_steps {
            let loaded = loader.load().unwrap_or_else(|e| refuse(e));
            load.stall += loaded.stall;
            load.counts += loaded.batch.counts;
            batches.push(loaded.batch.upload(&mut self.staging));
            if loaded.last {
                break;
            }
        }
        self.loads.push(load);
        Self::weigh(batches)
    }

    fn held_out(&mut self) -> Option<LmBatch> {
        let held = self.eval.as_mut()?;
        let draw = held.draws.next()?;
        Some(Self::alone(&held.collator, &draw.samples, self.finish, &self.plain))
    }

    fn largest(&self) -> Option<[usize; 2]> {
        let samples = self.plan.largest();
        Some(match self.plan.config.sampler.is_packed() {
            true => [self.plan.batch_size, self.plan.max_length],
            false => [samples.len(), self.width(&samples)],
        })
    }

    fn rehearsals(&self) -> Vec<Vec<LmBatch>> {
        let step = |samples: Vec<u32>| {
            let batch = Self::alone(&self.collator, &samples, self.finish, &self.plain);
            Self::weigh(vec![batch; self.accumulation_steps])
        };
        let others = self.plan.others(|samples| self.width(samples));
        let apart = others.len().div_ceil(MOST_WIDTHS).max(1);
        std::iter::once(self.plan.largest()).chain(others.into_iter().step_by(apart)).map(step).collect()
    }

    fn of_epochs(&self, epochs: usize) -> Option<usize> {
        let batches = (0..epochs as u64).map(|epoch| self.plan.epoch(epoch).count());
        Some(batches.map(|count| count.div_ceil(self.accumulation_steps)).sum())
    }

    fn loads(&self) -> &[Load] {
        &self.loads
    }
}

#[cfg(test)]
#[path = "packing_tests.rs"]
mod tests;

//! [`TokenFeed`]: samples that a sampler draws, collated by a loader and copied to the device.

use std::sync::Arc;

use super::prepared::{Prepared, finish, on_device};
use super::{BatchIterator, Feed};
use crate::common::DeviceId;
use crate::common::refusal::refuse;
use crate::data::corpus::Corpus;
use crate::data::statistics::texts;
use crate::data::task::{Exam, Problem};
use crate::data::{
    Collator, DataError, Dataset, Draws, Loader, Packed, Part, Position, Prompted, Prompts, Sampler,
    SamplerConfig, Samples, SamplingPlan, Share, Standard, Tokenize, Tokenizer,
};
use crate::device::Staging;
use crate::measure::{Load, Texts};
use crate::model::language::LmBatch;
use crate::recipe::Cell;

/// Most widths of batches that a device prepares for besides the largest: more find few new kernels.
const MOST_WIDTHS: usize = 32;

/// Micro-batches of tokens. The last step of an epoch of samples may have fewer of them.
pub struct TokenFeed {
    train: Batches,
    /// For samples `None` until the first step, so that loading ahead cannot hide time before it. For blocks it is there
    /// from the start: their order is made before memory is counted.
    loader: Option<Loader<Prepared>>,
    /// After the batches taken so far.
    position: Position,
    tokenizer: Option<Tokenizer>,
    exam: Option<Exam>,
    prompts: Option<Prompts>,
    /// Test sets whose answers are classes.
    classified: Vec<(&'static str, Batches)>,
    /// `None` without evaluation.
    held_out: Option<(Batches, Draws)>,
    accumulation_steps: usize,
    device: DeviceId,
    staging: Staging,
    loads: Vec<Load>,
}

/// A text and the batches made of it.
struct Batches {
    plan: SamplingPlan,
    collator: Arc<Collator>,
}

impl Batches {
    fn open(
        cell: &Cell,
        data: &Dataset,
        part: Part,
        config: SamplerConfig,
        share: Share,
    ) -> Result<Self, DataError> {
        let samples = data.samples(part, &config, cell.train.seq_len)?;
        Ok(Self::of(cell, samples, config, share))
    }

    fn of(cell: &Cell, samples: Samples, mut config: SamplerConfig, share: Share) -> Self {
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
    fn held_out(cell: &Cell, data: &Dataset, trained: SamplerConfig) -> Result<(Self, Draws), DataError> {
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
    fn tokens(&self) -> u64 {
        self.plan.lengths.iter().map(|length| u64::from(*length)).sum()
    }

    fn loader(&self, start: Position, device: DeviceId) -> Loader<Prepared> {
        Loader::new(&self.plan, &self.collator, start, finish(device))
    }

    /// A batch that does not count as seen.
    fn alone(&self, samples: &[u32], device: DeviceId) -> LmBatch {
        on_device(self.collator.collate(samples).unwrap_or_else(|e| refuse(e)), device)
    }
}

impl TokenFeed {
    /// `share`: the part of each training batch.
    ///
    /// # Errors
    /// When the corpus or the tokenizer cannot be used.
    pub fn open(cell: &Cell, share: Share) -> Result<Self, DataError> {
        let (device, config) = (cell.device_id(), cell.data.sampler());
        let vocab = cell.model.vocab_size().expect("a language model");
        let data = Dataset::open(&cell.data, cell.task.as_ref(), u64::from(cell.seed), vocab)?;
        let train = Batches::open(cell, &data, Part::Train, config, share)?;
        Ok(Self {
            loader: (!config.sampler.keeps_samples()).then(|| train.loader(Position::default(), device)),
            position: Position::default(),
            train,
            held_out: cell.eval.map(|_| Batches::held_out(cell, &data, config)).transpose()?,
            exam: exam(cell, &data)?,
            prompts: prompts(cell, &data)?,
            classified: classified(cell, &data)?,
            tokenizer: match data {
                Dataset::Random { .. } => None,
                Dataset::Text(text) => Some(text.tokenizer),
            },
            accumulation_steps: cell.train.accumulation_steps,
            device,
            staging: device.staging(config.pinned),
            loads: Vec::new(),
        })
    }
}

/// The token that a target begins with, of an encoder and a decoder.
fn start(cell: &Cell) -> Option<u32> {
    cell.model.language()?.architecture().encoder.map(|encoder| encoder.start)
}

/// The test sets of a task with classes: one of the training distribution, and the published one of another.
fn classified(cell: &Cell, data: &Dataset) -> Result<Vec<(&'static str, Batches)>, DataError> {
    let Dataset::Text(text) = data else { return Ok(Vec::new()) };
    let (Some(_), Corpus::Task(problems)) = (cell.classes(), &text.corpus) else { return Ok(Vec::new()) };
    let config = SamplerConfig::of(Sampler::Standard(Standard {}));
    let batches = |(name, problems): (&'static str, &[Problem])| {
        let texts: Vec<Prompted> = problems.iter().map(|problem| problem.text.clone()).collect();
        let samples = Samples::classified(&texts, &text.tokenizer, cell.train.seq_len)?;
        Ok((name, Batches::of(cell, samples, config, Share::WHOLE)))
    };
    let published = problems.published.as_ref().map(|(name, problems)| (*name, problems.as_slice()));
    let own = ("in distribution", problems.test.as_slice());
    std::iter::once(own).chain(published).map(batches).collect()
}

/// The prompts of the recipe that the model continues.
fn prompts(cell: &Cell, data: &Dataset) -> Result<Option<Prompts>, DataError> {
    let (Some(generate), Dataset::Text(text)) = (&cell.generate, data) else { return Ok(None) };
    let context = cell.positions().saturating_sub(cell.tuning().virtual_count());
    let template = generate.chat.unwrap_or(false).then(|| text.chats.template()).transpose()?;
    Prompts::new(generate, (&text.tokenizer, template), u64::from(cell.seed), context).map(Some)
}

/// The questions of the recipe's task.
fn exam(cell: &Cell, data: &Dataset) -> Result<Option<Exam>, DataError> {
    let task = cell.task.as_ref().filter(|task| task.evaluate_generation.is_some());
    let (Some(task), Dataset::Text(text)) = (task, data) else { return Ok(None) };
    let Corpus::Task(problems) = &text.corpus else { return Ok(None) };
    let context = cell.positions().saturating_sub(cell.tuning().virtual_count());
    let template = problems.are_chats.then(|| text.chats.template()).transpose()?;
    let reads = (&text.tokenizer, template);
    Exam::new(task, problems, reads, u64::from(cell.seed), context).map(Some)
}

/// Weighs micro-batches so that their losses add up to the mean over the step's real tokens. A step of samples that predict
/// nothing has a loss of 0.
fn weigh(mut batches: Vec<LmBatch>) -> Vec<LmBatch> {
    let total = batches.iter().map(|batch| batch.total).sum::<f64>().max(1.0);
    batches.iter_mut().for_each(|batch| batch.total = total);
    batches
}

impl Feed<LmBatch> for TokenFeed {
    fn next(&mut self) -> Vec<LmBatch> {
        let loader = self.loader.get_or_insert_with(|| self.train.loader(self.position, self.device));
        let (mut batches, mut load) = (Vec::with_capacity(self.accumulation_steps), Load::default());
        for _ in 0..self.accumulation_steps {
            let loaded = loader.load().unwrap_or_else(|e| refuse(e));
            load.stall += loaded.stall;
            load.counts += loaded.batch.counts;
            batches.push(loaded.batch.upload(&mut self.staging));
            self.position = loaded.next;
            if self.position.begins_epoch() {
                break;
            }
        }
        self.loads.push(load);
        weigh(batches)
    }

    fn held_out(&mut self) -> Option<LmBatch> {
        let (source, draws) = self.held_out.as_mut()?;
        let draw = draws.next()?;
        Some(source.alone(&draw.samples, self.device))
    }

    fn held_out_tokens(&self) -> Option<u64> {
        self.held_out.as_ref().map(|(source, _)| source.tokens())
    }

    fn rehearsals(&mut self) -> Vec<Vec<LmBatch>> {
        let Batches { plan, .. } = &self.train;
        let step = |samples: Vec<u32>| {
            let batch = self.train.alone(&samples, self.device);
            weigh(vec![batch; self.accumulation_steps])
        };
        let others = plan.others();
        let apart = others.len().div_ceil(MOST_WIDTHS).max(1);
        std::iter::once(plan.largest()).chain(others.into_iter().step_by(apart)).map(step).collect()
    }

    fn largest(&self) -> Option<[usize; 2]> {
        let Batches { plan, collator } = &self.train;
        let samples = plan.largest();
        if collator.start.is_some() {
            let batch = collator.collate(&samples).unwrap_or_else(|e| refuse(e));
            return Some([batch.rows, batch.longest()]);
        }
        Some(match plan.config.sampler.is_packed() {
            true => [plan.batch_size, plan.max_length],
            false => [samples.len(), plan.width(&samples)],
        })
    }

    fn texts(&self) -> Option<Texts> {
        let Batches { plan, collator } = &self.train;
        let classes = !self.classified.is_empty();
        let made = texts(&collator.samples, self.tokenizer.as_ref()?, plan.max_length, classes);
        Some(made.unwrap_or_else(|e| refuse(e)))
    }

    fn of_epochs(&self, epochs: usize) -> Option<usize> {
        Some(self.train.plan.steps(epochs, self.accumulation_steps))
    }

    fn reserve(&mut self, steps: usize) {
        self.loads.reserve(steps);
    }

    fn position(&self) -> Position {
        self.position
    }

    fn resume(&mut self, start: Position, loads: Vec<Load>) {
        (self.position, self.loads) = (start, loads);
        self.loader = self.loader.is_some().then(|| self.train.loader(start, self.device));
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    fn exam(&self) -> Option<&Exam> {
        self.exam.as_ref()
    }

    fn prompts(&self) -> Option<&Prompts> {
        self.prompts.as_ref()
    }

    fn classified(&self) -> Vec<(&'static str, BatchIterator<'_, LmBatch>)> {
        fn batches(batches: &Batches, device: DeviceId) -> BatchIterator<'_, LmBatch> {
            let (all, size) = (batches.plan.lengths.len(), batches.plan.batch_size);
            Box::new((0..all).step_by(size).map(move |first| {
                let samples: Vec<u32> = (first as u32..(first + size).min(all) as u32).collect();
                batches.alone(&samples, device)
            }))
        }
        self.classified.iter().map(|(name, of)| (*name, batches(of, self.device))).collect()
    }

    fn loads(&self) -> &[Load] {
        &self.loads
    }
}

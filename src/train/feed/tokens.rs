//! [`TokenFeed`]: samples that a sampler draws, collated by a loader and copied to the device.

use super::batches::Batches;
use super::prepared::Prepared;
use super::{BatchIterator, Feed};
use crate::common::DeviceId;
use crate::common::refusal::refuse;
use crate::data::corpus::Corpus;
use crate::data::statistics::texts;
use crate::data::task::{Exam, Problem};
use crate::data::{
    DataError, Dataset, Draws, Loader, Part, Position, Prompted, Prompts, Sampler, SamplerConfig, Samples,
    Share, Standard, Stream, Tokenizer,
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
    /// For samples, and for a stream, `None` until the first step, so that loading ahead cannot hide time before it. For blocks
    /// it is there from the start: their order is made before memory is counted.
    loader: Option<Loader<Prepared>>,
    /// The text behind the first buffer of samples, which are those of `train`, until the loader has it; `None` where these
    /// are all.
    stream: Option<Stream>,
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

impl TokenFeed {
    /// `share`: the part of each training batch.
    ///
    /// # Errors
    /// When the corpus or the tokenizer cannot be used.
    pub fn open(cell: &Cell, share: Share) -> Result<Self, DataError> {
        let (device, config) = (cell.device_id(), cell.data.sampler());
        let vocab = cell.model.vocab_size().expect("a language model");
        let data = Dataset::open(&cell.data, cell.task.as_ref(), u64::from(cell.seed), vocab)?;
        let mut stream = data.stream(&config, cell.train.seq_len, u64::from(cell.seed));
        let train = match stream.as_mut().and_then(Stream::next) {
            Some(samples) => Batches::of(cell, samples?, config, share),
            None => Batches::open(cell, &data, Part::Train, config, share)?,
        };
        let is_early = stream.is_none() && !config.sampler.keeps_samples();
        Ok(Self {
            loader: is_early.then(|| train.loader(Position::default(), device)),
            stream,
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
        let loader = self.loader.get_or_insert_with(|| match self.stream.take() {
            None => self.train.loader(self.position, self.device),
            Some(stream) => self.train.streamed(stream, self.position, self.device),
        });
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

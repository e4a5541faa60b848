//! Training a language model: its batches from a data set, and evaluation on text it has not seen.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use super::samples::SampleFeed;
use super::{Computation, Gpt2, LanguageNetwork, Llama, LmBatch, Tokens, source};
use crate::data::{Batches, Dataset, Position};
use crate::measure::Evaluation;
use crate::model::generate::correct;
use crate::model::{Model, Network, Steps};
use crate::offload::{Blocks, Placement};
use crate::recipe::Cell;

/// Rows of logits that evaluation makes at a time: 512 x 152k in fp32 are 311 MB.
const ROWS: usize = 512;

impl Network for Llama {
    type Batch = LmBatch;

    fn init(cell: &Cell, _device: &Device) -> Self {
        let (Model::Qwen2(model) | Model::Llama(model)) = &cell.model else {
            unreachable!("checked by kind")
        };
        let source = source(cell, &model.weights, &model.config.tensors());
        Self::new(
            &model.config,
            cell.train.seq_len,
            &source,
            Computation::of(cell),
            Some(Placement::of(cell)),
        )
    }

    fn steps(cell: &Cell, device: &Device) -> Box<dyn Steps<LmBatch>> {
        steps(cell, device)
    }

    fn offloaded(&self) -> Option<&Blocks> {
        LanguageNetwork::offloaded(self)
    }

    fn loss(&self, batch: &LmBatch) -> Tensor<1> {
        LanguageNetwork::loss(self, batch)
    }

    fn evaluate(&self, batch: &LmBatch) -> Evaluation {
        evaluate(self, batch)
    }
}

impl Network for Gpt2 {
    type Batch = LmBatch;

    fn init(cell: &Cell, _device: &Device) -> Self {
        let Model::Gpt2(model) = &cell.model else { unreachable!("checked by kind") };
        let source = source(cell, &model.weights, &model.config.tensors());
        Self::new(
            &model.config,
            cell.train.seq_len,
            &source,
            Computation::of(cell),
            Some(Placement::of(cell)),
        )
    }

    fn steps(cell: &Cell, device: &Device) -> Box<dyn Steps<LmBatch>> {
        steps(cell, device)
    }

    fn offloaded(&self) -> Option<&Blocks> {
        LanguageNetwork::offloaded(self)
    }

    fn loss(&self, batch: &LmBatch) -> Tensor<1> {
        LanguageNetwork::loss(self, batch)
    }

    fn evaluate(&self, batch: &LmBatch) -> Evaluation {
        evaluate(self, batch)
    }
}

fn steps(cell: &Cell, device: &Device) -> Box<dyn Steps<LmBatch>> {
    match cell.data.sampler() {
        None => Box::new(Feed::open(cell, device)),
        Some(_) => Box::new(SampleFeed::open(cell, device)),
    }
}

/// Mean loss and accuracy over the batch's counted tokens, on a network outside of autodiff.
fn evaluate<N: LanguageNetwork>(network: &N, batch: &LmBatch) -> Evaluation {
    let loss: f32 = LanguageNetwork::loss(network, batch).into_scalar();
    let labels: Vec<i32> = batch.labels.to_data().iter::<i32>().collect();
    let hidden = network.hidden(&batch.tokens, None);
    let right = correct(network, hidden, &labels, ROWS);
    Evaluation {
        loss: f64::from(loss),
        accuracy: right as f64 / batch.total.max(1.0),
        ..Evaluation::default()
    }
}

/// Micro-batches of a data set's blocks, each token's label the token after it.
struct Feed {
    train: Batches,
    eval: Batches,
    batch_size: usize,
    accumulation_steps: usize,
    device: Device,
}

impl Feed {
    /// # Panics
    /// When the corpus or the tokenizer cannot be used; the row then says why.
    fn open(cell: &Cell, device: &Device) -> Self {
        let seed = u64::from(cell.seed);
        let vocab = cell.model.vocab_size().expect("a language model");
        let open = || {
            let data = Dataset::open(&cell.data, seed, vocab)?;
            Ok::<_, crate::data::DataError>((
                data.train_blocks(cell.train.seq_len)?,
                data.eval_blocks(cell.train.seq_len)?,
            ))
        };
        let (train, eval) = open().unwrap_or_else(|e| panic!("{e}"));
        let batches = |blocks| {
            Batches::new(Arc::new(blocks), cell.train.batch_size, seed, Position { epoch: 0, index: 0 })
        };
        Self {
            train: batches(train),
            eval: batches(eval),
            batch_size: cell.train.batch_size,
            accumulation_steps: cell.train.accumulation_steps,
            device: device.clone(),
        }
    }

    fn batch(&self, ids: &[u32]) -> LmBatch {
        let labels: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
        LmBatch::new(Tokens::new(ids, self.batch_size, &self.device), &labels)
    }
}

impl Steps<LmBatch> for Feed {
    fn next(&mut self) -> Vec<LmBatch> {
        let ids: Vec<Vec<u32>> = (&mut self.train).take(self.accumulation_steps).collect();
        let mut batches: Vec<LmBatch> = ids.iter().map(|ids| self.batch(ids)).collect();
        let total = batches.iter().map(|batch| batch.total).sum();
        batches.iter_mut().for_each(|batch| batch.total = total);
        batches
    }

    fn held_out(&mut self) -> Option<LmBatch> {
        let ids = self.eval.next()?;
        Some(self.batch(&ids))
    }
}

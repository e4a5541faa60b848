//! Training a language model: its batches from a data set, and evaluation on text it has not seen.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use super::samples::SampleFeed;
use super::{Computation, Gpt2, LanguageNetwork, Llama, LmBatch, Tokens, source};
use crate::data::{Batches, DataError, Dataset, Position};
use crate::measure::Evaluation;
use crate::model::{Model, Network, Steps};
use crate::ops::cross_entropy;
use crate::recipe::Cell;
use crate::residence::{Blocks, Placement};
use crate::words::refusal::refuse;

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
    let hidden = network.hidden(&batch.tokens, None).inner();
    let head = network.head().val().inner();
    let sums = cross_entropy::evaluate(hidden, head, &batch.labels, network.computation().arithmetic);
    let [loss, right]: [f64; 2] =
        sums.into_data().iter::<f64>().collect::<Vec<_>>().try_into().expect("two sums");
    let total = batch.total.max(1.0);
    Evaluation { loss: loss / total, accuracy: right / total, ..Evaluation::default() }
}

/// Micro-batches of a data set's blocks, each token's label the token after it.
struct Feed {
    train: Batches,
    /// `None` where nothing is evaluated.
    eval: Option<Batches>,
    batch_size: usize,
    accumulation_steps: usize,
    device: Device,
}

impl Feed {
    /// A corpus or a tokenizer that cannot be used ends the cell.
    fn open(cell: &Cell, device: &Device) -> Self {
        let seed = u64::from(cell.seed);
        let vocab = cell.model.vocab_size().expect("a language model");
        let open = || {
            let data = Dataset::open(&cell.data, seed, vocab)?;
            let eval = cell.eval.map(|_| data.eval_blocks(cell.train.seq_len)).transpose()?;
            Ok::<_, DataError>((data.train_blocks(cell.train.seq_len)?, eval))
        };
        let (train, eval) = open().unwrap_or_else(|e| refuse(e));
        let batches = |blocks| {
            Batches::new(Arc::new(blocks), cell.train.batch_size, seed, Position { epoch: 0, index: 0 })
        };
        Self {
            train: batches(train),
            eval: eval.map(batches),
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
        let ids = self.eval.as_mut()?.next()?;
        Some(self.batch(&ids))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use burn::tensor::DType;

    use super::*;
    use crate::device::DeviceId;
    use crate::model::config::{Architecture, from_hugging_face};
    use crate::ops::dense::Arithmetic;
    use crate::ops::testing::assert_close;
    use crate::ops::{Level, Ops};
    use crate::params::WeightsFrom;
    use crate::params::named;
    use crate::params::source::Source;
    use crate::words::Compute;

    /// Micro-batches with 20, 3 and 11 labels that count add up to the loss and gradients of one batch of
    /// all sequences: a mean of means would not.
    #[test]
    fn micro_batches_with_unequal_labels_equal_one_batch() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen2");
        let Architecture::Qwen2(config) = from_hugging_face(&folder).unwrap() else { panic!("a qwen2") };
        let source =
            Source::open(&WeightsFrom::Folder(folder), &config.tensors(), DeviceId::Cpu, DType::F32).unwrap();
        let arithmetic = Arithmetic::of(Compute::Fp32);
        let computation = Computation { arithmetic, ops: Ops::default(), level: Level::Keep };
        let network = Llama::new(&config, 64, &source, computation, None);
        let device = DeviceId::Cpu.burn();
        let counted = [20, 3, 11];
        let ids: Vec<u32> = (0..72).map(|i| i * 37 % config.vocab_size as u32).collect();
        // The first label of a sequence is no token's next one.
        let label = |(i, id): (usize, &u32)| {
            if (1..=counted[i / 24]).contains(&(i % 24)) { i64::from(*id) } else { -100 }
        };
        let labels: Vec<i64> = ids.iter().enumerate().map(label).collect();
        let whole = LmBatch::new(Tokens::new(&ids, 3, &device), &labels);
        assert_eq!(whole.total, 34.0);

        let loss = LanguageNetwork::loss(&network, &whole);
        let value = loss.clone().into_scalar::<f32>();
        let expected = named::gradients(&network, &loss.backward());
        let mut losses = 0.0;
        let mut sums: Vec<Vec<f64>> = expected.iter().map(|(_, values)| vec![0.0; values.len()]).collect();
        for (ids, labels) in ids.chunks(24).zip(labels.chunks(24)) {
            let part = LmBatch { total: whole.total, ..LmBatch::new(Tokens::new(ids, 1, &device), labels) };
            let loss = LanguageNetwork::loss(&network, &part);
            losses += loss.clone().into_scalar::<f32>();
            for (sum, (_, values)) in sums.iter_mut().zip(named::gradients(&network, &loss.backward())) {
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
        }
        assert!((losses - value).abs() < 1e-6 * value, "{losses} {value}");
        for (sum, (_, expected)) in sums.iter().zip(&expected) {
            assert_close(sum, expected, 1e-5);
        }
    }
}

//! Training a language model: the loss of a batch, and evaluation on text it has not seen.

use burn::tensor::Tensor;

use super::{Computation, LanguageNetwork, LmBatch};
use crate::measure::Evaluation;
use crate::model::Network;
use crate::ops::autocast::weight;
use crate::ops::cross_entropy::{self, linear_cross_entropy};
use crate::residence::Blocks;

impl<N: LanguageNetwork> Network for N {
    type Batch = LmBatch;

    /// The sum of the tokens' losses over the step's total: the mean where the step is this batch.
    fn loss(&self, batch: &LmBatch) -> Tensor<1> {
        let Computation { arithmetic, ops, .. } = *self.computation();
        let hidden = self.hidden(&batch.tokens, None);
        let head = weight(self.head());
        linear_cross_entropy(hidden, head, &batch.labels, batch.total, arithmetic, ops.loss)
    }

    fn offloaded(&self) -> Option<&Blocks> {
        LanguageNetwork::offloaded(self)
    }

    /// Mean loss and accuracy over the batch's counted tokens.
    fn evaluate(&self, batch: &LmBatch) -> Evaluation {
        let hidden = self.hidden(&batch.tokens, None).inner();
        let head = self.head().val().inner();
        let sums = cross_entropy::evaluate(hidden, head, &batch.labels, self.computation().arithmetic);
        let [loss, right]: [f64; 2] =
            sums.into_data().iter::<f64>().collect::<Vec<_>>().try_into().expect("two sums");
        let total = batch.total.max(1.0);
        Evaluation { loss: loss / total, accuracy: right / total, ..Evaluation::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use burn::tensor::DType;

    use super::super::{Llama, Tokens};
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

        let loss = network.loss(&whole);
        let value = loss.clone().into_scalar::<f32>();
        let expected = named::gradients(&network, &loss.backward());
        let mut losses = 0.0;
        let mut sums: Vec<Vec<f64>> = expected.iter().map(|(_, values)| vec![0.0; values.len()]).collect();
        for (ids, labels) in ids.chunks(24).zip(labels.chunks(24)) {
            let part = LmBatch { total: whole.total, ..LmBatch::new(Tokens::new(ids, 1, &device), labels) };
            let loss = network.loss(&part);
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

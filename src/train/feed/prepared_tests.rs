//! Neither packing nor accumulation changes anything: each sample's loss and gradients are what they are alone.

use std::path::Path;

use burn::tensor::DType;

use super::on_device;
use crate::common::{Compute, DeviceId};
use crate::data::{
    Collated, Collator, Packed, Sampler, SamplerConfig, Samples, Share, Standard, Tokenize, Tokenizer,
};
use crate::device::drawing;
use crate::model::Model;
use crate::model::config::{LanguageModel, from_hugging_face};
use crate::model::language::{Computation, Decoder, LmBatch};
use crate::model::{Network, Parts};
use crate::ops::dense::Arithmetic;
use crate::ops::testing::assert_close;
use crate::ops::{Checkpoint, Operator, Ops};
use crate::optim::GradientSet;
use crate::params::named;
use crate::params::table::Tuning;

const MAX_LENGTH: usize = 48;

/// No letter is in two of them; the last is longer than [`MAX_LENGTH`].
fn texts() -> Vec<String> {
    ["abcab", "defghdefghijkldefgh", "mno", "pqrstu", "vwxyz"]
        .into_iter()
        .zip([3, 2, 1, 4, 20])
        .map(|(letters, times)| letters.repeat(times))
        .collect()
}

fn collate(sampler: Sampler, samples: &[u32]) -> Collated {
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let config = SamplerConfig::of(sampler);
    let samples_of = Samples::new(texts(), &tokenizer, MAX_LENGTH, Tokenize::Once).unwrap();
    let collator = Collator {
        start: None,
        samples: samples_of,
        config,
        batch_size: 4,
        max_length: MAX_LENGTH,
        virtual_tokens: None,
        share: Share::WHOLE,
    };
    collator.collate(samples).unwrap()
}

fn batch(collated: Collated) -> LmBatch {
    on_device(collated, DeviceId::Cpu)
}

/// The packed batch, with the labels of one sample alone.
fn packed(only: i32) -> LmBatch {
    let mut collated = collate(Sampler::Packed(Packed::default()), &[0, 1, 2, 3, 4]);
    let lengths = collated.segments.as_ref().unwrap().lengths.clone();
    let numbers = (0..).zip(lengths).flat_map(|(number, length)| std::iter::repeat_n(number, length));
    for (label, number) in collated.labels.iter_mut().zip(numbers) {
        *label = if number == only { *label } else { -100 };
    }
    batch(collated)
}

/// Loss of a batch and the gradients of all parameters.
fn results(network: &Decoder, batch: &LmBatch) -> (f64, named::Named) {
    let loss = network.loss(batch);
    let value = f64::from(loss.clone().into_scalar::<f32>());
    (value, named::gradients(network, network.parameters(), &GradientSet::of(network, loss.backward())))
}

fn check(network: &Decoder) {
    for sample in 0..texts().len() as u32 {
        let alone = batch(collate(Sampler::Standard(Standard {}), &[sample]));
        let (alone, gradients) = results(network, &alone);
        // Beside a longer sample it is padded.
        let mut padded = collate(Sampler::Standard(Standard {}), &[4, sample]);
        let width = padded.width;
        padded.labels[..width].fill(-100);
        let (padded, _) = results(network, &batch(padded));
        let (packed, of_packed) = results(network, &packed(sample as i32));
        assert!((packed - alone).abs() < 1e-5 && (padded - alone).abs() < 1e-5, "{packed} {padded} {alone}");
        assert_eq!(gradients.len(), of_packed.len());
        for ((name, alone), (_, packed)) in gradients.iter().zip(&of_packed) {
            // Nothing but rounding reaches a key's bias: softmax does not see it.
            if alone.iter().any(|g| g.abs() > 1e-6) {
                assert_close(packed, alone, 1e-4);
            }
            if name.contains("wte") || name.contains("embed_tokens") {
                foreign_rows_are_zero(packed, sample as usize);
            }
        }
    }
}

/// The gradient of an input embedding has rows for the sample's own tokens alone.
fn foreign_rows_are_zero(gradient: &[f64], sample: usize) {
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let columns = gradient.len() / 512;
    for (other, text) in texts().iter().enumerate() {
        for id in tokenizer.encode(text).unwrap() {
            let row = &gradient[id as usize * columns..][..columns];
            let any = row.iter().any(|g| *g != 0.0);
            assert!(other == sample || !any, "a gradient of sample {sample} reached sample {other}");
        }
    }
    assert!(gradient.iter().any(|g| *g != 0.0));
}

/// A fixture's with random weights and this for a head.
fn model(kind: &str, tied: bool) -> LanguageModel {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind);
    let mut section = serde_json::to_value(from_hugging_face(&folder).unwrap()).unwrap();
    section[kind]["weights"] = "random".into();
    section[kind]["tie_word_embeddings"] = tied.into();
    let Ok(Model::Language(model)) = serde_json::from_value(section) else { panic!("no language model") };
    model
}

fn computation(attention: Operator) -> Computation {
    let ops = Ops { attention, ..Ops::default() };
    Computation::new(Arithmetic::of(Compute::Fp32), ops, Checkpoint::default())
}

fn network(model: &LanguageModel, attention: Operator) -> Decoder {
    let _drawing = drawing();
    let source = model.source(DeviceId::Cpu, DType::F32, &Tuning::default()).unwrap();
    model.network(MAX_LENGTH, &source, computation(attention), (None, None), Parts::Whole)
}

#[test]
fn packing_changes_nothing_of_gpt2() {
    // A tied embedding gets gradients from the head too.
    let model = model("gpt2", false);
    for operator in [Operator::Custom, Operator::Plain] {
        check(&network(&model, operator));
    }
}

#[test]
fn packing_changes_nothing_of_qwen2() {
    let model = model("qwen2", false);
    check(&network(&model, Operator::Custom));
}

/// Micro-batches with 20, 3 and 11 labels that count add up to the loss and gradients of one batch of
/// all sequences: a mean of means would not.
#[test]
fn micro_batches_with_unequal_labels_equal_one_batch() {
    let model = model("qwen2", true);
    let network = network(&model, Operator::Custom);
    let counted = [20, 3, 11];
    let ids: Vec<i32> = (0..72).map(|i| i * 37 % model.config.vocab_size() as i32).collect();
    // The first label of a sequence is no token's next one.
    let label = |(i, id): (usize, &i32)| if (1..=counted[i / 24]).contains(&(i % 24)) { *id } else { -100 };
    let labels: Vec<i32> = ids.iter().enumerate().map(label).collect();
    let whole = batch(Collated::of_rows(ids.clone(), &labels, 3));
    assert_eq!(whole.total, 34.0);

    let loss = network.loss(&whole);
    let value = loss.clone().into_scalar::<f32>();
    let expected =
        named::gradients(&network, network.parameters(), &GradientSet::of(&network, loss.backward()));
    let mut losses = 0.0;
    let mut sums: Vec<Vec<f64>> = expected.iter().map(|(_, values)| vec![0.0; values.len()]).collect();
    for (ids, labels) in ids.chunks(24).zip(labels.chunks(24)) {
        let part = LmBatch { total: whole.total, ..batch(Collated::of_rows(ids.to_vec(), labels, 1)) };
        let loss = network.loss(&part);
        losses += loss.clone().into_scalar::<f32>();
        for (sum, (_, values)) in sums.iter_mut().zip(named::gradients(
            &network,
            network.parameters(),
            &GradientSet::of(&network, loss.backward()),
        )) {
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    assert!((losses - value).abs() < 1e-6 * value, "{losses} {value}");
    for (sum, (_, expected)) in sums.iter().zip(&expected) {
        assert_close(sum, expected, 1e-5);
    }
}

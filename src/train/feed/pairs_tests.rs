//! A batch of sources and targets has the sums of its samples alone, however they are padded, divided and computed again.

use std::path::Path;

use burn::tensor::DType;
use serde_json::json;

use super::on_device;
use crate::common::{Compute, DeviceId};
use crate::data::{
    Collated, Collator, Prompted, Sampler, SamplerConfig, Samples, Share, Standard, Tokenize, Tokenizer,
};
use crate::device::drawing;
use crate::model::config::{LanguageModel, from_hugging_face};
use crate::model::language::{Computation, Decoder, LmBatch};
use crate::model::{Model, Network, Parts};
use crate::ops::dense::Arithmetic;
use crate::ops::testing::assert_close;
use crate::ops::{Checkpoint, Operator, Ops};
use crate::optim::GradientSet;
use crate::params::named;
use crate::params::table::Tuning;

const MAX_LENGTH: usize = 23;

/// Prompts and completions of other lengths; the last is cut.
fn collate(samples: &[u32], share: Share) -> Collated {
    let text =
        |[prompt, completion]: [&str; 2]| Prompted { prompt: prompt.into(), completion: completion.into() };
    let texts =
        [["abcabcabcd", "xyz"], ["e", "fghijklmnop"], ["qrstu", "v"], ["aaabbb", "cdefghijklmnopqrstuvwxyz"]];
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let collator = Collator {
        start: Some(3),
        samples: Samples::prompted(texts.map(text).to_vec(), &tokenizer, MAX_LENGTH, Tokenize::Once).unwrap(),
        config: SamplerConfig::of(Sampler::Standard(Standard {})),
        batch_size: 4,
        max_length: MAX_LENGTH,
        virtual_tokens: None,
        share,
    };
    collator.collate(samples).unwrap()
}

/// A fixture's sizes with random weights whose scores differ.
fn network(fixture: &str, (attention, blocks): (Operator, usize)) -> Decoder {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families").join(fixture);
    let mut section = serde_json::to_value(from_hugging_face(&folder).unwrap()).unwrap();
    for (key, value) in
        [("weights", json!("random")), ("vocab_size", json!(300)), ("initializer_range", json!(0.3))]
    {
        section["t5"][key] = value;
    }
    let Ok(Model::Language(model)) = serde_json::from_value(section) else { panic!("no language model") };
    let model: LanguageModel = model;
    let checkpoint = Checkpoint { blocks, ..Checkpoint::default() };
    let ops = Ops { attention, ..Ops::default() };
    let computation = Computation::new(Arithmetic::of(Compute::Fp32), ops, checkpoint);
    let _drawing = drawing();
    let source = model.source(DeviceId::Cpu, DType::F32, &Tuning::default()).unwrap();
    model.network(MAX_LENGTH, &source, computation, (None, None), Parts::Whole)
}

/// The sum of the losses of a batch's tokens, and the gradients of all parameters.
fn sums(network: &Decoder, batch: Collated) -> (f64, named::Named) {
    let batch = LmBatch { total: 1.0, ..on_device(batch, DeviceId::Cpu) };
    let loss = network.loss(&batch);
    let value = f64::from(loss.clone().into_scalar::<f32>());
    (value, named::gradients(network, network.parameters(), &GradientSet::of(network, loss.backward())))
}

fn check(network: &Decoder, parts: Vec<Collated>) {
    let (loss, expected) = sums(network, collate(&[0, 1, 2, 3], Share::WHOLE));
    let parts: Vec<_> = parts.into_iter().map(|part| sums(network, part)).collect();
    let of_parts: f64 = parts.iter().map(|(loss, _)| loss).sum();
    assert!((loss - of_parts).abs() < 1e-5 * loss, "{loss} and {of_parts}");
    assert!(
        expected.iter().all(|(_, values)| values.iter().any(|g| g.abs() > 1e-6)),
        "every parameter is trained"
    );
    for (i, (name, whole)) in expected.iter().enumerate() {
        let sum = |place: usize| parts.iter().map(|(_, gradients)| gradients[i].1[place]).sum();
        let sum: Vec<f64> = (0..whole.len()).map(sum).collect();
        println!("{name}");
        assert_close(&sum, whole, 1e-4);
    }
}

#[test]
fn a_padded_batch_has_the_sums_of_its_samples_alone() {
    let alone = || (0..4).map(|sample| collate(&[sample], Share::WHOLE)).collect();
    for fixture in ["t5", "t5_gated"] {
        for way in [(Operator::Custom, 0), (Operator::Plain, 0), (Operator::Custom, 2)] {
            check(&network(fixture, way), alone());
        }
    }
}

#[test]
fn shares_have_the_sums_of_the_batch() {
    let shares = (0..3).map(|place| collate(&[0, 1, 2, 3], Share { place, of: 3 })).collect();
    check(&network("t5", (Operator::Custom, 0)), shares);
}

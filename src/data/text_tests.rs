//! What a data set's samples are, and by what their tokens are found again.

use std::collections::HashSet;
use std::path::Path;

use super::super::sampler::{Packed, Position, SamplingPlan};
use super::super::section::Data;
use super::super::{Collator, Dataset, Loader, Reading, Sampler, Share, TextSource, TokenizerSource};
use super::*;

fn config() -> SamplerConfig {
    SamplerConfig::of(Sampler::Packed(Packed::default()))
}

/// Of a file of pairs, with a tokenizer of bytes.
fn open(path: &Path, learn: Learn, reading: Reading, seed: u64) -> Box<TextDataset> {
    let data = Data::Text {
        corpus: TextSource::Path(path.into()),
        reading: Box::new(reading),
        template: None,
        template_variables: None,
        learn,
        tokenizer: TokenizerSource::Train { vocab_size: 257 },
        train_split: Split::Train,
        eval_split: Split::Valid,
        shuffle_buffer: None,
        sampler: config(),
    };
    match Dataset::open(&data, None, seed, 257).unwrap() {
        Dataset::Text(text) => text,
        Dataset::Random { .. } => panic!("it is text"),
    }
}

fn pairs(path: &Path, count: usize) {
    let line = |i: usize| format!("{{\"prompt\": \"{i}?\", \"completion\": \" {}\"}}\n", i * 7);
    std::fs::write(path, (0..count).map(line).collect::<String>()).unwrap();
}

#[test]
fn pairs_learn_their_completions_or_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.jsonl");
    pairs(&path, 3);
    let learned = |learn| {
        let text = open(&path, learn, Reading::default(), 1);
        let samples = text.samples(Split::Train, &config(), 32).unwrap();
        assert_eq!((samples.len(), samples.lengths()), (3, vec![4, 4, 5]));
        let sample = samples.get(2).unwrap();
        assert_eq!(sample.last_label, text.tokenizer.eos());
        sample.tokens.iter().map(|token| token.is_learned()).collect::<Vec<_>>()
    };
    assert_eq!(learned(Learn::Assistant), [false, false, true, true, true]);
    assert_eq!(learned(Learn::All), [true; 5]);
}

/// Whatever changes tokens changes their key, and nothing else does.
#[test]
fn tokens_are_found_by_all_that_decides_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.jsonl");
    pairs(&path, 40);
    let key = |text: &TextDataset, split, unit, joins| text.key(split, unit, joins).unwrap().unwrap().name();
    let train = |text: &TextDataset| key(text, Split::Train, SampleUnit::Documents, false);
    let own = open(&path, Learn::Assistant, Reading::default(), 1);
    let halves = || Reading { held_out: Some(0.5), ..Reading::default() };
    let skips = Reading { skip_broken: true, ..Reading::default() };
    let divided = open(&path, Learn::Assistant, halves(), 1);
    let mut rows = open(&path, Learn::Assistant, Reading::default(), 1);
    rows.tokenizer = rows.tokenizer.of_rows(300);
    let mut keys = vec![
        train(&own),
        key(&own, Split::Train, SampleUnit::Documents, true),
        key(&own, Split::Train, SampleUnit::Paragraphs, false),
        train(&open(&path, Learn::All, Reading::default(), 1)),
        train(&open(&path, Learn::Assistant, skips, 1)),
        train(&divided),
        key(&divided, Split::Valid, SampleUnit::Documents, false),
        train(&open(&path, Learn::Assistant, halves(), 2)),
        train(&rows),
    ];
    assert_eq!(
        train(&open(&path, Learn::Assistant, Reading::default(), 2)),
        keys[0],
        "the seed divides nothing"
    );
    pairs(&path, 41);
    keys.push(train(&open(&path, Learn::Assistant, Reading::default(), 1)));
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{keys:?}");
}

/// `cargo test --release --lib -- --ignored --nocapture packed_tokens_a_second`: a loader thread's packed batches of chats, whose
/// masks change within a sample.
#[test]
#[ignore = "a measurement"]
fn packed_tokens_a_second() {
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let tokens = |i: u32| super::super::record::Tokens {
        ids: (0..200 + i % 400).map(|token| token % 257).collect(),
        learned: (0..200 + i % 400).map(|token| token / 50 % 2 == 1).collect(),
    };
    let mut records = (0..20_000).map(|i| Ok(super::super::record::Record::Tokens(tokens(i))));
    let encoder = Encoder::new(&tokenizer, false);
    let (max_length, batch_size, config) = (1024, 8, config());
    let samples = Samples::records(&mut records, encoder, max_length, Tokenize::Once).unwrap();
    let lengths = Arc::new(samples.lengths());
    let plan = SamplingPlan { config, lengths, batch_size, max_length, seed: 1 };
    let collator = Collator {
        samples,
        config,
        batch_size,
        max_length,
        virtual_tokens: None,
        share: Share::WHOLE,
        start: None,
    };
    let mut loader = Loader::new(&plan, &Arc::new(collator), Position::default(), |batch| batch);
    let start = std::time::Instant::now();
    let counted: u64 = (0..500).map(|_| loader.load().unwrap().batch.counts.tokens).sum();
    println!("{:.0} tokens a second", counted as f64 / start.elapsed().as_secs_f64());
}

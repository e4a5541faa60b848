//! A stream gives all text, and resumes where it was.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::loader::{Loaded, Loader};
use super::super::reader::Reading;
use super::super::{
    Collated, Collator, Packed, Position, Sampler, SamplerConfig, SamplingPlan, Share, Standard, Tokenizer,
};
use super::*;

/// Three files of ten texts each; every letter is a token.
fn corpus(folder: &Path) -> Corpus {
    for file in 0..3 {
        let line = |i: u32| {
            format!("{{\"text\": \"{}\"}}\n", char::from(b'a' + file).to_string().repeat(i as usize + 1))
        };
        std::fs::write(folder.join(format!("{file}.jsonl")), (0..10).map(line).collect::<String>()).unwrap();
    }
    Corpus::open(folder).unwrap().read_by(Reading::default(), 1, [Split::Train, Split::Valid])
}

fn reads(corpus: Corpus, samples: usize, joins: bool) -> Reads {
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    Reads {
        corpus,
        split: Split::Train,
        unit: SampleUnit::Documents,
        encoder: Encoder::new(&tokenizer, joins),
        rows: 257,
        skip_broken: false,
        joins,
        samples,
        max_length: 16,
        seed: 1,
    }
}

/// Samples of a buffer, each by its first token and its length.
fn shown(samples: &Samples) -> Vec<(u32, usize)> {
    (0..samples.len()).map(|i| (samples.get(i).unwrap().tokens[0].id(), samples.length(i))).collect()
}

#[test]
fn a_pass_has_every_sample_once_and_files_in_an_order_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let passes = |seed| {
        let mut stream = Stream::new(Reads { seed, ..reads(corpus(folder.path()), 8, false) });
        let mut pass = || {
            let buffers: Vec<_> = (0..4).map(|_| shown(&stream.next().unwrap().unwrap())).collect();
            assert_eq!(buffers.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 8, 6]);
            buffers.concat()
        };
        (0..6).map(|_| pass()).collect::<Vec<_>>()
    };
    let (first, again, other) = (passes(1), passes(1), passes(2));
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first.iter().any(|pass| *pass != first[0]), "the order of files changes");
    let sorted = |pass: &Vec<_>| {
        let mut sorted = pass.clone();
        sorted.sort_unstable();
        sorted
    };
    let mut all: Vec<_> = sorted(&first[0]);
    all.dedup();
    assert_eq!(all.len(), 30);
    assert!(first.iter().all(|pass| sorted(pass) == all));
}

/// A buffer has no more text than samples of the full length would have.
#[test]
fn long_samples_fill_a_buffer_sooner() {
    let folder = tempfile::tempdir().unwrap();
    let reads = Reads { max_length: 1, ..reads(corpus(folder.path()), 20, false) };
    let buffer = Stream::new(reads).next().unwrap().unwrap();
    // 20 samples of a token have 80 bytes: those of a file with 1 + 2 + … + 10 letters, and of another up to 7.
    assert_eq!(buffer.lengths(), [1; 17]);
}

fn loader(reads: Reads, config: SamplerConfig, start: Position) -> Loader<Collated> {
    let (batch_size, max_length) = (4, reads.max_length);
    let mut stream = Stream::new(reads);
    let samples = stream.next().unwrap().unwrap();
    let lengths = Arc::new(samples.lengths());
    let plan = SamplingPlan { config, lengths, batch_size, max_length, seed: 1 };
    let (start_token, virtual_tokens, share) = (None, None, Share::WHOLE);
    let collator =
        Collator { samples, config, batch_size, max_length, start: start_token, virtual_tokens, share };
    Loader::streamed(&plan, &Arc::new(collator), stream, start, |batch| batch).unwrap()
}

#[test]
fn batches_are_those_of_buffer_after_buffer_and_resume_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let standard = SamplerConfig::of(Sampler::Standard(Standard {}));
    for config in [standard, SamplerConfig::of(Sampler::Packed(Packed::default()))] {
        let from = |num_workers, start| {
            let config = SamplerConfig { num_workers, ..config };
            loader(reads(corpus(folder.path()), 8, false), config, start)
        };
        let take = |mut loader: Loader<Collated>, count| {
            let load = |_| loader.load().map(|Loaded { batch, next, .. }| (batch, next)).unwrap();
            (0..count).map(load).collect::<Vec<_>>()
        };
        let whole = take(from(1, Position::default()), 24);
        assert_eq!(take(from(0, Position::default()), 24), whole);
        for seen in [1, 2, 3, 9, 10] {
            assert_eq!(take(from(1, whole[seen - 1].1), 12), whole[seen..seen + 12], "{seen}");
        }
    }
    // Of the four buffers of a pass the last has six samples, and half of a batch.
    let drops = SamplerConfig { drop_last: true, ..standard };
    let mut loader = loader(reads(corpus(folder.path()), 8, false), drops, Position::default());
    let counts: Vec<_> = (0..8).map(|_| loader.load().unwrap().batch.counts).collect();
    assert!(counts.iter().all(|counts| counts.samples == 4));
    assert_eq!(
        counts.iter().map(|counts| counts.dropped_samples).collect::<Vec<_>>(),
        [0, 0, 0, 0, 0, 0, 2, 0]
    );
}

#[test]
fn joined_text_is_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(reads(corpus(folder.path()), 100, true));
    let blocks = stream.next().unwrap().unwrap();
    // 3 · (1 + 2 + … + 10 letters and 10 ends) in blocks of 16.
    assert_eq!(blocks.lengths(), [16; 12]);
    let mut tokens: BTreeMap<u32, usize> = BTreeMap::new();
    for block in 0..blocks.len() {
        blocks
            .get(block)
            .unwrap()
            .tokens
            .iter()
            .for_each(|token| *tokens.entry(token.id()).or_default() += 1);
    }
    assert_eq!(tokens.len(), 4);
}

#[test]
fn text_that_cannot_be_used_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let short = Reads { max_length: 1000, ..reads(corpus(folder.path()), 8, true) };
    let message = Stream::new(short).next().unwrap().err().unwrap().to_string();
    assert!(message.contains("less than one sequence of 1000"), "{message}");
    let reads = reads(corpus(folder.path()), 8, false);
    std::fs::write(folder.path().join("1.jsonl"), "{\"text\": \"a\"}\n{\"txt\": \"a\"}\n").unwrap();
    let mut stream = Stream::new(reads);
    let message = stream.by_ref().take(9).find_map(Result::err).unwrap().to_string();
    assert!(message.contains("1.jsonl, line 2"), "{message}");
    assert!(stream.next().is_none(), "nothing follows an error");
}

//! How the balanced sampler's work grows with the data set, and how much padding each sampler leaves on a
//! text.
//!
//! ```text
//! cargo run --release --example samplers -- [FOLDER [batch_size [seq_len]]]
//! ```
//! FOLDER is a corpus in WikiText's layout, of whose paragraphs those of the training split are the samples,
//! or of the validation split where there is no other; without one a text is generated.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use runner::data::sampler::BalancedBatchSampler;
use runner::data::{
    Balanced, Collator, Corpus, DataError, Draws, LastSample, Packed, Padded, Position, Sampler,
    SamplerConfig, Samples, SamplingPlan, Share, Split, Standard, Tokenize, Tokenizer,
};
use runner::measure::Counts;

/// Lengths that the samplers of the first table see.
const LONGEST: u32 = 1024;
const VOCAB_SIZE: usize = 8192;

fn main() -> Result<(), DataError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default| {
        arguments.get(place).map_or(default, |text| text.parse().expect("a whole number"))
    };
    scaling();
    padding(arguments.first().map(Path::new), number(1, 16), number(2, 512))
}

/// Seconds and operations of construction and of a draw.
fn scaling() {
    println!("BalancedBatchSampler, k = 16, lengths 1 to {LONGEST}");
    println!("   samples  batch   construction  operations a sample   a draw  operations a draw");
    for (samples, batch_size) in
        [(10_000, 32), (100_000, 32), (1_000_000, 32), (10_000_000, 32), (1_000_000, 128), (1_000_000, 512)]
    {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let lengths: Vec<u32> = (0..samples).map(|_| rng.random_range(1..=LONGEST)).collect();
        let start = Instant::now();
        let mut sampler = BalancedBatchSampler::new(lengths.iter().copied(), batch_size, 16, false, rng);
        let (built, before) = (start.elapsed().as_secs_f64(), sampler.operations());
        let start = Instant::now();
        let draws = sampler.by_ref().take(200).filter(|batch| batch.len() == batch_size).count();
        let drawn = start.elapsed().as_secs_f64() / draws as f64;
        println!(
            "{samples:10} {batch_size:6} {:11.2} ms {:20.3} {:6.2} µs {:18.1}",
            built * 1e3,
            before as f64 / samples as f64,
            drawn * 1e6,
            (sampler.operations() - before) as f64 / draws as f64
        );
    }
}

/// The share of padding among all tokens of an epoch.
fn padding(folder: Option<&Path>, batch_size: usize, max_length: usize) -> Result<(), DataError> {
    let corpus = folder.map_or_else(|| Ok(Corpus::Generated { seed: 42, bytes: 1 << 20 }), Corpus::open)?;
    let split = if corpus.documents(Split::Train).is_ok() { Split::Train } else { Split::Valid };
    let texts = corpus.paragraphs(split)?;
    let tokenizer = Tokenizer::train(&texts, VOCAB_SIZE)?;
    let samples = Samples::new(texts, &tokenizer, max_length, Tokenize::Once)?;
    let lengths = Arc::new(samples.lengths());
    let tokens: u64 = lengths.iter().map(|n| u64::from(*n)).sum();
    println!(
        "\n{} paragraphs of the {} split, {tokens} tokens of {}, at most {max_length} of each; {batch_size} a batch",
        lengths.len(),
        split.into_str(),
        tokenizer.vocab_size()
    );
    println!("sampler          batches  short   padding  dropped samples  cut tokens");
    let balanced = [2, 4, 8, 16, 32]
        .map(|k| (format!("balanced, k={k}"), SamplerConfig::of(Sampler::Balanced(Balanced { k }))));
    let packed = [LastSample::Cut, LastSample::Drop].map(|last_sample| {
        let config = SamplerConfig::of(Sampler::Packed(Packed { last_sample }));
        (format!("packed, {last_sample:?}").to_lowercase(), config)
    });
    let others = [("padded", Sampler::Padded(Padded {})), ("standard", Sampler::Standard(Standard {}))]
        .map(|(name, sampler)| (name.to_string(), SamplerConfig::of(sampler)));
    let config = SamplerConfig::of(Sampler::Padded(Padded {}));
    let share = Share::WHOLE;
    let mut collator =
        Collator { samples, config, batch_size, max_length, virtual_tokens: None, share, start: None };
    for (name, config) in others.into_iter().chain(balanced).chain(packed) {
        collator.config = config;
        let plan = SamplingPlan { config, lengths: lengths.clone(), batch_size, max_length, seed: 42 };
        let (mut batches, mut short, mut counts) = (0, 0, Counts::default());
        for draw in Draws::new(plan, Position::default()) {
            let batch = collator.collate(&draw.samples)?;
            counts += batch.counts;
            counts.dropped_samples += draw.dropped as u64;
            batches += 1;
            short += usize::from(!config.sampler.is_packed() && batch.rows < batch_size);
            if draw.next.begins_epoch() {
                break;
            }
        }
        let share = 100.0 * counts.padding as f64 / (counts.padding + counts.tokens) as f64;
        let Counts { dropped_samples, cut, .. } = counts;
        println!("{name:15} {batches:8} {short:6} {share:7.2} % {dropped_samples:16} {cut:11}");
    }
    Ok(())
}

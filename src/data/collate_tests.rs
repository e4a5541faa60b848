//! Batches by hand: padded, packed, with prompts and with virtual tokens.

use super::super::record::{Record, Tokens};
use super::super::sampler::{Balanced, Packed, Padded, Sampler, Standard};
use super::super::samples::{Encoder, Tokenize};
use super::super::{Prompted, Tokenizer};
use super::*;

/// Samples of 2, 4 and 7 tokens, the last one cut to 5; every letter is a token.
fn collator(sampler: Sampler) -> Collator {
    let texts = ["b", "bcd", "bcdefg"].map(str::to_string).to_vec();
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    Collator {
        start: None,
        samples: Samples::new(texts, &tokenizer, 5, Tokenize::Once).unwrap(),
        config: SamplerConfig { pad_to_multiple_of: 3, ..SamplerConfig::of(sampler) },
        batch_size: 2,
        max_length: 5,
        virtual_tokens: None,
        share: Share::WHOLE,
    }
}

#[test]
fn rows_are_filled_up_and_predict_nothing_there() {
    let collator = collator(Sampler::Standard(Standard {}));
    let batch = collator.collate(&[0, 1]).unwrap();
    let (b, c, d) = (batch.ids[5], batch.ids[6], batch.ids[7]);
    let end = batch.ids[1];
    // The longest has 4 tokens, and 6 would be more than 5.
    assert_eq!((batch.rows, batch.width), (2, 5));
    assert_eq!(batch.ids, [b, end, end, end, end, b, c, d, end, end]);
    assert_eq!(batch.labels, [end, -100, -100, -100, -100, c, d, end, -100, -100]);
    assert_eq!(batch.positions, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    assert_eq!(batch.segments, None);
    let counts = Counts { samples: 2, tokens: 6, padding: 4, squares: 20, ..Counts::default() };
    assert_eq!(batch.counts, counts);
    assert_eq!(batch.counted(), 4);
    assert_eq!(collator.collate(&[0]).unwrap().width, 3);
    let cut = collator.collate(&[2]).unwrap();
    assert_eq!((cut.width, cut.counts.cut, cut.counts.cut_samples, cut.counted()), (5, 2, 1, 4));
    assert_eq!(self::collator(Sampler::Padded(Padded {})).collate(&[0]).unwrap().width, 5);
}

/// Prompts of two, none and four tokens; two tokens to learn behind each, and the end, which is a label alone.
#[test]
fn a_prompt_has_no_labels_however_samples_are_batched() {
    let text = |prompt: &str| Prompted { prompt: prompt.into(), completion: "xy".into() };
    let texts = ["ab", "", "abcd"].map(text).to_vec();
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let collator = |sampler| Collator {
        start: None,
        samples: Samples::prompted(texts.clone(), &tokenizer, 7, Tokenize::Once).unwrap(),
        config: SamplerConfig::of(sampler),
        batch_size: 2,
        max_length: 7,
        virtual_tokens: None,
        share: Share::WHOLE,
    };
    let [x, y] = ["x", "y"].map(|letter| tokenizer.encode(letter).unwrap()[0] as i32);
    let (end, no) = (tokenizer.eos().unwrap() as i32, NO_LABEL);
    let rows = collator(Sampler::Standard(Standard {})).collate(&[0, 1]).unwrap();
    assert_eq!(rows.labels, [no, x, y, end, y, end, no, no]);
    assert_eq!((rows.width, rows.counts.tokens, rows.counts.padding), (4, 6, 2));
    assert_eq!(
        collator(Sampler::Padded(Padded {})).collate(&[0]).unwrap().labels,
        [no, x, y, end, no, no, no]
    );
    let balanced = collator(Sampler::Balanced(Balanced { k: 4 })).collate(&[1]).unwrap();
    assert_eq!(balanced.labels, [y, end]);
    let packed = collator(Sampler::Packed(Packed::default())).collate(&[0, 1, 2]).unwrap();
    assert_eq!(packed.labels[..12], [no, x, y, end, y, end, no, no, no, x, y, end]);
    assert_eq!((packed.counts.cut, packed.counts.padding, packed.counted()), (0, 2, 8));
    // Of the last sample's four tokens two fit: what they predict is given, or cut.
    let packed = collator(Sampler::Packed(Packed::default())).collate(&[0, 2, 1, 0]).unwrap();
    assert_eq!(packed.labels[10..], [y, end, no, no]);
    assert_eq!((packed.counts.cut, packed.counted()), (2, 8));
    assert_eq!(packed.seen()[10..], [true, true, false, false]);
}

#[test]
fn what_no_prediction_sees_is_padding_and_the_last_token() {
    let mut batch = collator(Sampler::Standard(Standard {})).collate(&[0, 1]).unwrap();
    assert_eq!(batch.seen(), [1, 0, 0, 0, 0, 1, 1, 1, 0, 0].map(|seen| seen == 1));
    // The second sample predicts its last token alone, from all that come before.
    batch.labels[5..7].fill(NO_LABEL);
    assert_eq!(batch.seen(), [1, 0, 0, 0, 0, 1, 1, 1, 0, 0].map(|seen| seen == 1));
    batch.labels[7] = NO_LABEL;
    assert_eq!(batch.seen(), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0].map(|seen| seen == 1));
}

#[test]
fn virtual_tokens_come_before_each_sample() {
    let of = |tokens, sampler, samples: &[u32]| {
        Collator { virtual_tokens: Some(tokens), ..collator(sampler) }.collate(samples).unwrap()
    };
    let with = |sampler, samples: &[u32]| of(VirtualTokens::KeysAndValues(2), sampler, samples);
    let rows = with(Sampler::Standard(Standard {}), &[0, 1]);
    let plain = collator(Sampler::Standard(Standard {})).collate(&[0, 1]).unwrap();
    assert_eq!((rows.rows, rows.width, rows.counts), (2, 7, plain.counts));
    assert_eq!(rows.ids, [&[0, 0][..], &plain.ids[..5], &[0, 0], &plain.ids[5..]].concat());
    assert_eq!(rows.labels[..3], [NO_LABEL, NO_LABEL, plain.labels[0]]);
    assert_eq!(rows.positions, [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6]);
    assert_eq!((rows.virtual_rows, rows.segments), (vec![0, 1, 7, 8], None));
    // The last embedding predicts a sample's first token.
    let embeddings = |sampler, samples: &[u32]| of(VirtualTokens::Embeddings(2), sampler, samples).labels;
    let labels = embeddings(Sampler::Standard(Standard {}), &[0, 1]);
    assert_eq!([labels[0], labels[1], labels[2]], [NO_LABEL, rows.ids[2], plain.labels[0]]);
    assert_eq!([labels[7], labels[8], labels[9]], [NO_LABEL, rows.ids[9], plain.labels[5]]);
    let packed = with(Sampler::Packed(Packed::default()), &[1, 0, 2]);
    let labels = embeddings(Sampler::Packed(Packed::default()), &[1, 0, 2]);
    assert_eq!([labels[1], labels[7], labels[11]], [packed.ids[2], packed.ids[8], packed.ids[12]]);
    assert_eq!((packed.rows, packed.width), (1, 16));
    assert_eq!(packed.virtual_rows, [0, 1, 6, 7, 10, 11]);
    assert_eq!(packed.positions, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5]);
    let segments = packed.segments.as_ref().unwrap();
    assert_eq!(segments.lengths, [6, 4, 6]);
    assert_eq!(segments.starts, [0, 0, 0, 0, 0, 0, 6, 6, 6, 6, 10, 10, 10, 10, 10, 10]);
}

#[test]
fn packed_samples_have_bounds_and_positions_of_their_own() {
    let collator = collator(Sampler::Packed(Packed::default()));
    let batch = collator.collate(&[1, 0, 2]).unwrap();
    assert_eq!((batch.rows, batch.width), (1, 10));
    assert_eq!(batch.positions, [0, 1, 2, 3, 0, 1, 0, 1, 2, 3]);
    let segments = batch.segments.as_ref().unwrap();
    assert_eq!(segments.starts, [0, 0, 0, 0, 4, 4, 6, 6, 6, 6]);
    assert_eq!(segments.lengths, [4, 2, 4]);
    // 4 of the last sample's 7 tokens fit.
    let counts =
        Counts { samples: 3, tokens: 10, cut_samples: 1, cut: 3, squares: 16 + 4 + 16, ..Counts::default() };
    assert_eq!(batch.counts, counts);
    assert_eq!(batch.labels.iter().filter(|label| **label < 0).count(), 3, "one a sample");
    let short = collator.collate(&[0]).unwrap();
    assert_eq!((short.width, short.counts.padding), (10, 8));
    assert_eq!(short.positions, [0, 1, 0, 1, 2, 3, 4, 0, 1, 2]);
    assert_eq!(short.segments.unwrap().starts, [0, 0, 2, 2, 2, 2, 2, 7, 7, 7]);
}

/// Several spans of a sample are learned, as the turns of a chat; also where it is packed, and where it is cut.
#[test]
fn every_token_has_its_own_mask_however_samples_are_batched() {
    let record = |first: u32, mask: &str| {
        let learned: Vec<bool> = mask.bytes().map(|bit| bit == b'1').collect();
        Ok(Record::Tokens(Tokens { ids: (first..).take(learned.len()).collect(), learned }))
    };
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let collator = |sampler| {
        let mut records = [record(10, "0110010"), record(30, "1001"), record(50, "00101")].into_iter();
        let encoder = Encoder::new(&tokenizer, false);
        Collator {
            samples: Samples::records(&mut records, encoder, 6, Tokenize::Once).unwrap(),
            config: SamplerConfig::of(sampler),
            batch_size: 2,
            max_length: 6,
            virtual_tokens: None,
            share: Share::WHOLE,
            start: None,
        }
    };
    let no = NO_LABEL;
    let rows = collator(Sampler::Standard(Standard {})).collate(&[0, 1]).unwrap();
    assert_eq!(rows.labels, [11, 12, no, no, 15, no, no, no, 33, no, no, no]);
    assert_eq!(rows.ids[..10], [10, 11, 12, 13, 14, 15, 30, 31, 32, 33]);
    assert_eq!(rows.first_labels, [no, 30]);
    assert_eq!((rows.counts.tokens, rows.counts.cut, rows.counted()), (10, 1, 4));
    // The row ends behind two of the last sample's tokens, before its first learned one.
    let packed = collator(Sampler::Packed(Packed::default())).collate(&[0, 1, 2]).unwrap();
    assert_eq!(packed.labels, [11, 12, no, no, 15, no, no, no, 33, no, no, no]);
    assert_eq!((packed.counts.cut, packed.counts.cut_samples, packed.counted()), (1 + 3, 2, 4));
    let packed = collator(Sampler::Packed(Packed::default())).collate(&[2, 1]).unwrap();
    assert_eq!(packed.labels, [no, 52, no, 54, no, no, no, 33, no, no, no, no]);
    assert_eq!(packed.seen()[..9], [true, true, true, true, false, true, true, true, false]);
    let with = Collator {
        virtual_tokens: Some(VirtualTokens::Embeddings(2)),
        ..collator(Sampler::Padded(Padded {}))
    };
    assert_eq!(with.collate(&[1]).unwrap().labels, [no, 30, no, no, 33, no, no, no]);
}

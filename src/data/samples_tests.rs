//! Samples: where they end, what is cut of them, and what is given.

use super::super::Tokenizer;
use super::super::record::{Record, Tokens};
use super::*;

fn ids(samples: &Samples, index: usize) -> Vec<u32> {
    samples.get(index).unwrap().tokens.iter().map(|token| token.id()).collect()
}

#[test]
fn blocks_are_texts_joined_and_the_rest_is_dropped() {
    let texts = ["abc", "", "de"].map(String::from);
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let end = tokenizer.end_of_text().unwrap();
    let id = |letter: &str| tokenizer.encode(letter).unwrap()[0];
    let blocks = Samples::joined(&texts, &tokenizer, 4).unwrap();
    assert_eq!(blocks.lengths(), [4, 4]);
    assert_eq!(ids(&blocks, 0), [id("a"), id("b"), id("c"), end]);
    assert_eq!(ids(&blocks, 1), [end, id("d"), id("e"), end]);
    assert_eq!(Samples::joined(&texts, &tokenizer, 5).unwrap().lengths(), [5]);
    let message = Samples::joined(&texts[..1], &tokenizer, 5).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("has 4 tokens, less than one sequence of 5"), "{message}");
}

#[test]
fn samples_are_the_same_whenever_they_are_tokenised() {
    let texts: Vec<String> = (1..30).map(|n| "a fox ".repeat(n)).collect();
    let tokenizer = Tokenizer::train(&texts, 260).unwrap();
    let samples = |tokenize| Samples::new(texts.clone(), &tokenizer, 12, tokenize).unwrap();
    let (once, late) = (samples(Tokenize::Once), samples(Tokenize::EveryStep));
    // What plans the batches, and with them their widths and their memory.
    assert_eq!(once.lengths(), late.lengths());
    let (mut longest, mut cut) = (0, 0);
    for (i, length) in once.lengths().into_iter().enumerate() {
        let (a, b) = (once.get(i).unwrap(), late.get(i).unwrap());
        assert_eq!((a.tokens.as_ref(), a.cut), (b.tokens.as_ref(), b.cut));
        assert_eq!(a.tokens.len(), length as usize);
        let whole = tokenizer.encode(&texts[i]).unwrap();
        assert_eq!(a.tokens.len() + a.cut, whole.len() + 1, "with its end-of-text token");
        longest = longest.max(a.tokens.len());
        cut += a.cut;
    }
    assert!(longest == 12 && cut > 0, "{longest} {cut}");
    assert!(Samples::new(Vec::new(), &tokenizer, 12, Tokenize::Once).is_err());
}

#[test]
fn a_prompt_is_given_and_must_leave_something_to_learn() {
    let text = |prompt: &str| Prompted { prompt: prompt.into(), completion: "de".into() };
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    for tokenize in [Tokenize::Once, Tokenize::EveryStep] {
        let samples =
            Samples::prompted(["abc", "a", "abcd"].map(text).to_vec(), &tokenizer, 5, tokenize).unwrap();
        // The end token is what the last token of a whole sample predicts.
        assert_eq!(samples.lengths(), [5, 3, 5]);
        let [first, second, third] = [0, 1, 2].map(|i| samples.get(i).unwrap());
        assert_eq!((token::given(&first.tokens), first.cut, first.last_label), (3, 0, tokenizer.eos()));
        assert_eq!((token::given(&second.tokens), second.cut, second.last_label), (1, 0, tokenizer.eos()));
        assert_eq!(second.tokens[1..], first.tokens[3..]);
        assert_eq!((third.tokens.len(), third.cut, third.last_label), (5, 1, None));
    }
    let message =
        Samples::prompted(vec![text("abcde")], &tokenizer, 5, Tokenize::Once).err().unwrap().to_string();
    assert!(message.contains("the prompt \"abcde\" has 5 tokens, and train.seq_len = 5 leaves"), "{message}");
}

/// Tokens that are learned where `mask` has a 1.
fn masked(first: u32, mask: &str) -> Record {
    let learned: Vec<bool> = mask.bytes().map(|bit| bit == b'1').collect();
    Record::Tokens(Tokens { ids: (first..).take(learned.len()).collect(), learned })
}

fn of_records(records: Vec<Record>, max_length: usize, tokenize: Tokenize) -> Result<Samples, DataError> {
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let mut records = records.into_iter().map(Ok);
    Samples::records(&mut records, Encoder::new(&tokenizer, false), max_length, tokenize)
}

#[test]
fn what_has_nothing_left_to_learn_is_left_out_and_counted() {
    let pair = |prompt: &str| Record::Pair(Prompted { prompt: prompt.into(), completion: String::new() });
    let records = || {
        let masks = [
            masked(0, "0110"),
            masked(10, "00001"),
            masked(20, "0000"),
            masked(30, "1"),
            masked(40, "00010"),
        ];
        // Nothing but the end is learned of the last two, which the second is too long for.
        masks.into_iter().chain([pair("abcd"), pair("abcde")]).collect::<Vec<_>>()
    };
    for tokenize in [Tokenize::Once, Tokenize::EveryStep] {
        let samples = of_records(records(), 4, tokenize).unwrap();
        assert_eq!(samples.left_out(), LeftOut { nothing_to_learn: 3, ..LeftOut::default() });
        assert_eq!(samples.lengths(), [4, 1, 4, 4]);
        assert_eq!([0, 1, 2, 3].map(|i| samples.length(i)), [4, 1, 5, 4]);
        assert_eq!([0, 1, 2].map(|i| ids(&samples, i)[0]), [0, 30, 40]);
        let labels =
            |i: usize| samples.get(i).unwrap().tokens.iter().map(|token| token.label()).collect::<Vec<_>>();
        assert_eq!(
            [labels(0), labels(1), labels(2)],
            [vec![-100, 1, 2, -100], vec![30], vec![-100, -100, -100, 43]]
        );
        assert_eq!((samples.get(2).unwrap().cut, samples.get(3).unwrap().last_label), (1, Some(0)));
    }
    let message = of_records(vec![masked(0, "001")], 2, Tokenize::Once).err().unwrap().to_string();
    assert!(
        message.contains("no sample of the split has something to learn in its first 2 tokens"),
        "{message}"
    );
    let message = of_records(Vec::new(), 2, Tokenize::Once).err().unwrap().to_string();
    assert!(message.contains("the split has no samples"), "{message}");
}

/// More records than are encoded at once, in their order, whatever they are.
#[test]
fn a_stream_of_records_is_encoded_in_its_order() {
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let record = |i: u32| match i % 4 {
        0 => Record::Text(format!("text {i}")),
        1 => Record::Pair(Prompted { prompt: format!("{i}"), completion: "x".repeat(i as usize % 7) }),
        2 => masked(i % 200, "0101101"),
        _ => Record::Text("long ".repeat(i as usize % 100)),
    };
    let encoder = Encoder::new(&tokenizer, true);
    let store = encode_all(&mut (0..10_001).map(|i| Ok(record(i))), &encoder, false).unwrap();
    assert_eq!(store.len(), 10_001);
    for i in (0..10_001).step_by(41) {
        let (start, place) = store.place(i);
        let expected = encoder.encode(&record(i as u32)).unwrap();
        assert_eq!(store.tokens()[start..place.end], expected.tokens, "{i}");
        assert_eq!((place.last_label, place.given), (None, token::given(&expected.tokens)));
    }
    // Joined, a completion ends with a token that is learned.
    let pair = encoder.encode(&record(5)).unwrap();
    assert_eq!(pair.tokens.last(), Some(&Token::learned(tokenizer.eos().unwrap())));
}

#[test]
fn what_is_given_is_learned_where_all_is_to_be() {
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let encoder = Encoder::new(&tokenizer, false);
    let pair = Record::Pair(Prompted { prompt: "ab".into(), completion: "c".into() });
    for (record, masked_labels) in [(pair, "001"), (masked(3, "01001"), "01001")] {
        let [own, all] =
            [encoder.clone(), encoder.clone().learning_all()].map(|by| by.encode(&record).unwrap());
        let learned =
            |encoded: &Encoded| encoded.tokens.iter().map(|token| token.is_learned()).collect::<Vec<_>>();
        assert_eq!(learned(&own), masked_labels.bytes().map(|bit| bit == b'1').collect::<Vec<_>>());
        assert!(learned(&all).iter().all(|learned| *learned));
        let ids = |encoded: &Encoded| encoded.tokens.iter().map(|token| token.id()).collect::<Vec<_>>();
        assert_eq!((ids(&own), own.last_label), (ids(&all), all.last_label));
    }
}

#[test]
fn a_record_that_is_no_sample_ends_it_unless_it_is_skipped() {
    let tokenizer = Tokenizer::train(&[], 257).unwrap().of_rows(257);
    let encoder = Encoder::new(&tokenizer, false);
    let records = || -> Box<Source> {
        Box::new([masked(0, "11"), masked(256, "11"), masked(5, "1")].into_iter().map(Ok))
    };
    let message = encode_all(&mut *records(), &encoder, false).err().unwrap().to_string();
    assert!(message.starts_with("sample 2: the text has the token 257"), "{message}");
    let store = encode_all(&mut *records(), &encoder, true).unwrap();
    assert_eq!((store.len(), store.broken), (2, 1));
    let late = Samples::late(&mut *records(), encoder.clone(), 9, true).unwrap().without_records(2, 3);
    assert_eq!((late.len(), late.left_out().broken, late.left_out().duplicates), (2, 3, 3));
    assert!(Samples::late(&mut *records(), encoder.clone(), 9, false).is_err());
    // What cannot be read is another matter.
    let unread = || Err(DataError::new("a.jsonl, line 3: no JSON"));
    let mut records = records().chain(std::iter::once_with(unread));
    let message = encode_all(&mut records, &encoder, true).err().unwrap().to_string();
    assert_eq!(message, "a.jsonl, line 3: no JSON");
}

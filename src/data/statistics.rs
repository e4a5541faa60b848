//! [`texts`]: what the samples of a split are, in numbers, and the first of them.

use super::samples::Sample;
use super::{DataError, Samples, Tokenizer};
use crate::measure::{Piece, Texts, spread};

/// Samples of which learned tokens are counted: all of a large corpus are not read for a number.
const COUNTED: usize = 4096;
/// Tokens of the first sample that are shown.
const SHOWN: usize = 512;

/// The samples of a split, cut to `max_length`. `classes`: labels of last tokens are classes.
///
/// # Errors
/// When the vocabulary cannot express a text that is tokenised now.
pub fn texts(
    samples: &Samples,
    tokenizer: &Tokenizer,
    max_length: usize,
    classes: bool,
) -> Result<Texts, DataError> {
    let lengths: Vec<u64> = (0..samples.len()).map(|i| samples.length(i) as u64).collect();
    let beyond = |length: &u64| length.saturating_sub(max_length as u64);
    let (mut counted, mut learned) = (0, 0);
    for index in 0..samples.len().min(COUNTED) {
        let sample = samples.get(index)?;
        counted += sample.tokens.len() + usize::from(sample.last_label.is_some());
        learned += sample.tokens.iter().filter(|token| token.is_learned()).count();
        learned += usize::from(sample.last_label.is_some());
    }
    let left_out = samples.left_out();
    let count = lengths.len() as u64;
    let [all, cut]: [u64; 2] = [lengths.iter().sum(), lengths.iter().map(beyond).sum()];
    let cut_samples = lengths.iter().filter(|length| beyond(length) > 0).count() as u64;
    let (lengths, histogram) = spread(lengths);
    Ok(Texts {
        samples: count,
        tokens: all - cut,
        learned: learned as f64 / counted.max(1) as f64,
        cut_samples,
        cut_tokens: cut,
        broken: left_out.broken,
        duplicates: left_out.duplicates,
        nothing_to_learn: left_out.nothing_to_learn,
        lengths,
        histogram,
        first: if samples.len() == 0 { Vec::new() } else { pieces(&samples.get(0)?, tokenizer, classes) },
    })
}

/// A sample as it is trained, or its beginning: what is given and what is learned, in turns. The label of the last token is
/// learned behind all: a token, or a class.
pub fn pieces(sample: &Sample, tokenizer: &Tokenizer, classes: bool) -> Vec<Piece> {
    let tokens = sample.tokens.iter().map(|token| (token.id(), token.is_learned()));
    let (class, last) = sample.last_label.into_iter().partition::<Vec<u32>, _>(|_| classes);
    let last = last.into_iter().map(|id| (id, true));
    let tokens: Vec<(u32, bool)> = tokens.chain(last).take(SHOWN).collect();
    let (mut pieces, mut before): (Vec<Piece>, Vec<u32>) = (Vec::new(), Vec::new());
    for run in tokens.chunk_by(|(_, a), (_, b)| a == b) {
        let ids: Vec<u32> = run.iter().map(|(id, _)| *id).collect();
        let text = tokenizer.continuation(&before, &ids);
        let token = |id: &u32| {
            // A decoder may leave out the space that a text begins with.
            let token = tokenizer.continuation(before.last().map_or(&[], std::slice::from_ref), &[*id]);
            before.push(*id);
            token
        };
        let tokens = ids.iter().map(token).collect();
        pieces.push(Piece { learned: run[0].1, text, tokens });
    }
    let class = class.first().map(|class| format!("class {class}"));
    pieces.extend(class.map(|text| Piece { learned: true, tokens: vec![text.clone()], text }));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Prompted, Tokenize};

    /// Every byte is a token of its own.
    fn prompted(texts: [(&str, &str); 2], max_length: usize) -> (Samples, Tokenizer) {
        let tokenizer = Tokenizer::train(&[], 257).unwrap();
        let pair = |(prompt, completion): (&str, &str)| Prompted {
            prompt: prompt.into(),
            completion: completion.into(),
        };
        let pairs = texts.map(pair).to_vec();
        (Samples::prompted(pairs, &tokenizer, max_length, Tokenize::Once).unwrap(), tokenizer)
    }

    #[test]
    fn samples_are_counted_cut_and_uncut() {
        let (samples, tokenizer) = prompted([("ab", "cd"), ("abc", "defgh")], 6);
        let texts = texts(&samples, &tokenizer, 6, false).unwrap();
        assert_eq!((texts.samples, texts.tokens), (2, 10));
        assert_eq!((texts.cut_samples, texts.cut_tokens), (1, 2));
        assert_eq!((texts.lengths, texts.histogram.iter().sum::<u64>()), ([4, 4, 4, 8, 8, 8], 2));
        // The first has its end as a label; the second has lost it.
        assert!((texts.learned - 6.0 / 11.0).abs() < 1e-12, "{}", texts.learned);
        let piece = |learned, text: &str, tokens: &[&str]| Piece {
            learned,
            text: text.into(),
            tokens: tokens.iter().map(|token| (*token).to_string()).collect(),
        };
        let end = "<|endoftext|>";
        let learned = piece(true, &format!("cd{end}"), &["c", "d", end]);
        assert_eq!(texts.first, [piece(false, "ab", &["a", "b"]), learned]);
    }

    #[test]
    fn a_class_is_no_token() {
        let tokenizer = Tokenizer::train(&[], 257).unwrap();
        let problem = Prompted { prompt: "ab".into(), completion: "3".into() };
        let samples = Samples::classified(&[problem], &tokenizer, 6).unwrap();
        let texts = texts(&samples, &tokenizer, 6, true).unwrap();
        assert_eq!(texts.first.last().unwrap().text, "class 3");
        assert!((texts.learned - 1.0 / 3.0).abs() < 1e-12, "{}", texts.learned);
    }
}

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

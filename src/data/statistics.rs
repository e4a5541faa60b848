//! [`texts`]: what the samples of a split are, in numbers, and the first of them.

use super::samples::Sample;
use super::{DataError, Samples, Tokenizer};
use crate::measure::{Piece, Texts, spread};

/// Samples of which learned tokens are counted: all of a large corpus are not read for a number.
const COUNTED: usize = 4096;
/// Tokens of the first sample that are shown.
const SHOWN: usize = 512;

/// The samples of a split, cut to `max_length`.
///
/// # Errors
/// When the vocabulary cannot express a text that is tokenised now.
pub fn texts(samples: &Samples, tokenizer: &Tokenizer, max_length: usize) -> Result<Texts, DataError> {
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
    let cut: u64 = lengths.iter().map(beyond).sum();
    let (quantiles, histogram) = spread(lengths.clone());
    Ok(Texts {
        samples: lengths.len() as u64,
        tokens: lengths.iter().sum::<u64>() - cut,
        learned: learned as f64 / counted.max(1) as f64,
        cut_samples: lengths.iter().filter(|length| beyond(length) > 0).count() as u64,
        cut_tokens: cut,
        broken: left_out.broken,
        duplicates: left_out.duplicates,
        nothing_to_learn: left_out.nothing_to_learn,
        lengths: quantiles,
        histogram,
        first: if samples.len() == 0 { Vec::new() } else { pieces(&samples.get(0)?, tokenizer) },
    })
}

/// A sample as it is trained, or its beginning: what is given and what is learned, in turns. The label of the last token is
/// learned behind all.
pub fn pieces(sample: &Sample, tokenizer: &Tokenizer) -> Vec<Piece> {
    let tokens = sample.tokens.iter().map(|token| (token.id(), token.is_learned()));
    let tokens: Vec<(u32, bool)> = tokens.chain(sample.last_label.map(|id| (id, true))).take(SHOWN).collect();
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
    pieces
}

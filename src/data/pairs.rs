//! [`Sources`]: samples as the sources and targets of an encoder and a decoder.

use std::ops::Range;

use super::collate::{Collated, Collator, NO_LABEL};
use super::samples::Sample;
use super::samples::token::{self, Token};

/// The sources of a batch, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    pub width: usize,
    /// [rows · width]
    pub ids: Vec<i32>,
    /// Tokens of each; the others of its row are padding.
    pub lengths: Vec<usize>,
}

impl Sources {
    /// Rows of equal length without padding.
    pub fn of_rows(ids: Vec<i32>, rows: usize) -> Self {
        let width = ids.len() / rows;
        Self { width, ids, lengths: vec![width; rows] }
    }

    /// These rows of them.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        let ids = self.ids[rows.start * self.width..rows.end * self.width].to_vec();
        Self { width: self.width, ids, lengths: self.lengths[rows].to_vec() }
    }

    /// Of each token, whether it is padding; `None` where none is.
    pub fn padding(&self) -> Option<Vec<bool>> {
        let of_row = |length: &usize| (0..self.width).map(|place| place >= *length).collect::<Vec<_>>();
        let all: Vec<bool> = self.lengths.iter().flat_map(of_row).collect();
        all.contains(&true).then_some(all)
    }
}

/// A sample as a source and a target.
struct Pair {
    source: Vec<i32>,
    target: Vec<i32>,
    /// The target where it is learned, elsewhere no label.
    labels: Vec<i32>,
}

impl Pair {
    /// What is given before the first learned token, ended by `end`, and the rest. A sample of which nothing is given is source
    /// and target.
    fn of(sample: &Sample, end: u32) -> Self {
        let ids = |tokens: &[Token]| tokens.iter().map(|token| token.id() as i32).collect::<Vec<_>>();
        let (given, rest) = sample.tokens.split_at(token::given(&sample.tokens));
        let mut source = ids(if given.is_empty() { &sample.tokens } else { given });
        if !given.is_empty() && source.last() != Some(&(end as i32)) {
            source.push(end as i32);
        }
        let last = sample.last_label.map(|label| label as i32);
        let (mut target, mut labels) =
            (ids(rest), rest.iter().map(|token| token.label()).collect::<Vec<_>>());
        target.extend(last);
        labels.extend(last);
        if labels.is_empty() {
            (target, labels) = (vec![end as i32], vec![NO_LABEL]);
        }
        Self { source, target, labels }
    }
}

impl Collator {
    /// A source and a target for each sample. The decoder reads `start` and then the target but its last token.
    pub(super) fn pairs(&self, samples: &[Sample], start: u32) -> Collated {
        let end = self.samples.padding();
        let pairs: Vec<Pair> = samples.iter().map(|sample| Pair::of(sample, end)).collect();
        let width = |longest: Option<usize>| {
            self.config.width(longest.unwrap_or(0), self.batch_size, self.max_length)
        };
        let mut sources =
            Sources { width: width(pairs.iter().map(|pair| pair.source.len()).max()), ..Sources::default() };
        let width = width(pairs.iter().map(|pair| pair.labels.len()).max());
        let mut batch = Collated { rows: pairs.len(), width, ..Collated::default() };
        for (Pair { source, target, labels }, sample) in pairs.iter().zip(samples) {
            let filled = |tokens: &mut Vec<i32>, length: usize, width: usize, id: i32| {
                tokens.extend(std::iter::repeat_n(id, width - length));
            };
            sources.lengths.push(source.len());
            sources.ids.extend(source);
            filled(&mut sources.ids, source.len(), sources.width, end as i32);
            batch.ids.extend([start as i32].iter().chain(&target[..target.len() - 1]));
            filled(&mut batch.ids, labels.len(), width, end as i32);
            batch.labels.extend(labels);
            filled(&mut batch.labels, labels.len(), width, NO_LABEL);
            batch.positions.extend(0..width as i32);
            let [source, target] = [source.len(), labels.len()].map(|length| length as u64);
            let counts = &mut batch.counts;
            counts.samples += 1;
            counts.tokens += source + target;
            counts.squares += source * source + target * target;
            counts.padding += (sources.width + width) as u64 - source - target;
            counts.cut_samples += u64::from(sample.cut > 0);
            counts.cut += sample.cut as u64;
        }
        Collated { sources: Some(sources), ..batch }
    }
}

impl Collated {
    /// Sources and targets, [rows · width], whose labels these are: what their tokens predict. Behind a token that is not
    /// counted the decoder reads `start`, as transformers has its padding token there.
    pub fn of_pairs(sources: Sources, labels: Vec<i32>, start: u32) -> Self {
        let rows = sources.lengths.len();
        let width = labels.len() / rows;
        let read = |row: &[i32]| {
            let before = [&[start as i32], &row[..width - 1]].concat();
            before.into_iter().map(|id| if id == NO_LABEL { start as i32 } else { id }).collect::<Vec<_>>()
        };
        let ids = labels.chunks(width).flat_map(read).collect();
        let positions = (0..rows).flat_map(|_| 0..width as i32).collect();
        Self { rows, width, ids, sources: Some(sources), positions, labels, ..Self::default() }
    }

    /// Tokens of a row: of a source or of a target, which of them is wider.
    pub fn longest(&self) -> usize {
        self.sources.as_ref().map_or(self.width, |sources| sources.width.max(self.width))
    }

    /// Ids and positions of all tokens, those of sources first, and whether each gets a gradient: padding does not, nor what no
    /// prediction has seen.
    pub fn all_tokens(&self) -> (Vec<i32>, Vec<i32>, Vec<bool>) {
        let (mut ids, mut positions, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(sources) = &self.sources {
            ids.extend(&sources.ids);
            positions.extend((0..self.rows).flat_map(|_| 0..sources.width as i32));
            seen.extend(
                sources.lengths.iter().flat_map(|length| (0..sources.width).map(move |i| i < *length)),
            );
        }
        ids.extend(&self.ids);
        positions.extend(&self.positions);
        seen.extend(self.seen());
        (ids, positions, seen)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn sample(tokens: &[u32], prompt: usize, last_label: Option<u32>) -> Sample<'static> {
        Sample { tokens: Cow::Owned(token::after(tokens, prompt)), last_label, cut: 0 }
    }

    #[test]
    fn what_is_given_is_the_source_and_ends() {
        let of = |sample| {
            let Pair { source, labels, .. } = Pair::of(&sample, 1);
            (source, labels)
        };
        assert_eq!(of(sample(&[5, 6, 7, 8], 3, Some(1))), (vec![5, 6, 7, 1], vec![8, 1]));
        // A tokenizer may end the prompt itself, and what is cut has no end.
        assert_eq!(of(sample(&[5, 1, 7, 8], 2, None)), (vec![5, 1], vec![7, 8]));
        assert_eq!(of(sample(&[5, 6], 0, None)), (vec![5, 6], vec![5, 6]));
        assert_eq!(of(sample(&[5, 6], 2, None)), (vec![5, 6, 1], vec![NO_LABEL]));
        let turns = [Token::given(5), Token::learned(6), Token::given(7), Token::learned(8)];
        let turns = Sample { tokens: Cow::Borrowed(&turns), last_label: None, cut: 0 };
        let Pair { source, target, labels } = Pair::of(&turns, 1);
        assert_eq!((source, target, labels), (vec![5, 1], vec![6, 7, 8], vec![6, NO_LABEL, 8]));
    }

    #[test]
    fn padding_is_what_lies_behind_a_source() {
        let sources = Sources { width: 3, ids: vec![4, 5, 6, 7, 1, 1], lengths: vec![3, 1] };
        assert_eq!(sources.padding(), Some(vec![false, false, false, false, true, true]));
        assert_eq!(sources.rows(0..1).padding(), None);
        assert_eq!(sources.rows(1..2), Sources { width: 3, ids: vec![7, 1, 1], lengths: vec![1] });
    }
}

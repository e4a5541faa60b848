//! [`Collator`]: samples become the rows of a batch, or one packed row.

use std::ops::Range;

use super::DataError;
use super::pairs::Sources;
use super::sampler::SamplerConfig;
use super::samples::{Sample, Samples, Token};
use super::share::Share;
use crate::measure::Counts;
use crate::params::tuning::VirtualTokens;

/// The label of a token whose prediction does not count.
pub const NO_LABEL: i32 = -100;

/// A batch on the host: `rows` · `width` tokens, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collated {
    pub rows: usize,
    pub width: usize,
    pub ids: Vec<i32>,
    /// Of an encoder and a decoder, where the rows are targets.
    pub sources: Option<Sources>,
    /// Of each token within its sample.
    pub positions: Vec<i32>,
    /// The token after each one in its sample; -100 where there is none, or it is given.
    pub labels: Vec<i32>,
    /// The label of each sample's first token, which only a virtual token before it can predict; in packed rows of padding
    /// too.
    pub(super) first_labels: Vec<i32>,
    /// Of packed samples; `None` where every row is one sample. Padding comes after its sample, where
    /// causal attention does not see it.
    pub segments: Option<Segments>,
    /// The rows of virtual tokens, sample by sample, and how many a sample has.
    pub virtual_rows: Vec<i32>,
    pub virtual_tokens: usize,
    pub counts: Counts,
    /// What of it is to be computed here.
    pub share: Share,
}

/// The samples of a packed row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segments {
    /// Of each token: where its sample, or its piece of padding, begins in the row.
    pub starts: Vec<i32>,
    /// Tokens of each sample, and of each piece of padding.
    pub lengths: Vec<usize>,
}

/// Makes batches of a data set's samples.
pub struct Collator {
    pub samples: Samples,
    pub config: SamplerConfig,
    pub batch_size: usize,
    /// Tokens of a sample at most.
    pub max_length: usize,
    /// The token that a target begins with, of an encoder and a decoder.
    pub start: Option<u32>,
    /// Before each sample, beyond its length.
    pub virtual_tokens: Option<VirtualTokens>,
    /// What of each batch is computed here.
    pub share: Share,
}

impl Collator {
    /// # Errors
    /// When a text cannot be tokenised.
    pub fn collate(&self, indices: &[u32]) -> Result<Collated, DataError> {
        let samples =
            indices.iter().map(|i| self.samples.get(*i as usize)).collect::<Result<Vec<Sample>, _>>()?;
        let longest = samples.iter().map(|sample| sample.tokens.len()).max().unwrap_or(0);
        let width = self.config.width(longest, self.batch_size, self.max_length);
        let batch = match (self.start, self.config.sampler.is_packed()) {
            (Some(start), _) => self.pairs(&samples, start),
            (None, true) => self.packed(&samples, width),
            (None, false) => self.rows(&samples, width),
        };
        Ok(Collated { share: self.share, ..batch.with_virtual_tokens(self.virtual_tokens) })
    }

    /// A row for each sample.
    fn rows(&self, samples: &[Sample], width: usize) -> Collated {
        let mut batch = Collated { rows: samples.len(), width, ..Collated::default() };
        for sample in samples {
            batch.append(&sample.tokens, sample.last_label, sample.cut);
            batch.pad(self.samples.padding(), sample.tokens.len()..width);
        }
        batch
    }

    /// One row of all samples; the last is cut where the row ends.
    fn packed(&self, samples: &[Sample], width: usize) -> Collated {
        let mut batch = Collated { rows: 1, width, ..Collated::default() };
        let mut segments = Segments::default();
        let mut mark = |length: usize| {
            segments.starts.extend(std::iter::repeat_n(segments.starts.len() as i32, length));
            segments.lengths.push(length);
        };
        for sample in samples {
            let start = batch.ids.len();
            let length = sample.tokens.len().min(width - start);
            let cut = sample.cut + sample.tokens.len() - length;
            // What is cut has not been read whole.
            let last_label = sample.last_label.filter(|_| length == sample.tokens.len());
            batch.append(&sample.tokens[..length], last_label, cut);
            mark(length);
        }
        let start = batch.ids.len();
        // In pieces as long as a sample may be: positions and attention know no longer ones.
        for start in (start..width).step_by(self.max_length) {
            let length = self.max_length.min(width - start);
            batch.pad(self.samples.padding(), 0..length);
            batch.first_labels.push(NO_LABEL);
            mark(length);
        }
        batch.segments = Some(segments);
        batch
    }
}

impl Collated {
    /// Rows of equal length without padding, each one sample. From each token's own label, as a data set holds
    /// them: the label of the token that follows is what a token predicts.
    pub fn of_rows(ids: Vec<i32>, labels: &[i32], rows: usize) -> Self {
        let width = ids.len() / rows;
        let next = |row: &[i32]| [&row[1..], &[NO_LABEL]].concat();
        Self {
            rows,
            width,
            positions: (0..rows).flat_map(|_| 0..width as i32).collect(),
            first_labels: labels.iter().step_by(width).copied().collect(),
            labels: labels.chunks(width).flat_map(next).collect(),
            ids,
            ..Self::default()
        }
    }

    /// The rows packed into one.
    #[must_use]
    pub fn joined(self) -> Self {
        let starts = (0..self.ids.len()).map(|token| (token / self.width * self.width) as i32).collect();
        let segments = Some(Segments { starts, lengths: vec![self.width; self.rows] });
        Self { rows: 1, width: self.ids.len(), segments, ..self }
    }

    /// The batch with virtual tokens before each sample, and before each piece of padding. Their ids are 0. Where they are
    /// embeddings, the last one predicts the sample's first token, as in PEFT; others predict nothing.
    #[must_use]
    pub fn with_virtual_tokens(self, tokens: Option<VirtualTokens>) -> Self {
        let Some(tokens) = tokens else { return self };
        let (count, predicts) = (tokens.count(), matches!(tokens, VirtualTokens::Embeddings(_)));
        let pieces = match &self.segments {
            Some(segments) => segments.lengths.clone(),
            None => vec![self.width; self.rows],
        };
        let mut all = Self { rows: self.rows, virtual_tokens: count, counts: self.counts, ..Self::default() };
        let (mut segments, mut first) = (Segments::default(), 0);
        for (length, label) in pieces.into_iter().zip(self.first_labels) {
            let (start, own) = (all.ids.len() as i32, first..first + length);
            all.virtual_rows.extend(start..start + count as i32);
            all.ids.extend(std::iter::repeat_n(0, count));
            all.ids.extend(&self.ids[own.clone()]);
            all.labels.extend(std::iter::repeat_n(NO_LABEL, count - 1));
            all.labels.push(if predicts { label } else { NO_LABEL });
            all.labels.extend(&self.labels[own.clone()]);
            all.positions.extend(0..count as i32);
            all.positions.extend(self.positions[own.clone()].iter().map(|position| position + count as i32));
            segments.starts.extend(std::iter::repeat_n(start, count + length));
            segments.lengths.push(count + length);
            first = own.end;
        }
        all.width = all.ids.len() / self.rows;
        all.segments = self.segments.is_some().then_some(segments);
        all
    }

    /// `last_label`: what the last token predicts.
    fn append(&mut self, tokens: &[Token], last_label: Option<u32>, cut: usize) {
        self.ids.extend(tokens.iter().map(|token| token.id() as i32));
        self.positions.extend(0..tokens.len() as i32);
        self.first_labels.push(tokens.first().map_or(NO_LABEL, |token| token.label()));
        self.labels.extend(tokens.iter().skip(1).map(|token| token.label()));
        let last = last_label.map_or(NO_LABEL, |label| label as i32);
        self.labels.extend((!tokens.is_empty()).then_some(last));
        let length = tokens.len() as u64;
        self.counts.samples += 1;
        self.counts.tokens += length;
        self.counts.squares += length * length;
        self.counts.cut_samples += u64::from(cut > 0);
        self.counts.cut += cut as u64;
    }

    fn pad(&mut self, id: u32, positions: Range<usize>) {
        let count = positions.len();
        self.ids.extend(std::iter::repeat_n(id as i32, count));
        self.positions.extend(positions.map(|position| position as i32));
        self.labels.extend(std::iter::repeat_n(NO_LABEL, count));
        self.counts.padding += count as u64;
    }

    /// Whether each token is seen by one that predicts: by itself, or by a later one of its sample. Padding and
    /// a sample's last token are not.
    pub fn seen(&self) -> Vec<bool> {
        let mut predicts = false;
        let seen = |(label, position): (&i32, &i32)| {
            let seen = predicts || *label >= 0;
            predicts = seen && *position > 0;
            seen
        };
        let mut of_tokens: Vec<bool> = self.labels.iter().zip(&self.positions).rev().map(seen).collect();
        of_tokens.reverse();
        of_tokens
    }

    /// Labels that count.
    pub fn counted(&self) -> usize {
        self.labels.iter().filter(|label| **label >= 0).count()
    }
}

#[cfg(test)]
#[path = "collate_tests.rs"]
mod tests;

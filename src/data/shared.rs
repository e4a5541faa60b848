//! The part of a batch that one of several replicas computes.

use std::ops::Range;

use super::collate::{Collated, NO_LABEL, Segments};
use super::share::Share;

impl Collated {
    /// The rows of this share, or the samples of a packed row; each lies in one share. A share without any gets the first
    /// one without labels, and computes a gradient of zero. Counts stay those of the whole batch, which has no virtual
    /// tokens.
    #[must_use]
    pub fn shared(self) -> Self {
        let share = self.share;
        if share == Share::WHOLE {
            return self;
        }
        // Rows, or a row's samples.
        let lengths =
            self.segments.as_ref().map_or_else(|| vec![self.width; self.rows], |s| s.lengths.clone());
        let ranges: Vec<Range<usize>> = lengths
            .iter()
            .scan(0, |end, length| {
                let start = std::mem::replace(end, *end + length);
                Some(start..*end)
            })
            .collect();
        // Each is in the share in which its middle is.
        let is_ours =
            |range: &Range<usize>| (range.start + range.end) * share.of / (2 * self.ids.len()) == share.place;
        let ours = |range: &&Range<usize>| is_ours(range);
        let (empty, first) = match ranges.iter().position(is_ours) {
            Some(first) => (false, first),
            None => (true, 0),
        };
        let count = ranges.iter().filter(ours).count().max(1);
        let range = ranges[first].start..ranges[first + count - 1].end;
        let labels = if empty { vec![NO_LABEL; range.len()] } else { self.labels[range.clone()].to_vec() };
        let segments = self.segments.map(|segments| Segments {
            starts: segments.starts[range.clone()].iter().map(|of| of - range.start as i32).collect(),
            lengths: lengths[first..first + count].to_vec(),
        });
        let rows = if segments.is_some() { 1 } else { count };
        Self {
            sources: self.sources.map(|sources| sources.rows(first..first + count)),
            rows,
            width: range.len() / rows,
            ids: self.ids[range.clone()].to_vec(),
            positions: self.positions[range].to_vec(),
            labels,
            first_labels: Vec::new(),
            segments,
            virtual_rows: self.virtual_rows,
            virtual_tokens: self.virtual_tokens,
            counts: self.counts,
            share: Share::WHOLE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows, or samples of one packed row; every token's id is its place, and its label the same.
    fn batch(lengths: &[usize], packed: bool) -> Collated {
        let tokens: usize = lengths.iter().sum();
        let ids: Vec<i32> = (0..tokens as i32).collect();
        let positions = lengths.iter().flat_map(|length| 0..*length as i32).collect();
        let starts = |(i, length): (usize, &usize)| vec![lengths[..i].iter().sum::<usize>() as i32; *length];
        let segments = packed.then(|| Segments {
            starts: lengths.iter().enumerate().flat_map(starts).collect(),
            lengths: lengths.to_vec(),
        });
        let rows = if packed { 1 } else { lengths.len() };
        Collated {
            sources: None,
            rows,
            width: tokens / rows,
            labels: ids.clone(),
            ids,
            positions,
            segments,
            ..Collated::default()
        }
    }

    fn shares(batch: &Collated, of: usize) -> Vec<Collated> {
        (0..of).map(|place| Collated { share: Share { place, of }, ..batch.clone() }.shared()).collect()
    }

    #[test]
    fn shares_are_the_whole_batch_and_every_label_is_in_one() {
        for packed in [false, true] {
            let equal = batch(&[3; 8], packed);
            for of in [1, 2, 3, 4, 8, 11] {
                let shares = shares(&equal, of);
                let mut labels: Vec<i32> = shares
                    .iter()
                    .flat_map(|share| share.labels.clone())
                    .filter(|label| *label >= 0)
                    .collect();
                labels.sort_unstable();
                assert_eq!(labels, equal.labels, "{of}");
                for share in &shares {
                    assert_eq!(share.ids.len(), share.rows * share.width);
                    assert_eq!(share.positions.len(), share.ids.len());
                    assert_eq!(share.ids.len() % 3, 0, "whole rows");
                    let tokens = share.segments.as_ref().map(|s| (s.starts.len(), s.lengths.iter().sum()));
                    assert!(tokens.is_none_or(|tokens| tokens == (share.ids.len(), share.ids.len())));
                }
            }
            let rows: Vec<usize> = shares(&equal, 4).iter().map(|share| share.ids.len()).collect();
            assert_eq!(rows, [6; 4]);
        }
    }

    #[test]
    fn samples_of_a_packed_row_keep_their_bounds() {
        let shares = shares(&batch(&[2, 5, 1, 4], true), 2);
        assert_eq!(shares[0].ids, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shares[1].ids, [7, 8, 9, 10, 11]);
        let segments = shares[1].segments.as_ref().unwrap();
        assert_eq!(segments.starts, [0, 1, 1, 1, 1]);
        assert_eq!(segments.lengths, [1, 4]);
        assert_eq!(shares[1].positions, [0, 0, 1, 2, 3]);
    }

    #[test]
    fn a_share_without_rows_has_no_label() {
        let shares = shares(&batch(&[4], false), 2);
        let labels: Vec<&[i32]> = shares.iter().map(|share| &share.labels[..]).collect();
        assert!(labels.contains(&&[0, 1, 2, 3][..]) && labels.contains(&&[NO_LABEL; 4][..]), "{labels:?}");
    }
}

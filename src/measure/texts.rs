//! [`Texts`]: the samples of a cell as its model reads them.

use serde::{Deserialize, Serialize};

/// The shares of samples of which [`Texts::lengths`] has the longest.
pub const QUANTILES: [f64; 6] = [0.0, 0.25, 0.5, 0.75, 0.95, 1.0];
/// Classes of the histogram of lengths.
const CLASSES: usize = 24;

/// The samples of a split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Texts {
    pub samples: u64,
    /// Of all samples, without what is cut.
    pub tokens: u64,
    /// The share of the first samples' tokens whose predictions count in the loss.
    pub learned: f64,
    pub cut_samples: u64,
    /// Beyond the largest length.
    pub cut_tokens: u64,
    /// Records that could not be read.
    pub broken: u64,
    /// Records that another split has.
    pub duplicates: u64,
    pub nothing_to_learn: u64,
    /// In tokens, uncut: no sample of each of [`QUANTILES`] is longer.
    pub lengths: [u64; 6],
    /// Samples by their lengths, in classes of the same width from the shortest to the longest.
    pub histogram: Vec<u64>,
    /// The first sample as it is trained, or its beginning.
    pub first: Vec<Piece>,
}

/// Tokens of a sample one after the other which are all learned, or all given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub learned: bool,
    pub text: String,
    /// Of each token.
    pub tokens: Vec<String>,
}

/// The lengths at [`QUANTILES`] (nearest rank) and the histogram; zeros and nothing without a sample.
pub fn spread(mut lengths: Vec<u64>) -> ([u64; 6], Vec<u64>) {
    lengths.sort_unstable();
    let (Some(&least), Some(&most)) = (lengths.first(), lengths.last()) else {
        return ([0; 6], Vec::new());
    };
    let count = lengths.len();
    let rank = |share: f64| ((share * count as f64).ceil() as usize).clamp(1, count) - 1;
    let classes = CLASSES.min((most - least + 1) as usize);
    let mut histogram = vec![0; classes];
    for length in &lengths {
        let class = (length - least) as u128 * classes as u128 / u128::from(most - least + 1);
        histogram[class as usize] += 1;
    }
    (QUANTILES.map(|share| lengths[rank(share)]), histogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_quantiles_and_a_histogram() {
        let (quantiles, histogram) = spread((1..=100).rev().collect());
        assert_eq!(quantiles, [1, 25, 50, 75, 95, 100]);
        assert_eq!((histogram.len(), histogram.iter().sum::<u64>()), (24, 100));
        assert!(histogram.iter().all(|count| [4, 5].contains(count)), "{histogram:?}");
        assert_eq!(spread(vec![7, 7, 9]), ([7, 7, 7, 9, 9, 9], vec![2, 0, 1]));
        assert_eq!(spread(vec![3]), ([3; 6], vec![1]));
        assert_eq!(spread(Vec::new()), ([0; 6], vec![]));
        let (_, histogram) = spread(vec![0, u64::MAX - 1]);
        assert_eq!((histogram[0], histogram[23]), (1, 1));
    }
}

//! [`RelativeBias`]: a learned bias of the scores by the distance of a query and a key (Shaw et al. 2018), whose distances
//! share buckets that are wider the farther they lie (Raffel et al. 2020, "T5").
//!
//! ```text
//! B[h, i, j] = table[bucket(j − i), h]          d table[b, h] = Σ dS[h, i, j] over the i and j of bucket b
//! ```

use burn::tensor::{Bool, DType, Device, Int, Tensor};

use crate::device::integers;
use crate::ops::product::{Fp32Math, plain, product};
use crate::ops::wide;

/// How distances share buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    pub count: usize,
    /// Of the distances from this one on, all are in one bucket.
    pub max_distance: usize,
    /// Whether keys after a query have buckets of their own, half of all; else they are as near as the query itself.
    pub bidirectional: bool,
}

impl Buckets {
    /// The bucket of a key that stands so many tokens after a query. Half of a direction's buckets have a distance each, and
    /// the others distances that grow by a factor; the logarithms are in fp32, as in transformers.
    pub fn of_distance(self, after: i64) -> usize {
        let own = if self.bidirectional { self.count / 2 } else { self.count };
        let first = if self.bidirectional && after > 0 { own } else { 0 };
        let distance = if self.bidirectional { after.unsigned_abs() } else { (-after).max(0).unsigned_abs() };
        let exact = own / 2;
        if distance < exact as u64 {
            return first + distance as usize;
        }
        let range = (self.max_distance as f64 / exact as f64).ln() as f32;
        let far = (distance as f32 / exact as f32).ln() / range * (own - exact) as f32;
        first + (exact + far as usize).min(own - 1)
    }

    /// The buckets of all distances from −`max_distance` to `max_distance`.
    pub fn table(self, device: &Device) -> Tensor<1, Int> {
        let most = self.max_distance as i64;
        integers((-most..=most).map(|after| self.of_distance(after) as i32).collect(), device)
    }

    /// The bucket of each query and key from their [`table`](Self::table), [queries, keys]; the last query stands at the last
    /// key.
    pub fn of_pairs(self, table: &Tensor<1, Int>, queries: usize, keys: usize) -> Tensor<2, Int> {
        let (device, most) = (table.device(), self.max_distance as i64);
        let past = keys as i64 - queries as i64;
        let query: Tensor<2, Int> =
            Tensor::<1, Int>::arange(past..past + queries as i64, &device).reshape([queries, 1]);
        let key: Tensor<2, Int> = Tensor::<1, Int>::arange(0..keys as i64, &device).reshape([1, keys]);
        let after = key.expand([queries, keys]) - query.expand([queries, keys]);
        let places = (after.clamp(-most, most) + most).reshape([queries * keys]);
        table.clone().select(0, places).reshape([queries, keys])
    }
}

/// A bias of scores.
#[derive(Clone, Debug)]
pub struct RelativeBias {
    /// [buckets, heads]
    pub table: Tensor<2>,
    /// The bucket of each query and key, [queries, keys].
    pub buckets: Tensor<2, Int>,
}

impl RelativeBias {
    /// Of `count` queries from `first` on in fp32, [heads, count, keys].
    pub fn of_queries(&self, first: usize, count: usize) -> Tensor<3> {
        let ([_, heads], [_, keys]) = (self.table.dims(), self.buckets.dims());
        let picked = wide(self.table.clone()).select(0, self.pairs(first, count));
        picked.swap_dims(0, 1).reshape([heads, count, keys])
    }

    /// The buckets of `count` queries, [count · keys].
    fn pairs(&self, first: usize, count: usize) -> Tensor<1, Int> {
        let [_, keys] = self.buckets.dims();
        self.buckets.clone().narrow(0, first, count).reshape([count * keys])
    }

    /// The gradient of the table in fp32, [buckets, heads], from that of these queries' bias [heads, count, keys] in fp32.
    /// Pairs of a distance lie on a diagonal: with the queries in reverse and as many zeros behind each row as there are
    /// queries, rows that are one shorter have them in a column. A product with ones adds the distances of a bucket.
    pub fn gradient(&self, of_bias: Tensor<3>, first: usize, math: Fp32Math) -> Tensor<2> {
        let [heads, count, keys] = of_bias.dims();
        let (device, distances) = (of_bias.device(), count + keys - 1);
        let rows = Tensor::<3>::zeros([heads, count, distances + 1], (&device, DType::F32))
            .slice_assign([0..heads, 0..count, 0..keys], of_bias.flip([1]))
            .reshape([heads, count * (distances + 1)]);
        let columns = rows.narrow(1, 0, count * distances).reshape([heads, count, distances]);
        let by_distance = columns.sum_dim(1).reshape([heads, distances]);
        let ones = self.has_bucket(first, count).float().cast(DType::F32);
        product(plain(ones), plain(by_distance.swap_dims(0, 1)), DType::F32, math)
    }

    /// Whether a distance has a bucket, [buckets, distances]: from the last query's first key to the first query's last.
    fn has_bucket(&self, first: usize, count: usize) -> Tensor<2, Bool> {
        let ([buckets, _], [_, keys]) = (self.table.dims(), self.buckets.dims());
        let distances = count + keys - 1;
        let of_last = self.buckets.clone().narrow(0, first + count - 1, 1).reshape([keys]);
        let own = match count - 1 {
            0 => of_last,
            more => {
                let others = self.buckets.clone().narrow(0, first, more).narrow(1, keys - 1, 1);
                Tensor::cat(vec![of_last, others.reshape([more]).flip([0])], 0)
            }
        };
        let all: Tensor<2, Int> = Tensor::<1, Int>::arange(0..buckets as i64, &own.device())
            .cast(own.dtype())
            .reshape([buckets, 1]);
        own.reshape([1, distances]).expand([buckets, distances]).equal(all.expand([buckets, distances]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISTANCES: [i64; 57] = [
        -1000, -129, -128, -127, -100, -91, -90, -64, -63, -33, -32, -31, -24, -23, -17, -16, -15, -13, -12,
        -11, -9, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 15, 16, 17, 22, 23, 31,
        32, 45, 46, 63, 64, 90, 91, 127, 128, 129, 5000,
    ];
    const BIDIRECTIONAL_32: [usize; 57] = [
        15, 15, 15, 15, 15, 15, 14, 14, 13, 12, 12, 11, 11, 11, 10, 10, 9, 9, 9, 8, 8, 8, 7, 6, 5, 4, 3, 2,
        1, 0, 17, 18, 19, 20, 21, 23, 24, 24, 24, 25, 25, 26, 26, 26, 27, 27, 28, 28, 29, 29, 30, 30, 31, 31,
        31, 31, 31,
    ];
    const CAUSAL_32: [usize; 57] = [
        31, 31, 31, 31, 30, 29, 29, 26, 26, 21, 21, 21, 19, 18, 16, 16, 15, 13, 12, 11, 9, 8, 7, 6, 5, 4, 3,
        2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    const BIDIRECTIONAL_6: [usize; 57] = [
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 0, 4, 4, 4, 5,
        5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5,
    ];
    const CAUSAL_6: [usize; 57] = [
        5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 4, 4, 3, 3, 2, 1, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    /// What `T5Attention._relative_position_bucket` of transformers 5.24 gives.
    #[test]
    fn buckets_are_those_of_transformers() {
        let all = |count, max_distance, bidirectional, distances: &[i64]| {
            let buckets = Buckets { count, max_distance, bidirectional };
            distances.iter().map(|after| buckets.of_distance(*after)).collect::<Vec<_>>()
        };
        assert_eq!(all(32, 128, true, &DISTANCES), BIDIRECTIONAL_32);
        assert_eq!(all(32, 128, false, &DISTANCES), CAUSAL_32);
        assert_eq!(all(6, 11, true, &DISTANCES), BIDIRECTIONAL_6);
        assert_eq!(all(6, 11, false, &DISTANCES), CAUSAL_6);
    }

    #[test]
    fn pairs_have_the_buckets_of_their_distances() {
        let buckets = Buckets { count: 6, max_distance: 11, bidirectional: true };
        let device = Device::flex();
        let found = buckets.of_pairs(&buckets.table(&device), 3, 40).into_data();
        let found: Vec<usize> = found.iter::<i64>().map(|bucket| bucket as usize).collect();
        let expected = (0..3).flat_map(|query| (0..40).map(move |key| (query, key)));
        let expected: Vec<usize> = expected.map(|(i, j)| buckets.of_distance(j - (i + 37))).collect();
        assert_eq!(found, expected);
    }
}

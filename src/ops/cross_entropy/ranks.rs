//! The loss of a vocabulary that is divided among ranks (Shoeybi et al. 2019): each knows log Σ exp of its own entries'
//! logits, the largest of them, and the label's where it has that. With these three numbers a token of every rank,
//!
//! ```text
//! log Σ exp = m + log Σ_r exp(lse_r − m)      m = max_r lse_r
//! ```
//!
//! in the order of ranks. Backward needs nothing more: a rank's dlogits follow from its own logits and log Σ exp.

use burn::tensor::{DType, Int, Tensor, TensorData};

use super::vocabulary::Found;
use crate::ops::cpu::integers;
use crate::world::Group;

impl Found {
    /// What is known of each token after the entries of all ranks.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) where another rank does not come.
    pub fn among(self, labels: &Tensor<1, Int>, ranks: &Group) -> Self {
        if ranks.size() == 1 {
            return self;
        }
        let (device, tokens) = (self.lse.device(), self.lse.dims()[0]);
        let numbers = [self.lse, self.largest, self.target];
        let own =
            numbers.into_iter().flat_map(|t| t.into_data().try_into_vec::<f32>().expect("fp32")).collect();
        let all =
            ranks.all_gather("losses of parts of the vocabulary", own, 3 * tokens * ranks.size()).wait();
        let of = |token: usize, number: usize| {
            all.iter().skip(number * tokens + token).step_by(3 * tokens).copied()
        };
        let mut found: [Vec<f32>; 4] = std::array::from_fn(|_| Vec::with_capacity(tokens));
        for (token, label) in integers(labels).into_iter().enumerate() {
            let largest = of(token, 0).fold(f32::NEG_INFINITY, f32::max);
            let lse = largest + of(token, 0).map(|lse| (lse - largest).exp()).sum::<f32>().ln();
            // 0 where the label is another rank's.
            let target = of(token, 2).sum::<f32>();
            let loss = if label < 0 { 0.0 } else { lse - target };
            let most = of(token, 1).fold(f32::NEG_INFINITY, f32::max);
            found.iter_mut().zip([loss, lse, most, target]).for_each(|(all, number)| all.push(number));
        }
        let tensor = |values| Tensor::from_data(TensorData::new(values, [tokens]), (&device, DType::F32));
        let [losses, lse, largest, target] = found.map(tensor);
        Self { losses, lse, largest, target, logits: self.logits }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use burn::tensor::Device;

    use super::*;
    use crate::ops::Operator;
    use crate::ops::cross_entropy::{divided_cross_entropy, evaluate, linear_cross_entropy};
    use crate::ops::dense::Arithmetic;
    use crate::ops::product::Fp32Math;
    use crate::ops::testing::{assert_close, random};
    use crate::world::tests::on_ranks;

    const EXACT: Arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    const VOCAB: usize = 152;

    /// Loss, dh, dW of the own entries, and what evaluation counts.
    fn run(ranks: &Group) -> [Vec<f64>; 4] {
        let rows = VOCAB / ranks.size();
        let weight = random::<2>([VOCAB, 16], 2).inner().narrow(0, ranks.place() * rows, rows);
        let (h, weight) = (random([9, 16], 1).require_grad(), weight.autodiff().require_grad());
        let labels = Tensor::<1, Int>::from_ints([0, 37, 38, -100, 75, 76, 151, 5, -100], &Device::flex());
        let loss = match ranks.size() {
            1 => linear_cross_entropy(h.clone(), weight.clone(), &labels, 7.0, EXACT, Operator::Custom),
            _ => divided_cross_entropy(h.clone(), weight.clone(), &labels, 7.0, EXACT, ranks),
        };
        let mut gradients = (loss.clone() * 3.0).backward();
        let list = |t: Tensor<2>| t.into_data().iter::<f64>().collect::<Vec<_>>();
        let counts = evaluate(h.clone().inner(), weight.clone().inner(), &labels, EXACT, ranks);
        [
            loss.into_data().iter::<f64>().collect(),
            list(h.grad_remove(&mut gradients).unwrap()),
            list(weight.grad_remove(&mut gradients).unwrap()),
            counts.into_data().iter::<f64>().collect(),
        ]
    }

    #[test]
    fn ranks_with_a_part_of_the_vocabulary_have_the_whole_ones_loss_and_gradients() {
        let whole = run(&Group::alone());
        for size in [2, 4] {
            let of_ranks = on_ranks(size, Duration::from_secs(20), |world| run(world.all()));
            for [loss, dh, _, counts] in &of_ranks {
                assert_close(loss, &whole[0], 1e-6);
                assert_close(dh, &whole[1], 2e-6);
                assert_close(counts, &whole[3], 1e-6);
                assert_eq!([loss, dh], [&of_ranks[0][0], &of_ranks[0][1]]);
            }
            let dweight: Vec<f64> = of_ranks.iter().flat_map(|of_rank| of_rank[2].clone()).collect();
            assert_close(&dweight, &whole[2], 2e-6);
        }
    }
}

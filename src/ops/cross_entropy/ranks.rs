//! The loss of a vocabulary that is divided among ranks (Shoeybi et al. 2019): each knows log Σ exp of its own entries'
//! logits, the largest of them, and the label's where it has that. With these three numbers a token of every rank,
//!
//! ```text
//! log Σ exp = m + log Σ_r exp(lse_r − m)      m = max_r lse_r
//! ```
//!
//! in the order of ranks. Backward needs nothing more: a rank's dlogits follow from its own logits and log Σ exp.

use burn::tensor::{Int, Tensor};

use super::vocabulary::Found;
use crate::ops::flat::part;
use crate::world::ProcessGroup;

impl Found {
    /// What is known of each token after the entries of all ranks.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) where another rank does not come.
    pub fn among(self, labels: &Tensor<1, Int>, ranks: &ProcessGroup) -> Self {
        if ranks.size() == 1 {
            return self;
        }
        let tokens = self.lse.dims()[0];
        let own = Tensor::cat(vec![self.lse, self.largest, self.target], 0);
        let all =
            ranks.put_together("losses of parts of the vocabulary", own).wait().expect("every rank gets it");
        let of_ranks = |number: usize| {
            let first = move |rank: usize| (3 * rank + number) * tokens;
            (0..ranks.size()).map(move |rank| first(rank)..first(rank) + tokens).map(|of| part(&all, of))
        };
        let over = |number: usize, add: fn(Tensor<1>, Tensor<1>) -> Tensor<1>| {
            of_ranks(number).reduce(add).expect("a rank")
        };
        let most: Tensor<1> = over(0, Tensor::max_pair);
        let sum = of_ranks(0).map(|lse| (lse - most.clone()).exp()).reduce(|a, b| a + b).expect("a rank");
        let lse = most + sum.log();
        // 0 where the label is another rank's.
        let (largest, target) = (over(1, Tensor::max_pair), over(2, |a, b| a + b));
        let losses = (lse.clone() - target.clone()).mask_fill(labels.clone().lower_elem(0), 0.0);
        Self { losses, lse, largest, target, logits: self.logits }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use burn::tensor::{DType, Device};

    use super::*;
    use crate::ops::Operator;
    use crate::ops::cross_entropy::{
        HeadArithmetic, Logits, divided_cross_entropy, evaluate, linear_cross_entropy,
    };
    use crate::ops::dense::Arithmetic;
    use crate::ops::product::Fp32Math;
    use crate::ops::testing::{assert_close, random};
    use crate::world::tests::on_ranks;

    const EXACT: Arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };
    const VOCAB: usize = 152;

    /// Loss, dh, dW of the own entries, and what evaluation counts.
    fn run(ranks: &ProcessGroup, soft_cap: Option<f64>) -> [Vec<f64>; 4] {
        let scale = if soft_cap.is_some() { 0.5 } else { 1.0 };
        let head = HeadArithmetic { arithmetic: EXACT, logits: Logits { scale, soft_cap } };
        let rows = VOCAB / ranks.size();
        let weight = random::<2>([VOCAB, 16], 2).inner().narrow(0, ranks.place() * rows, rows);
        let (h, weight) = (random([9, 16], 1).require_grad(), weight.autodiff().require_grad());
        let labels = Tensor::<1, Int>::from_ints([0, 37, 38, -100, 75, 76, 151, 5, -100], &Device::flex());
        let loss = match ranks.size() {
            1 => linear_cross_entropy(h.clone(), weight.clone(), &labels, 7.0, head, Operator::Custom, false),
            _ => divided_cross_entropy(h.clone(), weight.clone(), &labels, 7.0, head, ranks),
        };
        let mut gradients = (loss.clone() * 3.0).backward();
        let list = |t: Tensor<2>| t.into_data().iter::<f64>().collect::<Vec<_>>();
        let counts = evaluate(h.clone().inner(), weight.clone().inner(), &labels, head, ranks);
        [
            loss.into_data().iter::<f64>().collect(),
            list(h.grad_remove(&mut gradients).unwrap()),
            list(weight.grad_remove(&mut gradients).unwrap()),
            counts.into_data().iter::<f64>().collect(),
        ]
    }

    #[test]
    fn ranks_with_a_part_of_the_vocabulary_have_the_whole_ones_loss_and_gradients() {
        for (size, soft_cap) in [(2, None), (4, None), (2, Some(1.5)), (4, Some(1.5))] {
            let whole = run(&ProcessGroup::alone(), soft_cap);
            let of_ranks = on_ranks(size, Duration::from_secs(20), |world| run(world.all(), soft_cap));
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

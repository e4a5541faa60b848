//! [`Blocks`]: text without gaps, cut into blocks of `train.seq_len` tokens, in random order.

use std::iter::from_fn;

use super::{Epoch, Method, Rows, SamplingPlan, shuffled};
use crate::keys::Section;
use crate::keys::section::section;

section! {
    /// No samples: all text joined and cut into blocks of `train.seq_len` tokens.
    #[derive(Copy, Eq)]
    pub struct Blocks: Section::of("data", "sampler", &["blocks"]) => {}
}

impl Method for Blocks {
    fn rows(&self) -> Rows {
        Rows::Full
    }

    fn keeps_samples(&self) -> bool {
        false
    }

    /// All epochs as one without end: a batch at the end of an epoch is filled up from the next, so that all
    /// batches are of equal size.
    fn epoch(&self, plan: &SamplingPlan, epoch: u64) -> Box<dyn Epoch> {
        let (plan, batch_size) = (plan.clone(), plan.batch_size);
        let mut blocks = (epoch..).flat_map(move |epoch| shuffled(plan.lengths.len(), &mut plan.rng(epoch)));
        Box::new(from_fn(move || Some(blocks.by_ref().take(batch_size).collect())))
    }

    fn largest(&self, plan: &SamplingPlan) -> Vec<u32> {
        (0..plan.lengths.len() as u32).cycle().take(plan.batch_size).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Draws, Position, Sampler, SamplerConfig};
    use super::*;

    /// Of ten blocks, from `start` on.
    fn draws(batch_size: usize, seed: u64, start: Position) -> impl Iterator<Item = Vec<u32>> {
        let config = SamplerConfig::of(Sampler::Blocks(Blocks {}));
        let plan = SamplingPlan { config, lengths: Arc::new(vec![4; 10]), batch_size, max_length: 4, seed };
        Draws::new(plan, start).map(|draw| draw.samples)
    }

    #[test]
    fn every_epoch_shows_every_block_once_in_an_order_of_its_own() {
        let mut seen: Vec<u32> = draws(3, 1, Position::default()).take(20).flatten().collect();
        assert_eq!(seen.len(), 60, "all batches are full");
        assert_ne!(seen[..10], seen[10..20]);
        for epoch in seen.chunks_mut(10) {
            epoch.sort_unstable();
            assert!(epoch.iter().copied().eq(0..10));
        }
    }

    /// Ten blocks, in steps of three batches of two.
    #[test]
    fn the_steps_of_epochs_follow_from_the_blocks() {
        let config = SamplerConfig::of(Sampler::Blocks(Blocks {}));
        let plan =
            SamplingPlan { config, lengths: Arc::new(vec![4; 10]), batch_size: 2, max_length: 4, seed: 1 };
        assert_eq!([1, 2, 3, 6].map(|epochs| plan.steps(epochs, 3)), [2, 4, 5, 10]);
        assert_eq!([1, 3].map(|epochs| plan.steps(epochs, 1)), [5, 15]);
        // All blocks of the epochs are seen.
        let seen: Vec<u32> =
            Draws::new(plan.clone(), Position::default()).take(3 * 5).flat_map(|draw| draw.samples).collect();
        assert!((0..10).all(|block| seen.iter().filter(|other| **other == block).count() == 3));
    }

    #[test]
    fn a_seed_gives_one_order_and_resuming_continues_it() {
        let take =
            |seed, index| -> Vec<Vec<u32>> { draws(3, seed, Position { epoch: 0, index }).take(8).collect() };
        assert_ne!(take(1, 0), take(2, 0));
        let whole: Vec<Vec<u32>> = draws(3, 1, Position::default()).take(20).collect();
        for index in 0..12 {
            assert_eq!(take(1, index), whole[index..][..8]);
        }
    }

    #[test]
    fn a_batch_may_have_more_blocks_than_there_are() {
        let batch = draws(25, 1, Position::default()).next().expect("there is no end");
        let times = |block: u32| batch.iter().filter(|other| **other == block).count();
        assert!(batch.len() == 25 && (0..10).all(|block| (2..=3).contains(&times(block))), "{batch:?}");
    }
}

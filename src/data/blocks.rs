//! [`Blocks`]: a stream of tokens cut into sequences of equal length, and the order in which
//! training sees them.

use std::sync::Arc;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::DataError;

/// Sequences of `seq_len` tokens, one after the other as they stand in the corpus. Labels are the
/// same tokens, shifted by the model.
#[derive(Clone, Debug)]
pub struct Blocks {
    tokens: Vec<u32>,
    seq_len: usize,
}

impl Blocks {
    /// Joins documents, each followed by the end-of-text token. What is left over after the last
    /// whole block is dropped.
    ///
    /// # Errors
    /// When there is not one whole block.
    pub fn new(
        documents: impl IntoIterator<Item = Vec<u32>>,
        end_of_text: u32,
        seq_len: usize,
    ) -> Result<Self, DataError> {
        let mut tokens = Vec::new();
        for document in documents {
            tokens.extend(document);
            tokens.push(end_of_text);
        }
        Self::from_tokens(tokens, seq_len)
    }

    /// # Errors
    /// When there is not one whole block.
    pub fn from_tokens(mut tokens: Vec<u32>, seq_len: usize) -> Result<Self, DataError> {
        if tokens.len() < seq_len {
            return Err(DataError::new(format!(
                "the corpus has {} tokens, less than one sequence of {seq_len}; make train.seq_len smaller \
                 or the corpus larger",
                tokens.len()
            )));
        }
        tokens.truncate(tokens.len() / seq_len * seq_len);
        Ok(Self { tokens, seq_len })
    }

    /// Number of blocks.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one block")]
    pub fn len(&self) -> usize {
        self.tokens.len() / self.seq_len
    }

    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// Block `index`: [seq_len].
    ///
    /// # Panics
    /// When there is no such block.
    pub fn get(&self, index: usize) -> &[u32] {
        &self.tokens[index * self.seq_len..][..self.seq_len]
    }

    /// All blocks in the order of the corpus, as for evaluation.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.tokens.chunks_exact(self.seq_len)
    }
}

/// How far training has come: the next block, or batch of samples, is number `index` of the epoch's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    pub epoch: u64,
    pub index: usize,
}

/// Batches without end. Each epoch has an order of its own, drawn from the seed, and shows every
/// block once; a batch at the end of an epoch is filled up from the next.
#[derive(Clone, Debug)]
pub struct Batches {
    blocks: Arc<Blocks>,
    seed: u64,
    batch_size: usize,
    next: Position,
    order: Vec<u32>,
}

impl Batches {
    /// Batches from `start` on, the same ones that an uninterrupted run would see.
    pub fn new(blocks: Arc<Blocks>, batch_size: usize, seed: u64, start: Position) -> Self {
        let order = order(blocks.len(), seed, start.epoch);
        Self { blocks, seed, batch_size, next: start, order }
    }

    /// Where the next batch starts; [`Batches::new`] resumes from it.
    pub fn position(&self) -> Position {
        self.next
    }

    fn next_block(&mut self) -> &[u32] {
        if self.next.index >= self.order.len() {
            self.next = Position { epoch: self.next.epoch + 1, index: 0 };
            self.order = order(self.blocks.len(), self.seed, self.next.epoch);
        }
        let block = self.order[self.next.index];
        self.next.index += 1;
        self.blocks.get(block as usize)
    }
}

/// [batch_size, seq_len] tokens, row by row.
impl Iterator for Batches {
    type Item = Vec<u32>;

    fn next(&mut self) -> Option<Vec<u32>> {
        let mut batch = Vec::with_capacity(self.batch_size * self.blocks.seq_len);
        for _ in 0..self.batch_size {
            batch.extend_from_slice(self.next_block());
        }
        Some(batch)
    }
}

/// The blocks of an epoch in the order they are seen.
fn order(blocks: usize, seed: u64, epoch: u64) -> Vec<u32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(epoch);
    let mut order: Vec<u32> = (0..blocks as u32).collect();
    order.shuffle(&mut rng);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten_blocks() -> Arc<Blocks> {
        Arc::new(Blocks::from_tokens((0..43).collect(), 4).unwrap())
    }

    /// The first token of each block in a batch.
    fn heads(batch: &[u32]) -> Vec<u32> {
        batch.chunks(4).map(|block| block[0]).collect()
    }

    #[test]
    fn documents_are_joined_and_the_rest_is_dropped() {
        let blocks = Blocks::new([vec![1, 2, 3], vec![], vec![4, 5]], 0, 4).unwrap();
        assert_eq!(blocks.iter().collect::<Vec<_>>(), [[1, 2, 3, 0], [0, 4, 5, 0]]);
        let message = Blocks::new([vec![1, 2]], 0, 4).unwrap_err().to_string();
        assert!(message.contains("has 3 tokens, less than one sequence of 4"), "{message}");
    }

    #[test]
    fn an_epoch_shows_every_block_once() {
        let mut seen: Vec<u32> = Batches::new(ten_blocks(), 3, 1, Position::default())
            .take(20)
            .flat_map(|batch| heads(&batch))
            .collect();
        assert_eq!(seen.len(), 60);
        let orders: Vec<Vec<u32>> = seen.chunks(10).map(<[u32]>::to_vec).collect();
        assert_ne!(orders[0], orders[1], "each epoch has its own order");
        for epoch in seen.chunks_mut(10) {
            epoch.sort_unstable();
            assert_eq!(epoch, (0..40).step_by(4).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn a_seed_gives_one_order() {
        let first = |seed| {
            Batches::new(ten_blocks(), 10, seed, Position::default()).next().map(|batch| heads(&batch))
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn resuming_continues_the_same_batches() {
        let mut whole = Batches::new(ten_blocks(), 3, 1, Position::default());
        for step in 0..12 {
            let json = serde_json::to_string(&whole.position()).unwrap();
            let start = serde_json::from_str(&json).unwrap();
            let resumed = Batches::new(ten_blocks(), 3, 1, start);
            let expected: Vec<_> = whole.clone().take(8).collect();
            assert_eq!(resumed.take(8).collect::<Vec<_>>(), expected, "step {step}");
            whole.next();
        }
    }
}

//! [`Maker`]: batches one after the other, of all samples or of the buffers of a stream.

use std::sync::Arc;

use super::{Finish, Message};
use crate::data::{Collator, DataError, Draw, Draws, Position, SamplingPlan, Stream};

/// Buffers without a batch, one after the other, say that there is none.
const MOST_EMPTY: usize = 100;

/// Makes one batch after the other.
pub struct Maker<T> {
    pub draws: Draws,
    pub collator: Arc<Collator>,
    /// The text behind these samples; `None`: they are all.
    pub rest: Option<Rest>,
    pub finish: Finish<T>,
    /// After each of its own draws, how many are other threads'.
    pub skip: usize,
}

/// A stream and the buffer of it that is drawn from.
pub struct Rest {
    stream: Stream,
    plan: SamplingPlan,
    collator: Arc<Collator>,
    number: u64,
}

impl Rest {
    /// Takes the next buffer.
    fn advance(&mut self) -> Result<(), DataError> {
        let ended = || DataError::new("the thread that reads the text has ended after an error");
        let samples = self.stream.next().ok_or_else(ended)??;
        self.plan.lengths = Arc::new(samples.lengths());
        self.collator = Arc::new(Collator { samples, ..*self.collator });
        self.number += 1;
        Ok(())
    }
}

impl<T> Maker<T> {
    /// Batches of a stream from `start` on. The plan and the collator are of its first buffer.
    ///
    /// # Errors
    /// When the text before `start` cannot be read.
    pub fn streamed(
        plan: SamplingPlan,
        collator: Arc<Collator>,
        stream: Stream,
        start: Position,
        finish: Finish<T>,
    ) -> Result<Self, DataError> {
        let mut rest = Rest { stream, plan, collator, number: 0 };
        while rest.number < start.epoch {
            rest.advance()?;
        }
        let (draws, collator) = (Draws::of_epoch(rest.plan.clone(), start), rest.collator.clone());
        Ok(Self { draws, collator, rest: Some(rest), finish, skip: 0 })
    }

    /// The next draw, of the first buffer that has one.
    fn draw(&mut self) -> Result<Draw, DataError> {
        let mut dropped = 0;
        for _ in 0..MOST_EMPTY {
            if let Some(draw) = self.draws.next() {
                return Ok(Draw { dropped: draw.dropped + dropped, ..draw });
            }
            dropped += self.draws.passed_over();
            let Some(rest) = &mut self.rest else { break };
            rest.advance()?;
            self.draws = Draws::of_epoch(rest.plan.clone(), Position::of_epoch(rest.number));
            self.collator = rest.collator.clone();
        }
        Err(DataError::new(
            "the sampler has no batch: drop_last leaves out all of them; make train.batch_size smaller, \
             or remove data.drop_last",
        ))
    }

    pub fn make(&mut self) -> Message<T> {
        let draw = self.draw()?;
        self.draws.by_ref().take(self.skip).for_each(drop);
        let mut batch = self.collator.collate(&draw.samples)?;
        batch.counts.dropped_samples = draw.dropped as u64;
        Ok(((self.finish)(batch), draw.next))
    }
}

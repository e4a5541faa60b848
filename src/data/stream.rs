//! [`Stream`]: a text that is read as training goes on, one buffer of samples after the other.
//!
//! A buffer is an epoch of the sampler: its samples are in batches before the next ones are. While batches are drawn from one,
//! a thread reads and tokenises the next. Each pass over the text has its files in another random order.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rand::seq::SliceRandom;

use super::reader::Records;
use super::record::Record;
use super::samples::{Encoder, Store, encode_after, size};
use super::{Corpus, DataError, SampleUnit, Samples, Split, random_stream};

/// Bytes of text that a token has, about.
const BYTES_OF_TOKEN: usize = 4;

/// What a stream reads, and what it makes of it.
pub struct Reads {
    pub corpus: Corpus,
    pub split: Split,
    pub unit: SampleUnit,
    pub encoder: Encoder,
    /// Tokens of the vocabulary that the model has rows for.
    pub rows: usize,
    pub skip_broken: bool,
    /// Whether a sample is a block of joined text.
    pub joins: bool,
    /// Samples of a buffer, and the most tokens of each. A buffer has no more text than so many samples of this length.
    pub samples: usize,
    pub max_length: usize,
    pub seed: u64,
}

type Buffer = Result<Samples, DataError>;

/// Buffers without end, pass after pass; an error is the last.
pub struct Stream(Receiver<Buffer>);

impl Stream {
    /// Its thread ends with it, or at the first error.
    pub fn new(reads: Reads) -> Self {
        // The buffer that waits to be taken is the only one that is ready.
        let (sender, buffers) = sync_channel(0);
        std::thread::spawn(move || {
            let goes_on = |number| {
                reads.pass(number, &sender).unwrap_or_else(|e| {
                    // Nobody waits where the cell has ended.
                    let _ = sender.send(Err(e));
                    false
                })
            };
            (0..).find(|number| !goes_on(*number))
        });
        Self(buffers)
    }
}

impl Iterator for Stream {
    type Item = Buffer;

    fn next(&mut self) -> Option<Buffer> {
        self.0.recv().ok()
    }
}

impl Reads {
    /// Reads the text once; whether anybody wants more of it.
    fn pass(&self, number: u64, buffers: &SyncSender<Buffer>) -> Result<bool, DataError> {
        let mut rng = random_stream(self.seed, u64::MAX - number);
        let records = self.corpus.records(self.split, self.unit)?;
        let mut records = records.within(self.rows).in_order(|files| files.shuffle(&mut rng));
        let (mut sent, mut unused, mut read) = (false, None, 0);
        loop {
            let before = records.left_out();
            let mut part = Part { left: self.samples, bytes: self.bytes(), records: &mut records };
            let mut store = encode_after(read, &mut part, &self.encoder, self.skip_broken)?;
            let count = self.samples - part.left;
            if count == 0 {
                break;
            }
            read += count;
            let left_out = records.left_out();
            store.broken += (left_out.broken - before.broken) as u64;
            store.duplicates = (left_out.duplicates - before.duplicates) as u64;
            let samples = match self.made(store) {
                Ok(samples) => samples,
                // The last buffer may be too small.
                Err(e) => {
                    unused = Some(e);
                    continue;
                }
            };
            if buffers.send(Ok(samples)).is_err() {
                return Ok(false);
            }
            sent = true;
        }
        match unused {
            _ if sent => Ok(true),
            Some(e) => Err(e),
            None => Err(DataError::new(format!("the split \"{}\" has no text", self.split))),
        }
    }

    fn bytes(&self) -> usize {
        self.samples.saturating_mul(self.max_length).saturating_mul(BYTES_OF_TOKEN)
    }

    fn made(&self, store: Store) -> Buffer {
        match self.joins {
            true => Samples::blocks(Arc::new(store), self.max_length),
            false => Samples::stored(Arc::new(store), self.encoder.padding(), self.max_length),
        }
    }
}

/// The records of a buffer.
struct Part<'r> {
    records: &'r mut Records,
    /// Records that it has room for, and about how many bytes of them.
    left: usize,
    bytes: usize,
}

impl Iterator for Part<'_> {
    type Item = Result<Record, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 || self.bytes == 0 {
            return None;
        }
        let record = self.records.next()?;
        self.left -= 1;
        self.bytes = self.bytes.saturating_sub(record.as_ref().map_or(0, size));
        Some(record)
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;

//! [`encode_all`]: the tokens of a stream of records, made by all cores and few records at a time.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::scope;

use minijinja::Value;
use rayon::prelude::*;

use super::encoder::{Encoded, Encoder};
use super::store::Store;
use crate::data::DataError;
use crate::data::record::Record;

/// Bytes of text and records that are encoded at once, and how many such batches are read ahead: few beside the tokens,
/// and enough that no core waits.
const BATCH: usize = 2 << 20;
const RECORDS: usize = 4096;
const AHEAD: usize = 2;

/// Records in the order in which they are read.
pub type Source<'r> = dyn Iterator<Item = Result<Record, DataError>> + Send + 'r;

/// The tokens of all records. `skip`: those that cannot be encoded are left out and counted.
///
/// # Errors
/// When a record cannot be read, or encoded.
pub fn encode_all(records: &mut Source, encoder: &Encoder, skip: bool) -> Result<Store, DataError> {
    encode_after(0, records, encoder, skip)
}

/// The same, behind so many records.
///
/// # Errors
/// As [`encode_all`].
pub fn encode_after(
    mut number: usize,
    records: &mut Source,
    encoder: &Encoder,
    skip: bool,
) -> Result<Store, DataError> {
    let mut store = Store::empty();
    scope(|threads| {
        let (sender, batches) = sync_channel(AHEAD);
        threads.spawn(move || {
            let mut batches = Batches(records);
            // Refused when an error has ended the encoding.
            while batches.next().is_some_and(|batch| sender.send(batch).is_ok()) {}
        });
        let batches: Receiver<Result<Vec<Record>, DataError>> = batches;
        for batch in batches {
            let encoded: Vec<Result<Encoded, DataError>> =
                batch?.par_iter().map(|record| encoder.encode(record)).collect();
            for sample in encoded {
                number += 1;
                match sample {
                    Ok(sample) => store.push(&sample),
                    Err(_) if skip => store.broken += 1,
                    Err(e) => return Err(DataError::new(format!("sample {number}: {e}"))),
                }
            }
        }
        Ok(())
    })?;
    Ok(store)
}

/// Records that are encoded at once.
struct Batches<'a, 'r>(&'a mut Source<'r>);

impl Iterator for Batches<'_, '_> {
    type Item = Result<Vec<Record>, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH && batch.len() < RECORDS {
            match self.0.next() {
                Some(Ok(record)) => {
                    bytes += size(&record);
                    batch.push(record);
                }
                Some(Err(e)) => return Some(Err(e)),
                None => break,
            }
        }
        (!batch.is_empty()).then_some(Ok(batch))
    }
}

/// Bytes of a message, about; of one whose content is no text a guess.
fn content(message: &Value) -> usize {
    let content = message.get_attr("content").unwrap_or_default();
    content.as_str().map_or(512, str::len)
}

/// Bytes of a record's text, about.
pub fn size(record: &Record) -> usize {
    match record {
        Record::Text(text) => text.len(),
        Record::Pair(pair) => pair.prompt.len() + pair.completion.len(),
        Record::Chat(chat) => chat.messages.iter().map(content).sum(),
        Record::Tokens(tokens) => 4 * tokens.ids.len(),
    }
}

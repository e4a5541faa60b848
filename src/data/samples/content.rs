//! [`Content`]: where the tokens of samples are, or what they are made of.

use std::sync::Arc;

use rayon::prelude::*;

use super::encode::Source;
use super::encoder::{Encoded, Encoder};
use super::store::Store;
use super::token;
use crate::data::DataError;
use crate::data::record::Record;

/// The samples of a split, those with nothing to learn among them.
pub enum Content {
    /// Blocks of `max_length` tokens, one after the other.
    Blocks(Arc<Store>),
    Stored(Arc<Store>),
    /// Records that are encoded whenever they are asked for.
    Late {
        records: Vec<Record>,
        extents: Vec<Extent>,
        encoder: Box<Encoder>,
        /// Records that could not be read or encoded, and those that another split has.
        left_out: (u64, u64),
    },
}

impl Content {
    /// # Errors
    /// A record that cannot be read; one that cannot be encoded, unless `skip`.
    pub fn late(records: &mut Source, encoder: Encoder, skip: bool) -> Result<Self, DataError> {
        let records = records.collect::<Result<Vec<Record>, _>>()?;
        let all = records.len();
        // The lengths alone are kept: how large a batch can be follows from them.
        let extent = |record: Record| match encoder.encode(&record) {
            Ok(Encoded { tokens, last_label }) => {
                Some(Ok((record, Extent::new(tokens.len(), token::given(&tokens), last_label))))
            }
            Err(_) if skip => None,
            Err(e) => Some(Err(e)),
        };
        let made: Result<Vec<_>, DataError> = records.into_par_iter().filter_map(extent).collect();
        let (records, extents): (Vec<Record>, Vec<Extent>) = made?.into_iter().unzip();
        let left_out = ((all - records.len()) as u64, 0);
        Ok(Self::Late { records, extents, encoder: Box::new(encoder), left_out })
    }
}

/// How long a sample is.
#[derive(Clone, Copy)]
pub struct Extent {
    /// In tokens, uncut.
    pub length: usize,
    /// Tokens that have to be left of it, so that one of them is learned; more than there are if none is.
    pub least: usize,
}

impl Extent {
    pub fn new(length: usize, given: usize, last_label: Option<u32>) -> Self {
        let least = match last_label {
            _ if given < length => given + 1,
            Some(_) => length,
            None => usize::MAX,
        };
        Self { length, least }
    }
}

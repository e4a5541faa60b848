//! Copies of other blocks run behind the computation of one.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::Movement;
use crate::words::key::{DefaultValue, Key, Section, Values};
use crate::words::values;

/// `strategy = "overlap"`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overlap {
    /// Slots on the device for the weights of blocks.
    #[serde(deserialize_with = "buffers")]
    pub buffers: usize,
}

/// One block computes, one is there, one is on its way.
const BUFFERS: usize = 3;
const MOST: usize = 4;

impl Default for Overlap {
    fn default() -> Self {
        Self { buffers: BUFFERS }
    }
}

impl Overlap {
    pub const SECTION: Section = Section::of(
        "offload",
        "strategy",
        &["overlap"],
        "As function, with the copies of other blocks behind the computation of one.",
        &[Key::method(
            "buffers",
            Values::Whole { least: 1, most: MOST as i64 },
            DefaultValue::Whole(BUFFERS as i64),
            "Slots on the device for the weights of blocks: how far ahead to copy.",
        )
        .reads(&[("1", "1 buffer"), ("", "{} buffers")])],
    );
}

fn buffers<'de, D: Deserializer<'de>>(d: D) -> Result<usize, D::Error> {
    match values::count(d)? {
        n if n <= MOST => Ok(n),
        n => Err(Error::custom(format!(
            "offload.buffers = {n} is not from 1 to {MOST}; use {BUFFERS}: one block computes, one is there, one is \
             on its way"
        ))),
    }
}

impl Movement for Overlap {
    fn buffers(&self) -> usize {
        self.buffers
    }

    /// All slots but the one that is computed from.
    fn ahead(&self, slots: usize) -> Option<usize> {
        Some(slots - 1)
    }
}

//! The host waits for every copy and every block.

use serde::{Deserialize, Serialize};

use super::Movement;
use crate::words::Section;

/// `strategy = "naive"`: after each block all are on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Naive {}

impl Naive {
    pub const SECTION: Section =
        Section::of("offload", "strategy", &["naive"], "The host waits for every copy and every block.", &[]);
}

impl Movement for Naive {
    fn host_waits(&self) -> bool {
        true
    }
}

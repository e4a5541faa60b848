//! The host waits for every copy and every block.

use super::Movement;
use crate::keys::Section;
use crate::keys::section::section;

section! {
    /// Each block is copied in, computes and is released; the host waits for every copy.
    #[derive(Copy, Default, Eq)]
    pub struct Naive: Section::of("offload", "strategy", &["naive"]) => {}
}

impl Movement for Naive {
    fn host_waits(&self) -> bool {
        true
    }
}

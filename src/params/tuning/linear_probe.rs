//! Linear probing: a classifier on features that stay as they are.

use super::Tunes;
use crate::keys::Section;
use crate::keys::section::section;

section! {
    /// The classifier alone is trained, on frozen features.
    #[derive(Copy, Default)]
    pub struct LinearProbe: Section::of("tuning", "method", &["linear_probe"]) => {}
}

impl Tunes for LinearProbe {
    fn needs_classes(&self) -> bool {
        true
    }
}

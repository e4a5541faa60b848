//! Full tuning: every parameter is trained.

use super::Tunes;
use crate::keys::Section;
use crate::keys::section::section;
use crate::ops::cost::Trained;

section! {
    /// Every parameter is trained.
    #[derive(Copy, Default)]
    pub struct Full: Section::of("tuning", "method", &["full"]) => {}
}

impl Tunes for Full {
    fn trained(&self) -> Trained {
        Trained::ALL
    }
}

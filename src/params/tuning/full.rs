//! Full tuning: every parameter is trained.

use super::Tunes;
use crate::ops::cost::Trained;
use crate::words::Section;
use crate::words::section::section;

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

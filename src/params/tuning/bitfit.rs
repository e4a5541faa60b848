//! BitFit (Ben Zaken et al. 2022): biases alone are trained.

use super::Tunes;
use crate::ops::cost::Trained;
use crate::words::Section;
use crate::words::section::section;

section! {
    /// Biases alone are trained.
    #[derive(Copy, Default)]
    pub struct BitFit: Section::of("tuning", "method", &["bitfit"]) => {}
}

impl Tunes for BitFit {
    fn trained(&self) -> Trained {
        Trained::BIASES
    }
}

//! BitFit (Ben Zaken et al. 2022): biases alone are trained.

use super::Tunes;
use crate::keys::Section;
use crate::keys::section::section;
use crate::ops::cost::Trained;

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

//! The learning rate as it is.

use super::Factor;
use crate::keys::Section;
use crate::keys::section::section;

section! {
    /// The learning rate as it is.
    #[derive(Copy)]
    pub struct Constant: Section::of("train.schedule", "kind", &["constant"]) => {}
}

impl Factor for Constant {
    fn factor(&self, _step: usize, _total: usize) -> f64 {
        1.0
    }
}

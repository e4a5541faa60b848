//! Learning-rate schedules: the factor of the optimizer's `lr` at each step. A schedule is one file: its keys, and
//! [`Factor`].

mod constant;
mod cosine;

use serde::{Deserialize, Serialize};

use crate::keys::key::DefaultValue::Word;
use crate::keys::section::kinds;
use crate::keys::values::Values;
use crate::keys::{Key, Section};

kinds! {
    /// `train.schedule`
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Schedule: Factor {
        Constant(constant::Constant),
        Cosine(cosine::Cosine),
    }
}

/// What the kinds of schedules have in common.
pub trait Factor {
    /// The factor at `step`, counted from 1, of `total` steps.
    fn factor(&self, step: usize, total: usize) -> f64;
}

impl Schedule {
    pub const KEY: Section = Section::new("train.schedule").with(
        "The factor of the learning rate at each step.",
        &[Key::method(Values::Kinds)
            .named("kind", "Which schedule.")
            .called("schedule")
            .default(Word("constant"))],
    );
}

impl Default for Schedule {
    fn default() -> Self {
        Self::Constant(constant::Constant {})
    }
}

//! Linear probing, then full fine-tuning (Kumar et al. 2022, "Fine-Tuning can Distort Pretrained Features and Underperform
//! Out-of-Distribution").

use super::{LinearProbe, Tunes, TuningConfig};
use crate::keys::key::DefaultValue::Whole;
use crate::keys::section::section;
use crate::keys::values::COUNT;
use crate::keys::{Key, Section};
use crate::ops::cost::Trained;

section! {
    /// The classifier alone is trained first, and then every parameter, by a new optimizer.
    #[derive(Copy)]
    pub struct LpFt: Section::of("tuning", "method", &["lp_ft"]) => {
        /// Steps in which the classifier alone is trained.
        pub probe_steps: usize = Key::method(COUNT).default(Whole(100)),
    }
}

impl Tunes for LpFt {
    /// Of the steps after the probe.
    fn trained(&self) -> Trained {
        Trained::ALL
    }

    fn needs_classes(&self) -> bool {
        true
    }

    fn phase(&self, updates: usize) -> Option<TuningConfig> {
        (updates < self.probe_steps).then_some(TuningConfig::LinearProbe(LinearProbe {}))
    }

    fn probe_steps(&self) -> Option<usize> {
        Some(self.probe_steps)
    }
}

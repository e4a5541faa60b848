//! A straight line from 0, and then half a cosine (Loshchilov and Hutter 2017).

use std::f64::consts::PI;

use super::Factor;
use crate::keys::key::DefaultValue::{Number, Whole};
use crate::keys::section::section;
use crate::keys::values::{COUNT_OR_ZERO, FRACTION};
use crate::keys::{Key, Section};

section! {
    /// A straight line from 0, and then half a cosine (Loshchilov and Hutter 2017).
    ///
    /// It ends at `final_fraction` at the cell's last step. With step t counted from 1, w warm-up steps, n steps in
    /// all and f the final fraction:
    ///
    /// ```text
    /// t ≤ w:  t / w        t > w:  f + (1 − f) · (1 + cos(π (t − w) / (n − w))) / 2
    /// ```
    #[derive(Copy)]
    pub struct Cosine: Section::of("train.schedule", "kind", &["cosine"]) => {
        /// Steps of the straight line.
        pub warmup_steps: usize =
            Key::method(COUNT_OR_ZERO).default(Whole(0)),
        /// Share of the learning rate that is left at the last step.
        pub final_fraction: f64 =
            Key::method(FRACTION).default(Number(0.0)),
    }
}

impl Factor for Cosine {
    fn factor(&self, step: usize, total: usize) -> f64 {
        let Self { warmup_steps, final_fraction } = *self;
        if step <= warmup_steps {
            return step as f64 / warmup_steps as f64;
        }
        let progress = (step - warmup_steps) as f64 / total.saturating_sub(warmup_steps).max(1) as f64;
        let cosine = (1.0 + (PI * progress.min(1.0)).cos()) / 2.0;
        final_fraction + (1.0 - final_fraction) * cosine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_rises_and_the_cosine_falls_to_its_end() {
        let cosine = Cosine { warmup_steps: 4, final_fraction: 0.1 };
        let at = |step| cosine.factor(step, 12);
        assert_eq!([at(1), at(2), at(4)], [0.25, 0.5, 1.0]);
        // Half-way between steps 4 and 12: the mean of 1 and 0.1.
        assert!((at(8) - 0.55).abs() < 1e-12);
        assert!((at(12) - 0.1).abs() < 1e-12);
    }
}

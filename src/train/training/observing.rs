//! Observations between steps: quality on held-out text, sizes of gradients, and the record of one more step.

use std::path::Path;

use burn::tensor::Tensor;

use super::Training;
use crate::common::files::write_whole;
use crate::common::streams::tell;
use crate::device::trace::{self, Mark};
use crate::measure::{Crossing, Evaluation, FeatureDistance, GradientHistogram, Stop, diverged};
use crate::ops::autocast::autocast;
use crate::ops::wide;
use crate::precision::gradient_histogram;
use crate::recipe::Cell;
use crate::train::build::Build;
use crate::train::step::PhaseEnd;

impl<N: Build> Training<'_, N> {
    /// The sizes of the gradients of the next step's first micro-batch.
    pub fn count_gradients(&self) -> GradientHistogram {
        let scale = self.current().scale().map_or(1.0, |scale| scale.into_scalar::<f32>());
        gradient_histogram(self.network(), f64::from(scale), || self.current().gradients(&self.batches[0]))
    }

    /// Whether to evaluate: `now`, or as often as the recipe asks.
    pub fn evaluation_is_due(&self, now: bool) -> bool {
        self.cell.eval.is_some_and(|eval| now || self.current().updates.is_multiple_of(eval.every))
    }

    /// Measures quality on held-out batches, if the recipe asks for it.
    ///
    /// # Errors
    /// When it is not finite.
    pub fn evaluate(&mut self) -> Result<(), Stop> {
        let Some(eval) = self.cell.eval else { return Ok(()) };
        let network = self.network().valid();
        // The same batches every time.
        if self.held_out.is_empty() {
            self.held_out = (0..eval.batches).map_while(|_| self.feed.held_out()).collect();
        }
        let _region = autocast(self.cell.precision.region());
        let parts: Vec<(Evaluation, f64)> =
            self.held_out.iter().map(|batch| network.evaluate(batch)).collect();
        let mean = Evaluation::mean(self.current().updates, &parts);
        self.results.evaluations.push(mean);
        if mean.loss.is_finite() {
            return Ok(());
        }
        Err(diverged(&format!("the loss on held-out text after step {} was {}", mean.step, mean.loss)))
    }

    /// How evaluations read held-out text, where it is less than they ask for.
    pub(super) fn repeated_text(&self) -> Option<String> {
        let (batches, held) = (self.cell.eval?.batches, self.feed.held_out_tokens()?);
        let asked = (batches * self.cell.train.tokens()) as u64;
        (asked > held).then(|| {
            format!("eval.batches = {batches} asks for {asked} held-out tokens and reads the {held} that there are repeatedly")
        })
    }

    /// How far training has moved the `features` of held-out inputs from those of the `first` network, which replaces the
    /// trained one.
    pub fn feature_distance(
        &mut self,
        first: &Cell,
        (after, columns): &(Vec<f32>, usize),
    ) -> FeatureDistance {
        self.make(first, 0);
        let (before, _) = self.features();
        FeatureDistance::of(&before, after, *columns)
    }

    /// The features of all held-out batches, and their columns.
    pub fn features(&self) -> (Vec<f32>, usize) {
        let network = self.network().valid();
        let _region = autocast(self.cell.precision.region());
        let (mut features, mut columns) = (Vec::new(), 1);
        for batch in &self.held_out {
            let of_batch = wide(network.features(batch));
            columns = of_batch.dims()[1];
            features.extend(of_batch.into_data().iter::<f32>());
        }
        (features, columns)
    }

    /// Records one more step after the measured ones, and writes its trace to the path, if any.
    pub fn record(&mut self, path: Option<&Path>) -> Vec<Crossing> {
        let device = self.cell.device_id();
        // The loss after the last step was a forward alone, which leaves other blocks on the device than a step does.
        self.step(&mut |_, _| (), None);
        let recorded = device.record(|| {
            let mark = &mut |ending: PhaseEnd, _: Option<Tensor<1>>| {
                // The graph of a cell is gone.
                if let PhaseEnd::Phase(phase) = ending {
                    device.mark(Mark::End(phase));
                }
            };
            self.step(mark, None);
            // A trace of a sampler shows the time between two steps too.
            if self.cell.data.sampler().sampler.keeps_samples() {
                self.load();
            }
        });
        let written = recorded.and_then(|activities| {
            if let Some((folder, name)) = path.and_then(|path| Some((path.parent()?, path.file_name()?))) {
                let trace = trace::chrome_trace(&activities);
                write_whole(folder, name.to_str(), &trace).map_err(|e| e.to_string())?;
            }
            Ok(trace::crossings(&activities))
        });
        written.unwrap_or_else(|reason| {
            // The measurement is complete without a trace; the report says that it is missing.
            tell(format!("no trace of this cell: {reason}"));
            Vec::new()
        })
    }
}

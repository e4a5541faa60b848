//! [`Derived`]: numbers that follow from a cell and its measurement by the engine's formulas, computed where the cell ran.

use serde::{Deserialize, Serialize};
use strum::VariantArray;

use super::Environment;
use crate::device::Ceilings;
use crate::measure::{Measurement, Phase, RankRecord, Span};
use crate::ops::cost::Work;
use crate::ops::name::OperatorName;
use crate::parallel::schedule::simulate::{Times, simulate};
use crate::recipe::Cell;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// Trained parameters, and all of them with those that tuning adds.
    pub trained: u64,
    pub parameters: u64,
    /// Of each operator and phase with work; empty where batches differ in size.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub floors: Vec<OperatorFloor>,
    /// Absent where no block moves.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub crossing: Option<LeastCrossing>,
    /// Bytes that the rank with the most sends in a step by the formulas of what it sums; absent of one process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent: Option<u64>,
    /// Forwards and backwards of each rank of a pipeline, by its schedule and the measured times of its stages.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub schedule: Option<Vec<Vec<Span>>>,
}

/// The least time of an operator in a phase of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorFloor {
    pub operator: String,
    pub phase: Phase,
    pub floor: Floor,
}

/// The least time that some work takes on a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    pub seconds: f64,
    pub bound: Bound,
}

/// What takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Bound {
    Operations,
    Bytes,
}

impl Floor {
    /// Operations over the rate of a large product of `rate` operations a second, or bytes over the rate of a large
    /// copy; `None` without such work, or where its rate was not measured.
    fn new(work: Work, rate: Option<f64>, copy: Option<f64>) -> Option<Self> {
        let over = |amount: f64, rate: Option<f64>, bound| {
            (amount > 0.0).then(|| rate.map(|rate| Self { seconds: amount / rate, bound }))
        };
        let both = [over(work.operations, rate, Bound::Operations), over(work.bytes, copy, Bound::Bytes)];
        // Where one of two bounds is not known, the floor is not either.
        let known: Option<Vec<Self>> = both.into_iter().flatten().collect();
        known?.into_iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }
}

/// The fewest bytes that cross the bus in a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeastCrossing {
    /// To the device.
    pub forward: f64,
    /// In backward, both ways at once, each way.
    pub both: f64,
    /// In backward, what has one direction to itself, such as frozen weights.
    pub alone: f64,
    pub alone_to_device: bool,
}

impl LeastCrossing {
    /// `None` where no block moves.
    fn new(cell: &Cell) -> Option<Self> {
        let shape = cell.model.decoder().filter(|_| cell.offload.moves())?;
        let (operators, workload) = (cell.operators(), cell.workload());
        let [block, gradient] = operators.crossing(&workload).map(|bytes| bytes as f64);
        if !cell.train.mode.trains() {
            let forward = cell.offload.fewest_copies_of_a_forward(shape.layers) as f64 * block;
            return Some(Self { forward, both: 0.0, alone: 0.0, alone_to_device: true });
        }
        let copies = operators.fewest_copies(&workload);
        let to_device =
            copies.backward_to_device as f64 * block + copies.gradients_to_device as f64 * gradient;
        let to_host = copies.gradients_to_host as f64 * gradient;
        Some(Self {
            forward: copies.forward_to_device as f64 * block,
            both: to_device.min(to_host),
            alone: (to_device - to_host).abs(),
            alone_to_device: to_device > to_host,
        })
    }
}

impl Derived {
    /// `measurement`: of a cell that ran to its end.
    pub fn new(cell: &Cell, environment: &Environment, measurement: Option<&Measurement>) -> Self {
        // A device that the recipe leaves open is that of the row.
        let cell = Cell { device: environment.device.id.clone(), ..cell.clone() };
        let resident = measurement.and_then(|measured| measured.resident_blocks);
        let operators = cell.operators();
        Self {
            trained: operators.trained(),
            parameters: operators.parameters(),
            floors: floors(&cell, &environment.ceilings, measurement),
            crossing: LeastCrossing::new(&cell.with_resident_blocks(resident)),
            sent: cell.sent(),
            schedule: measurement.and_then(|measured| schedule(&cell, &measured.ranks)),
        }
    }

    /// `None` where the work is not known, or its rate.
    pub fn floor(&self, operator: &str, phase: Phase) -> Option<Floor> {
        let found = self.floors.iter().find(|floor| floor.phase == phase && floor.operator == operator);
        found.map(|found| found.floor)
    }

    /// Seconds of all operators and phases.
    pub fn floor_of_step(&self) -> Option<f64> {
        let seconds = self.floors.iter().map(|floor| floor.floor.seconds).sum();
        (seconds > 0.0).then_some(seconds)
    }
}

fn floors(cell: &Cell, rates: &Ceilings, measurement: Option<&Measurement>) -> Vec<OperatorFloor> {
    // Batches of a sampler differ in size.
    if measurement.is_some_and(|measured| measured.loading.is_some()) {
        return Vec::new();
    }
    let works = cell.works();
    let floor = |name: &OperatorName, phase: Phase| {
        let work = works[*name].of(phase);
        let floor = Floor::new(work, rates.matmul(cell.precision.compute), rates.copy)?;
        Some(OperatorFloor { operator: name.into_str().into(), phase, floor })
    };
    let phases = [Phase::Forward, Phase::Backward, Phase::Optimizer];
    let all = OperatorName::VARIANTS.iter().flat_map(|name| phases.map(|phase| floor(name, phase)));
    all.flatten().collect()
}

/// The schedule with the measured times of its stages and the mean time of each rank's updates; messages take none.
fn schedule(cell: &Cell, ranks: &[RankRecord]) -> Option<Vec<Vec<Span>>> {
    let order = cell.parallel.pipeline.as_ref()?.order();
    let time = |stage: usize| {
        let mut stages = ranks.iter().flat_map(|rank| &rank.stages);
        stages.find(|time| time.stage == stage).map(|time| (time.forward, time.backward))
    };
    let times: Vec<(f64, f64)> = (0..order.shape.stages()).map(time).collect::<Option<_>>()?;
    let (forward, backward) = times.into_iter().unzip();
    let update = ranks.iter().map(|rank| mean_update(&rank.timeline)).collect();
    let step = simulate(&order, &Times { forward, backward, update, message: 0.0 }).ok()?;
    Some(step.spans().iter().map(|rank| computations(rank)).collect())
}

/// Seconds of one update; 0 without one.
fn mean_update(spans: &[Span]) -> f64 {
    let updates = spans.iter().filter(|span| span.action == "U").map(|span| span.end - span.start);
    let (count, seconds) = updates.fold((0.0, 0.0), |(count, sum), update| (count + 1.0, sum + update));
    if count > 0.0 { seconds / count } else { 0.0 }
}

/// What a rank does but for its updates.
pub fn computations(spans: &[Span]) -> Vec<Span> {
    spans.iter().filter(|span| span.action != "U").cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_the_later_of_two() {
        let work = |operations, bytes| Work { operations, bytes, launches: 0.0 };
        let of = |work, rate, copy| Floor::new(work, rate, copy).map(|floor| (floor.seconds, floor.bound));
        assert_eq!(of(work(10.0, 10.0), Some(2.0), Some(5.0)), Some((5.0, Bound::Operations)));
        assert_eq!(of(work(10.0, 10.0), Some(5.0), Some(2.0)), Some((5.0, Bound::Bytes)));
        assert_eq!(of(work(0.0, 10.0), None, Some(2.0)), Some((5.0, Bound::Bytes)));
        assert_eq!(of(work(10.0, 10.0), None, Some(2.0)), None, "its rate was not measured");
        assert_eq!(of(work(0.0, 0.0), Some(2.0), Some(2.0)), None);
    }
}

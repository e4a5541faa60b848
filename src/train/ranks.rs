//! Joins the losses and records of all ranks of a cell.

use serde::{Deserialize, Serialize};

use crate::measure::{Measured, RankRecord, Span, StageTime, largest_memory};
use crate::parallel::Groups;
use crate::world::{Traffic, World};

/// What each rank sends to the others after the last step.
#[derive(Serialize, Deserialize)]
struct Told {
    /// This rank's part of each step's loss.
    losses: Vec<f64>,
    record: RankRecord,
}

/// Sums the losses of all replicas' shares, and returns a record of each rank; none in a world of one. The memory of the
/// cell becomes that of the rank with the most. `traffic`: of the measured steps. `stages`, `timeline`: the times of a
/// pipeline's stages, and its last step.
pub fn together(
    world: &World,
    groups: &Groups,
    measured: &mut Measured,
    traffic: Traffic,
    (stages, timeline): (Vec<StageTime>, Vec<Span>),
) -> Vec<RankRecord> {
    if world.size() == 1 {
        return Vec::new();
    }
    let steps = measured.seconds[0].len() as f64;
    let record = RankRecord {
        rank: world.rank(),
        memory: measured.memory,
        step_seconds: measured.seconds.iter().flatten().sum::<f64>() / steps,
        sent_bytes: traffic.sent as f64 / steps,
        exchange_seconds: traffic.busy / steps,
        // A result arrives a moment after its operation has ended.
        exposed_seconds: traffic.exposed.min(traffic.busy) / steps,
        stages,
        timeline,
    };
    let mut losses = std::mem::take(&mut measured.losses);
    // All ranks that divide layers have the loss of their replica: it counts once.
    losses.iter_mut().filter(|_| groups.tensor.place() > 0).for_each(|loss| *loss = 0.0);
    let told = Told { losses, record };
    let own = serde_json::to_vec(&told).expect("plain data");
    let all = world.all().collect("records of ranks", own).wait();
    let told = all.iter().map(|bytes| serde_json::from_slice::<Told>(bytes).expect("a rank's record"));
    let records = told.map(|Told { losses, record }| {
        measured.losses.resize(losses.len(), 0.0);
        measured.losses.iter_mut().zip(&losses).for_each(|(sum, loss)| *sum += loss);
        record
    });
    let mut records: Vec<RankRecord> = records.collect();
    let spans = || records.iter().flat_map(|record| &record.timeline);
    let first = spans().map(|span| span.start).fold(f64::INFINITY, f64::min);
    measured.memory = largest_memory(&records).expect("there are ranks");
    for span in records.iter_mut().flat_map(|record| &mut record.timeline) {
        (span.start, span.end) = (span.start - first, span.end - first);
    }
    records
}

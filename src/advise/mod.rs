//! Which ways of training a cell fit into some memory, what they do to the result, and which of those is the fastest: by the
//! estimate of memory and a model of time, before anything runs. Without the rates of the device nothing is said of time, and
//! less work comes first.

mod adapters;
mod choice;
mod fidelity;
mod launches;
mod moved;
mod plan;
mod precisions;
mod rates;
mod space;
mod time;
mod variants;
mod work;

use itertools::Itertools;
use rayon::prelude::*;

pub use choice::Advice;
pub use fidelity::{Fidelity, master_and_moments};
pub use launches::from_launch_to_launch;
pub use plan::{Lacks, Limits, Plan};
pub use precisions::{is_unscaled, precisions};
pub use rates::Rates;
pub use space::{AXES, candidates, keeps};
pub use time::{StepTime, launching, step_time, with_launches};
pub use variants::{Asked, variants, with_optimizer};

use crate::device::Target;
use crate::estimate::Costs;
use crate::recipe::Cell;
use crate::residence::{Memory, Overlap, ResidentBlocks, Strategy};
use work::StepWork;

/// Where a cell is to be trained.
#[derive(Clone, Copy, Debug)]
pub struct Place<'p> {
    pub target: &'p Target,
    pub limits: Limits,
    /// Of the target's device, where they are known.
    pub rates: Option<&'p Rates>,
}

/// Plans in the place of `own`: every way to train each of the `variants`. `kept`: as in [`candidates`].
pub fn advise(own: &Cell, variants: &[Cell], place: Place, kept: &[String]) -> Advice {
    let plans: Vec<Plan> =
        variants.par_iter().flat_map_iter(|variant| plans(own, variant, place, kept)).collect();
    Advice::new(plans, place)
}

/// Whether any way in the place of `own` fits; with a `fidelity` any that changes no more.
pub fn some_fit(
    own: &Cell,
    variants: &[Cell],
    place: Place,
    kept: &[String],
    fidelity: Option<Fidelity>,
) -> bool {
    variants.par_iter().any(|variant| {
        let costs = Costs::new(variant);
        candidates(variant, place.target, kept).into_iter().any(|cell| {
            let most = fidelity.unwrap_or(Fidelity::Other);
            // As many resident blocks as fit are more than none.
            let cell = cell.with_resident_blocks(
                Some(0).filter(|_| cell.offload.resident_blocks == ResidentBlocks::Auto),
            );
            Fidelity::new(own, &cell) <= most
                && Plan::within(&costs.load(&cell), own, place.limits, None).fits(place.limits)
        })
    })
}

/// The largest number up to `most` that fits, to one part in 32; `None` if 16 does not, nor does `most`. What fits does so with less.
pub fn largest_that_fits(most: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    if fits(most) {
        return Some(most);
    }
    let mut fitting = [16, 1].into_iter().find(|least| least < &most && fits(*least))?;
    let mut beyond = most;
    while let Some(next) = fitting.checked_mul(2).filter(|next| *next < beyond) {
        if !fits(next) {
            beyond = next;
            break;
        }
        fitting = next;
    }
    let step = (fitting / 32).max(1);
    while beyond - fitting > step {
        let middle = fitting + (beyond - fitting) / 2 / step * step;
        let middle = middle.max(fitting + step);
        match fits(middle) {
            true => fitting = middle,
            false => beyond = middle,
        }
    }
    Some(fitting)
}

/// Every way to train one variant, each once.
fn plans(own: &Cell, variant: &Cell, place: Place, kept: &[String]) -> Vec<Plan> {
    let costs = Costs::new(variant);
    let cells = candidates(variant, place.target, kept).into_iter();
    let cells = cells.map(|cell| merged(costs.within(&cell, place.limits.memory), &costs)).unique_by(way);
    let plans = cells.map(|cell| Plan::within(&costs.load(&cell), own, place.limits, place.rates));
    // More slots are a way of their own only where they save time.
    plans.sorted_by_key(Plan::memory).unique_by(without_slots).collect()
}

/// What distinguishes ways to train one variant.
fn way(cell: &Cell) -> String {
    let Cell { checkpoint, train, offload, .. } = cell;
    format!("{checkpoint:?} {} {} {} {offload:?}", train.batch_size, train.accumulation_steps, train.graph)
}

/// A way of training whatever its number of slots, and its time in µs.
fn without_slots(plan: &Plan) -> (String, u64) {
    let mut cell = plan.cell.clone();
    if let Strategy::Overlap(overlap) = &mut cell.offload.strategy {
        overlap.buffers = 2;
    }
    (way(&cell), plan.seconds().map_or(0, |seconds| (seconds * 1e6) as u64))
}

/// Ways that come to the same as one. Where every block stays on the device, the way in which blocks would move does not
/// matter. Nor do segments where every block moves: each is computed again by itself.
fn merged(mut cell: Cell, costs: &Costs) -> Cell {
    let all = costs.load(&cell).operators.layers();
    match cell.offload.resident_blocks {
        ResidentBlocks::Count(0) if cell.offload.moves() => cell.checkpoint.blocks = 0,
        ResidentBlocks::Count(count) if cell.offload.moves() && count == all => {
            cell.offload.strategy = Strategy::Overlap(Overlap { buffers: 2 });
            cell.offload.activations = Memory::Device;
        }
        _ => {}
    }
    cell
}

#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod published_tests;
#[cfg(test)]
mod tests;

//! [`change`]: the weights of a cell before and after its steps, by which ways of training are compared.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use burn::tensor::Tensor;

use super::build::Build;
use super::step::share;
use super::training::Training;
use crate::common::locked;
use crate::model::Model;
use crate::model::language::Decoder;
use crate::model::swiglu::SwigluStack;
use crate::parallel::Groups;
use crate::params::named::Named;
use crate::recipe::Cell;
use crate::residence::Movement;
use crate::world::World;

/// Every weight before the first step and after the last, and the loss of each step.
pub struct Change {
    pub losses: Vec<f64>,
    pub before: Named,
    pub after: Named,
}

/// A fault that a test puts into a step: a comparison must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The second step does not happen.
    SkippedUpdate,
    /// The last micro-batch of each step is left out.
    DroppedMicroBatch,
    /// Blocks are computed from a slot that already holds another block.
    StaleSlot,
    /// No fault: one weight begins with another last bit. What comes of it is how much rounding may do.
    FlippedBit,
}

/// Copies blocks into the slot that is being read.
pub struct RefillsEarly;

impl Movement for RefillsEarly {
    fn ahead(&self, slots: usize) -> Option<usize> {
        Some(slots)
    }
}

/// Trains a cell for `measure.steps` steps, with its ranks as threads. It prepares as a run does, and measures nothing.
///
/// # Panics
/// Where the process of a run would end, and for a cell that counts epochs.
pub fn change(cell: &Cell, damage: Option<Damage>) -> Change {
    match cell.model {
        Model::Swiglu(_) => of_network::<SwigluStack>(cell, damage),
        Model::Language(_) => of_network::<Decoder>(cell, damage),
    }
}

fn of_network<N: Build>(cell: &Cell, damage: Option<Damage>) -> Change {
    let ranks = cell.parallel.ranks();
    if ranks == 1 {
        return of_rank::<N>(cell, &World::alone(), damage, &Mutex::default());
    }
    let turn = &Mutex::default();
    let limit = Duration::try_from_secs_f64(cell.parallel.timeout).unwrap_or(Duration::MAX);
    let changes: Vec<Change> = thread::scope(|scope| {
        let work = |world: World| scope.spawn(move || of_rank::<N>(cell, &world, damage, turn));
        let threads: Vec<_> = World::threads(ranks, limit).into_iter().map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    // Ranks that divide layers have the same loss: it counts once.
    let replicas = || changes.iter().step_by(cell.parallel.tensor);
    let losses = (0..changes[0].losses.len()).map(|step| replicas().map(|change| change.losses[step]).sum());
    let losses = losses.collect();
    let all = |of: fn(&Change) -> &Named| {
        let mut named = Named::new();
        for (name, values) in changes.iter().flat_map(of) {
            match named.iter().find(|(other, _)| other == name) {
                Some((_, others)) => assert_eq!(values, others, "ranks have the same {name}"),
                None => named.push((name.clone(), values.clone())),
            }
        }
        named
    };
    Change { losses, before: all(|change| &change.before), after: all(|change| &change.after) }
}

/// `turn`: held by the rank that draws at random. Threads share one generator, and random problems come right behind the
/// weights.
fn of_rank<N: Build>(cell: &Cell, world: &World, damage: Option<Damage>, turn: &Mutex<()>) -> Change {
    let steps = cell.measure.steps.expect("the cell counts steps");
    let cell = &cell.of_micro_batches();
    let groups = Groups::of(world, &cell.parallel);
    let feed = N::feed(cell, share(&groups.replicas));
    let drawing = locked(turn);
    let mut training = Training::<N>::among(cell, &groups, feed, steps);
    training.draw();
    drop(drawing);
    training.prepare(&mut *cell.device_id().meter(), |_| ());
    training.begin(steps);
    if damage == Some(Damage::FlippedBit) {
        training.flip_bit();
    }
    let before = training.parameters();
    let mut losses = Vec::new();
    for step in 0..steps {
        if step == 1 && damage == Some(Damage::SkippedUpdate) {
            continue;
        }
        if training.enters_phase() {
            training.enter_phase().expect("a temporary folder can be written");
        }
        training.load();
        training.damage(damage);
        let mut parts: Vec<Tensor<1>> = Vec::new();
        training.step(&mut |_, loss| parts.extend(loss), None);
        losses.push(parts.into_iter().map(|part| f64::from(part.into_scalar::<f32>())).sum());
    }
    Change { losses, before, after: training.parameters() }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;

//! The ways of training a cell: settings that may change without changing what the cell trains on.

use std::collections::BTreeSet;

use itertools::iproduct;

use super::precisions::precisions;
use crate::common::DeviceId;
use crate::device::Target;
use crate::keys::is_within;
use crate::ops::Level;
use crate::recipe::{Cell, WARMUP_OF_A_GRAPH, keys};
use crate::residence::{Memory, Offload, Overlap, ResidentBlocks, StatePlace, Strategy};

/// The keys that the search varies.
pub const AXES: [&str; 11] = [
    "precision",
    "checkpoint.level",
    "checkpoint.blocks",
    "train.batch_size",
    "train.accumulation_steps",
    "train.graph",
    "offload.strategy",
    "offload.buffers",
    "offload.resident_blocks",
    "offload.activations",
    "offload.optimizer",
];

/// Whether keeping this key keeps an axis as it is: they are the same, or one is within the other.
pub fn keeps(kept: &str, axis: &str) -> bool {
    is_within(axis, kept) || is_within(kept, axis)
}

/// The cell with an optimizer of another kind. Keys that both kinds have keep their values. `None` where there is no such
/// kind, or one of its keys has no value.
pub fn with_optimizer(cell: &Cell, kind: &str) -> Option<Cell> {
    const OPTIMIZER: &str = "train.optimizer";
    let of_kind = |name: &str| {
        let path = format!("{OPTIMIZER}.{name}");
        keys::all()
            .iter()
            .any(|entry| entry.path == path && entry.section.kind.is_none_or(|kinds| kinds.has(kind)))
    };
    let mut json = cell.to_json();
    let optimizer = json["train"]["optimizer"].as_object_mut()?;
    optimizer.retain(|name, _| of_kind(name));
    optimizer.insert("kind".into(), kind.into());
    Some(Cell { capability: cell.capability, ..Cell::from_json(&json).ok()? })
}

/// Every permitted candidate, the cell itself among them. The number of sequences in a step stays the same. `kept`: keys,
/// or sections, that stay as they are.
pub fn candidates(cell: &Cell, target: &Target, kept: &[String]) -> Vec<Cell> {
    let keeps = |axis: &str| kept.iter().any(|kept| keeps(kept, axis));
    // What is kept may be what follows from the other keys.
    let follows = keeps("train.graph") && cell.train.graph == cell.is_recorded_by_default();
    let all = iproduct!(
        precisions(cell, target, keeps("precision")),
        levels(cell, keeps("checkpoint.level")),
        segments(cell, keeps("checkpoint.blocks")),
        batches(cell, keeps("train.batch_size") || keeps("train.accumulation_steps")),
        graphs(cell, keeps("train.graph")),
        offloads(cell, &keeps)
    );
    let candidate = |(precision, level, blocks, (batch_size, accumulation_steps), graph, offload)| {
        let mut candidate = Cell { precision, offload, ..cell.clone() };
        (candidate.checkpoint.level, candidate.checkpoint.blocks) = (level, blocks);
        (candidate.train.batch_size, candidate.train.accumulation_steps) = (batch_size, accumulation_steps);
        candidate.train.graph = graph;
        if follows {
            candidate.train.graph = candidate.is_recorded_by_default();
        }
        if graph {
            candidate.measure.warmup = cell.measure.warmup.max(WARMUP_OF_A_GRAPH);
        }
        candidate
    };
    all.map(candidate).filter(|candidate| candidate.is_permitted(target)).collect()
}

/// Where the MLP is gated, backward can compute parts of it again.
fn levels(cell: &Cell, keep: bool) -> Vec<Level> {
    let has = cell.model.operator_names().contains(&"swiglu");
    let own = cell.checkpoint.level;
    if keep || !has { vec![own] } else { vec![Level::Keep, Level::Elementwise, Level::Full] }
}

/// Segments of 1, 2, 4 ... blocks, and none.
fn segments(cell: &Cell, keep: bool) -> Vec<usize> {
    let own = cell.checkpoint.blocks;
    let blocks = cell.operators().layers();
    let powers = std::iter::successors(Some(1), |size| Some(2 * size)).take_while(|size| *size < blocks);
    let mut all: Vec<usize> = if keep { vec![own] } else { [0, own].into_iter().chain(powers).collect() };
    all.sort_unstable();
    all.dedup();
    all
}

/// Sequences of a micro-batch and micro-batches of a step, with the same product.
fn batches(cell: &Cell, keep: bool) -> Vec<(usize, usize)> {
    let (own, steps) = (cell.train.batch_size, cell.train.accumulation_steps);
    // A sampler's batches are its own.
    if keep || cell.data.sampler().sampler.keeps_samples() {
        return vec![(own, steps)];
    }
    let all = own * steps;
    let small = (1..=all.isqrt()).filter(|size| all.is_multiple_of(*size));
    let sizes: BTreeSet<usize> = small.flat_map(|size| [size, all / size]).collect();
    sizes.into_iter().map(|size| (size, all / size)).collect()
}

/// By launches and as a graph. The estimate has no evaluation beside a graph, whose memory is its own.
fn graphs(cell: &Cell, keep: bool) -> Vec<bool> {
    match cell.device_id() {
        DeviceId::Cuda(_) if !keep && cell.eval.is_none() => vec![false, true],
        _ => vec![cell.train.graph],
    }
}

fn offloads(cell: &Cell, keeps: &dyn Fn(&str) -> bool) -> Vec<Offload> {
    let own = cell.offload;
    let updates = cell.train.optimizer.rule().is_some();
    let places = |key: &str, own: Memory, can: bool| match (keeps(key), can) {
        (true, _) => vec![own],
        (false, true) => vec![Memory::Device, Memory::Host],
        (false, false) => vec![Memory::Device],
    };
    let optimizers = places("offload.optimizer", own.optimizer, updates);
    let is_language = cell.model.decoder().is_some();
    let mut strategies: Vec<Strategy> = match (keeps("offload.strategy"), is_language) {
        (true, _) => buffers(own.strategy, keeps("offload.buffers")),
        (false, true) => {
            Strategy::all().flat_map(|strategy| buffers(strategy, keeps("offload.buffers"))).collect()
        }
        (false, false) => vec![own.strategy],
    };
    // Of ways that come to the same the first is listed: the one that never waits.
    strategies.sort_by_key(|strategy| !matches!(strategy, Strategy::Overlap(_)));
    let mut all = Vec::new();
    for (strategy, optimizer) in iproduct!(strategies, optimizers) {
        let moves = Offload::of(strategy).moves();
        let can = strategy.movement().is_some_and(|movement| movement.input_stays().is_none());
        let residents = match (keeps("offload.resident_blocks"), moves) {
            (true, _) => vec![own.resident_blocks],
            (false, true) => vec![ResidentBlocks::Count(0), ResidentBlocks::Auto],
            (false, false) => vec![ResidentBlocks::Count(0)],
        };
        let activations = places("offload.activations", own.activations, moves && can);
        all.extend(iproduct!(activations, residents).map(|(activations, resident_blocks)| Offload {
            strategy,
            resident_blocks,
            activations,
            optimizer,
            optimizer_state: if optimizer == Memory::Host { own.optimizer_state } else { StatePlace::Memory },
        }));
    }
    all
}

/// The strategy with each number of slots that helps: two to copy ahead into one, three to have another ready.
fn buffers(strategy: Strategy, keep: bool) -> Vec<Strategy> {
    match strategy {
        Strategy::Overlap(_) if !keep => {
            [2, 3, 4].into_iter().map(|buffers| Strategy::Overlap(Overlap { buffers })).collect()
        }
        _ => vec![strategy],
    }
}

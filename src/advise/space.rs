//! The ways of training a cell: settings that may change without changing what the cell trains on or by which numbers.

use std::collections::{BTreeSet, HashMap};
use std::mem::discriminant;

use itertools::iproduct;

use crate::common::DeviceId;
use crate::data::Rows;
use crate::device::Target;
use crate::keys::is_within;
use crate::ops::{Checkpoint, Level};
use crate::recipe::{Cell, WARMUP_OF_A_GRAPH};
use crate::residence::{Memory, Offload, Overlap, ResidentBlocks, StatePlace, Strategy};

/// The keys that the search varies.
pub const AXES: [&str; 13] = [
    "tuning",
    "train.optimizer",
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

/// Every permitted candidate with the cell's model, optimizer and number types, the cell itself among them if it is permitted.
/// The number of sequences in a step stays the same. `kept`: keys, or sections, that stay as they are.
pub fn candidates(cell: &Cell, target: &Target, kept: &[String]) -> Vec<Cell> {
    let keeps = |axis: &str| kept.iter().any(|kept| keeps(kept, axis));
    // What is kept may be what follows from the other keys.
    let follows = keeps("train.graph") && cell.train.graph == cell.is_recorded_by_default();
    let segments = segments(cell, keeps("checkpoint.blocks"));
    let homes = offloads(cell, &keeps).into_iter().flat_map(|offload| {
        let sizes = segments.iter().filter(move |blocks| makes_sense(offload, **blocks));
        sizes.map(move |blocks| (offload, *blocks)).collect::<Vec<_>>()
    });
    let all = iproduct!(
        homes,
        levels(cell, keeps("checkpoint.level")),
        batches(cell, keeps("train.batch_size") || keeps("train.accumulation_steps")),
        graphs(cell, keeps("train.graph"))
    );
    let candidate = |((offload, blocks), level, (batch_size, accumulation_steps), graph)| {
        let mut candidate = Cell { offload, checkpoint: Checkpoint { level, blocks }, ..cell.clone() };
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
    let mut known = HashMap::new();
    let permitted = |candidate: &Cell| {
        let is = || candidate.is_permitted(target);
        *known.entry(what_rules_read(candidate)).or_insert_with(is)
    };
    all.map(candidate).filter(permitted).collect()
}

/// Whether segments of so many blocks are a way of their own: blocks that all move are computed again one by one.
fn makes_sense(offload: Offload, blocks: usize) -> bool {
    match (offload.moves(), offload.resident_blocks) {
        (true, ResidentBlocks::Count(0)) => blocks == 0,
        (true, _) => blocks <= 1,
        (false, _) => true,
    }
}

/// What the rules read of what candidates differ in. Whether a micro-batch is large is a rule's only where ranks divide it.
fn what_rules_read(candidate: &Cell) -> String {
    let Cell { checkpoint, train, offload, .. } = candidate;
    let divided = if candidate.parallel.is_alone() { 0 } else { train.batch_size };
    let several = train.accumulation_steps > 1;
    let blocks = checkpoint.blocks.min(2);
    format!("{:?} {blocks} {several} {divided} {} {offload:?}", checkpoint.level, train.graph)
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
    let sampler = cell.data.sampler().sampler;
    // A sampler's batches are its own, unless it packs so many tokens.
    if keep || (sampler.keeps_samples() && sampler.rows() != Rows::Packed) {
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
    // An adapter's state is small wherever it is.
    let updates = cell.train.optimizer.rule().is_some() && cell.tuning.is_full();
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
            let is_own = |strategy: &Strategy| discriminant(strategy) == discriminant(&own.strategy);
            let searched = Strategy::all().filter(|strategy| is_own(strategy) || never_waits(strategy));
            searched.flat_map(|strategy| buffers(strategy, keeps("offload.buffers"))).collect()
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
            (false, true) if copies_ahead(strategy) => {
                vec![ResidentBlocks::Count(0), ResidentBlocks::Auto]
            }
            (false, _) => vec![ResidentBlocks::Count(0)],
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
    if !all.contains(&own) {
        all.push(own);
    }
    all
}

/// Whether the host waits for no copy and no block. What does is slower, and no smaller.
fn never_waits(strategy: &Strategy) -> bool {
    strategy.movement().is_none_or(|movement| !movement.host_waits() && movement.input_stays().is_none())
}

fn copies_ahead(strategy: Strategy) -> bool {
    strategy.movement().is_some_and(|movement| movement.ahead(movement.buffers()).is_some())
}

/// The strategy with each number of slots that helps: two to copy ahead into one, three to have another ready.
fn buffers(strategy: Strategy, keep: bool) -> Vec<Strategy> {
    match strategy {
        Strategy::Overlap(_) if !keep => {
            [2, 3].into_iter().map(|buffers| Strategy::Overlap(Overlap { buffers })).collect()
        }
        _ => vec![strategy],
    }
}

//! [`families`]: which methods learn alike. Only among those is one recommended: time and memory do not say what another precision
//! or optimizer learns.

use itertools::Itertools;
use serde_json::Value;

use super::labels;
use super::table::{Comparison, Group};
use crate::recipe::Cell;
use crate::residence::Memory;
use crate::words::text::names;
use crate::words::{Compute, Settings};

/// Sections and keys that change what is learned, beside the precision.
const LEARNING: [&str; 5] = ["model.", "train.optimizer.", "train.schedule", "train.clip", "tuning."];
const PRECISION: &str = "precision.";
/// Where an update has fp32 weights of its own, which those of 16 bits on the device lack.
const MASTER: &str = "offload.optimizer";

/// Those that are named where nothing compares what is learned.
const NAMED: [(&str, &str); 3] =
    [("precision.compute", "precision"), ("train.optimizer.kind", "optimizer"), ("tuning.method", "tuning")];

/// Methods that learn alike.
pub struct Family<'g> {
    /// Its precision, where the others have another one; else empty.
    pub name: String,
    pub members: Vec<&'g Group>,
}

/// The candidates with the optimizer, the tuning and the network of the baseline, or of the first where that is none of them: a
/// family for each precision, that of the baseline first. fp16 without a scaler is in none: its small gradients vanish.
pub fn families<'g>(comparison: &Comparison, candidates: &[&'g Group]) -> Vec<Family<'g>> {
    let cell = |group: &Group| comparison.lines[group.lines[0]].cell;
    let sound: Vec<&Group> =
        candidates.iter().copied().filter(|group| keeps_gradients(cell(group))).collect();
    let is_baseline = |group: &&&Group| comparison.is_baseline(group.lines[0]);
    let Some(first) = sound.iter().find(is_baseline).or(sound.first()).copied() else { return Vec::new() };
    let of = |group: &Group, keys: &[&str]| -> Settings {
        let settings = &comparison.lines[group.lines[0]].settings;
        let counts = |key: &String| keys.iter().any(|of| key.starts_with(of));
        settings
            .iter()
            .filter(|(key, _)| counts(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let precision = |group: &Group| {
        let mut settings = of(group, &[PRECISION]);
        if let Some(place) = place_of_master(cell(group)) {
            settings.insert(MASTER.into(), place);
        }
        settings
    };
    let learned = of(first, &LEARNING);
    let alike = sound.into_iter().filter(|group| of(group, &LEARNING) == learned);
    let first = precision(first);
    let mut all: Vec<(Settings, Vec<&Group>)> = Vec::new();
    for group in alike {
        let own = precision(group);
        match all.iter_mut().find(|(settings, _)| *settings == own) {
            Some((_, members)) => members.push(group),
            None => all.push((own, vec![group])),
        }
    }
    all.sort_by_key(|(settings, _)| *settings != first);
    let names = named(&all.iter().map(|(settings, _)| settings).collect::<Vec<_>>());
    all.into_iter().zip(names).map(|((_, members), name)| Family { name, members }).collect()
}

/// What distinguishes these precisions, each in words.
fn named(all: &[&Settings]) -> Vec<String> {
    if all.len() < 2 {
        return vec![String::new(); all.len()];
    }
    let keys = all.iter().flat_map(|settings| settings.keys()).unique();
    let differs = |key: &&String| !all.iter().map(|settings| settings.get(*key)).all_equal();
    let mut keys: Vec<String> = keys.filter(differs).cloned().collect();
    keys.sort();
    labels::methods(&keys, all).0
}

/// Whether small gradients survive: fp16 needs a scaler for that.
fn keeps_gradients(cell: &Cell) -> bool {
    let Cell { precision, train, .. } = cell;
    precision.compute != Compute::Fp16 || precision.scaler.is_some() || train.optimizer.rule().is_none()
}

/// Where the optimizer is, if that decides whether its weights are in fp32.
fn place_of_master(cell: &Cell) -> Option<Value> {
    let in_few_bits = cell.precision.stored_bytes() < 4 && cell.train.optimizer.rule().is_some();
    let place = if cell.offload.optimizer == Memory::Host { "host" } else { "device" };
    in_few_bits.then(|| place.into())
}

/// What the candidates differ in that changes what they learn, where nothing compares that.
pub fn unlike(comparison: &Comparison, candidates: &[&Group]) -> Option<String> {
    let line = |group: &Group| &comparison.lines[group.lines[0]];
    let differs = |key: &str| !candidates.iter().map(|group| line(group).settings.get(key)).all_equal();
    let learn = candidates.iter().all(|group| line(group).cell.train.optimizer.rule().is_some());
    let of: Vec<&str> = NAMED.iter().filter(|(key, _)| differs(key)).map(|(_, name)| *name).collect();
    (!of.is_empty() && learn).then(|| {
        format!("The methods differ in {}; what they learn was not compared on held-out text.", names(&of))
    })
}

//! [`Advice`]: the plans that fit, the best of each group, and which of them to take.

use std::mem::discriminant;

use itertools::Itertools;
use strum::VariantArray;

use super::fidelity::lacking_bits;
use super::{Fidelity, Limits, Place, Plan, StepWork};
use crate::estimate::Costs;
use crate::residence::Memory;

/// Times nearer than this are one time: the model's mean error.
const NEAR: f64 = 1.05;
/// A way that moves blocks must be faster by so much than one that moves none: the times of copies are known less well.
const MOVED: f64 = 1.15;
/// A way that changes more is advised where the best one that changes less takes so many times as long: of one that is nearly
/// the same, and of another training.
const WORTH: [f64; 2] = [1.25, 2.0];
/// The least share of memory by which a way with less of it is a choice of its own.
const STEP: f64 = 0.9;

/// Plans for a cell.
#[derive(Clone, Debug)]
pub struct Advice {
    /// Those that fit, fastest first, or those with the least work where times are not known.
    pub fitting: Vec<Plan>,
    /// The others, with the smallest need first.
    pub others: Vec<Plan>,
    pub limits: Limits,
}

impl Advice {
    pub(super) fn new(plans: Vec<Plan>, place: Place) -> Self {
        let limits = place.limits;
        let (mut fitting, mut others): (Vec<Plan>, Vec<Plan>) =
            plans.into_iter().partition(|plan| plan.fits(limits));
        match place.rates {
            Some(_) => fitting.sort_by(|a, b| {
                let [a_time, b_time] = [a, b].map(|plan| plan.seconds().unwrap_or_default());
                a_time.total_cmp(&b_time).then(a.memory().cmp(&b.memory()))
            }),
            None => fitting.sort_by_cached_key(|plan| {
                (StepWork::new(&Costs::new(&plan.cell).load(&plan.cell)), plan.memory())
            }),
        }
        others.sort_by_key(|plan| (plan.lacks(limits).host_memory, plan.memory(), plan.host_memory()));
        Self { fitting, others, limits }
    }

    /// The best of a group: of those that are about as fast as the fastest the one that moves least, changes least and needs the
    /// least memory, in steps of a tenth.
    pub fn best(&self, fidelity: Fidelity) -> Option<&Plan> {
        best(self.fitting.iter().filter(|plan| plan.fidelity == fidelity))
    }

    /// The best of each method of tuning, and of each rule of the update, in a group of other trainings, in the order of all; else the
    /// best of the group.
    pub fn bests(&self, fidelity: Fidelity) -> Vec<&Plan> {
        let group = self.fitting.iter().filter(|plan| plan.fidelity == fidelity);
        let rule = |plan: &Plan| match fidelity {
            Fidelity::Other => Some(discriminant(&plan.cell.train.optimizer)),
            Fidelity::Same | Fidelity::Nearly => None,
        };
        let by_method = group.into_group_map_by(|plan| (<&str>::from(&plan.cell.tuning), rule(plan)));
        let bests = by_method.into_values().filter_map(|plans| best(plans.into_iter()));
        let place = |best: &&Plan| self.fitting.iter().position(|plan| std::ptr::eq(plan, *best));
        bests.sorted_by_key(place).collect()
    }

    /// The best plans of all groups, apart from those that gain neither time nor memory, of the device or of the host, over what
    /// changes less.
    pub fn groups(&self) -> impl Iterator<Item = &Plan> {
        let mut listed: Vec<&Plan> = Vec::new();
        for fidelity in Fidelity::VARIANTS {
            let gains = |plan: &&Plan| {
                let faster =
                    |other: &&Plan| plan.seconds().zip(other.seconds()).is_none_or(|(a, b)| a * NEAR < b);
                let less = |own: u64, other: u64| (own as f64) < STEP * other as f64;
                let smaller = |other: &&Plan| {
                    less(plan.memory(), other.memory()) || less(plan.host_memory(), other.host_memory())
                };
                listed.iter().all(|other| other.fidelity == *fidelity || faster(other) || smaller(other))
            };
            let bests: Vec<&Plan> = self.bests(*fidelity).into_iter().filter(gains).collect();
            listed.extend(bests);
        }
        listed.into_iter()
    }

    /// The plan to take: of the group that changes the least, unless another is so much faster that it is worth its change.
    pub fn advised(&self) -> Option<&Plan> {
        let mut advised: Option<&Plan> = None;
        for fidelity in Fidelity::VARIANTS {
            let Some(best) = self.best(*fidelity) else { continue };
            let worth = WORTH[usize::from(*fidelity == Fidelity::Other)];
            let pays = |advised: &Plan| match (advised.seconds(), best.seconds()) {
                (Some(seconds), Some(other)) => seconds > worth * other,
                _ => false,
            };
            if advised.is_none_or(pays) {
                advised = Some(best);
            }
        }
        advised
    }

    /// Memory against speed within a group, from the fastest down: each needs a tenth less than the one before and is the fastest
    /// that does.
    pub fn frontier(&self, fidelity: Fidelity) -> Vec<&Plan> {
        let Some(mut last) = self.best(fidelity) else { return Vec::new() };
        let mut frontier = vec![last];
        loop {
            let smaller = self.fitting.iter().filter(|plan| {
                plan.fidelity == fidelity && (plan.memory() as f64) < STEP * last.memory() as f64
            });
            let Some(next) = best(smaller) else { return frontier };
            frontier.push(next);
            last = next;
        }
    }
}

/// As [`Advice::best`]; of plans without times the first.
fn best<'p>(plans: impl Iterator<Item = &'p Plan>) -> Option<&'p Plan> {
    let mut plans: Vec<&Plan> = plans.collect();
    let first = plans.iter().copied().min_by(|a, b| compare(a, b))?;
    let Some(mut least) = first.seconds() else { return plans.first().copied() };
    let stays = |plan: &&&Plan| !plan.cell.offload.moves();
    let staying = plans.iter().filter(stays).filter_map(|plan| plan.seconds()).min_by(f64::total_cmp);
    if let Some(staying) = staying.filter(|seconds| *seconds <= MOVED * least) {
        (least, plans) = (staying, plans.iter().filter(stays).copied().collect());
    }
    // All of these move blocks, or none does: one that does not would be within MOVED.
    let near = plans.into_iter().filter(|plan| plan.seconds().is_some_and(|seconds| seconds <= NEAR * least));
    near.min_by_key(|plan| {
        let on_host = plan.cell.offload.optimizer == Memory::Host;
        let time = (plan.seconds().unwrap_or_default() * 1e9) as u64;
        (on_host, lacking_bits(&plan.cell), size(plan.memory()), time)
    })
}

/// Memory in steps of a tenth: what takes a little less is no better.
fn size(bytes: u64) -> i64 {
    ((bytes as f64).ln() / -STEP.ln()).round() as i64
}

fn compare(a: &Plan, b: &Plan) -> std::cmp::Ordering {
    let seconds = |plan: &Plan| plan.seconds().unwrap_or_default();
    seconds(a).total_cmp(&seconds(b)).then(a.memory().cmp(&b.memory()))
}

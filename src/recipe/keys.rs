//! The key table: every key of a cell, from the sections that the techniques own.
//!
//! The plan, labels, what counts as a size or as a method, `runner keys`, the schema for editors and the reference
//! in `docs/` come from it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use itertools::{EitherOrBoth, Itertools};
use rayon::prelude::*;
use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::log::Log;
use super::save::Save;
use super::sections::{Eval, Measure, TOP, Train};
use crate::common::text;
use crate::data::reader::Columns;
use crate::data::task::TaskKind;
use crate::data::{Data, Generate, Sampler, SamplerConfig, Task};
use crate::keys::key::Role;
use crate::keys::{Key, Section, Settings};
use crate::model::Model;
use crate::ops::{Checkpoint, Ops};
use crate::optim::{OptimizerConfig, Schedule};
use crate::parallel::{Parallel, Pipeline};
use crate::params::tuning::TuningConfig;
use crate::precision::{Precision, ScalerConfig};
use crate::residence::{Offload, Strategy};

/// In the order in which they are read; sizes stand in labels in this order.
const SECTIONS: &[&[Section]] = &[
    &[Train::SECTION],
    &[OptimizerConfig::KEY],
    OptimizerConfig::SECTIONS,
    &[Schedule::KEY],
    Schedule::SECTIONS,
    &[Data::SECTION, SamplerConfig::KEY, SamplerConfig::SECTION],
    Sampler::SECTIONS,
    &[Columns::SECTION],
    &[Task::SECTION],
    TaskKind::SECTIONS,
    Model::SECTIONS,
    &[Precision::SECTION],
    ScalerConfig::SECTIONS,
    &[Checkpoint::SECTION, Ops::SECTION],
    &[Offload::SECTION],
    Strategy::SECTIONS,
    &[TuningConfig::KEY],
    TuningConfig::SECTIONS,
    &[Parallel::SECTION],
    Pipeline::SECTIONS,
    &[Eval::SECTION, Generate::SECTION, Measure::SECTION, Log::SECTION, Save::SECTION, TOP],
];

/// A key in its section.
pub struct Entry {
    /// Dotted, as in a grid.
    pub path: String,
    pub section: &'static Section,
    pub key: &'static Key,
    /// As a recipe would write it; `None` where there is none, or it depends on other keys.
    pub default: Option<Spanned<DeValue<'static>>>,
}

/// In the order in which they are read; once each, also where two kinds have one section.
pub fn sections() -> impl Iterator<Item = &'static Section> {
    static ALL: LazyLock<Vec<&Section>> = LazyLock::new(|| {
        SECTIONS.iter().copied().flatten().unique_by(|section| (section.path, section.doc)).collect()
    });
    ALL.iter().copied()
}

/// Every key of every kind, in the order in which they are read.
pub fn all() -> &'static [Entry] {
    static ALL: LazyLock<Vec<Entry>> = LazyLock::new(|| {
        let default = |key: &Key| {
            // JSON of one value is TOML.
            let text: &'static str = key.default.value()?.to_string().leak();
            Some(DeValue::parse(text).expect("a default is a value"))
        };
        let of = |section: &'static Section| {
            let entry = move |key: &'static Key| Entry {
                path: section.path_of(key.name),
                section,
                key,
                default: default(key),
            };
            section.keys.iter().map(entry)
        };
        sections().flat_map(of).collect()
    });
    &ALL
}

impl Entry {
    /// The dotted key that chooses whether this one is there.
    pub fn chooser(&self) -> Option<String> {
        self.section.kind.map(|kind| self.section.path_of(kind.key))
    }

    /// Whether cells with these settings have the key.
    pub fn is_of(&self, settings: &Settings) -> bool {
        let Some(kind) = self.section.kind else { return true };
        match settings.get(&self.section.path_of(kind.key)).and_then(Value::as_str) {
            Some(value) => kind.has(value),
            None => false,
        }
    }
}

/// The key of this path, of any kind.
pub fn find(path: &str) -> Option<&'static Entry> {
    of_path(path).next()
}

/// The key of this path that cells with these settings have.
pub fn of(path: &str, settings: &Settings) -> Option<&'static Entry> {
    of_path(path).find(|entry| entry.is_of(settings))
}

/// Its place in the order in which keys are read.
pub fn place(path: &str) -> usize {
    all().iter().position(|entry| entry.path == path).unwrap_or(usize::MAX)
}

/// The key of a section whose value chooses which other keys there are: `kind` of `[model]`.
pub fn chooser(section: &str) -> Option<&'static str> {
    sections().filter(|other| other.path == section).find_map(|section| Some(section.kind?.key))
}

/// The values of a section's key that chooses its other keys.
pub fn kinds(section: &str, key: &str) -> Vec<&'static str> {
    of_chooser(section, key).flat_map(|(_, values)| values).copied().unique().collect()
}

/// Those of them with which the section has all of these keys.
pub fn kinds_with(section: &str, key: &str, names: &[&str]) -> Vec<&'static str> {
    let has = |kind: &&str, name: &str| {
        let mut of =
            of_chooser(section, key).filter(|(_, values)| values.is_empty() || values.contains(kind));
        of.any(|(section, _)| section.keys.iter().any(|key| key.name == name))
    };
    kinds(section, key).into_iter().filter(|kind| names.iter().all(|name| has(kind, name))).collect()
}

/// The keys that are there by another key of their section, and whether by some of its values alone.
pub fn chosen_by(section: &str, key: &str) -> impl Iterator<Item = (&'static str, bool)> {
    of_chooser(section, key)
        .flat_map(|(section, values)| section.keys.iter().map(move |key| (key.name, !values.is_empty())))
}

fn of_chooser(path: &str, key: &str) -> impl Iterator<Item = (&'static Section, &'static [&'static str])> {
    sections().filter_map(move |section| {
        let kind = section.kind.filter(|kind| section.path == path && kind.key == key)?;
        Some((section, kind.values))
    })
}

/// Whether a key is of the problem (compared at equal values) rather than a choice of method (compared with one
/// another). Text is of the problem: losses on other text, or in other tokens, do not compare; how it is sampled
/// and loaded is a method.
pub fn is_size(path: &str) -> bool {
    has_role(path, &[Role::Size, Role::Repetition])
}

/// Whether another value is the same problem once more.
pub fn is_repetition(path: &str) -> bool {
    has_role(path, &[Role::Repetition])
}

/// Whether a key says which implementation of an operator runs.
pub fn is_operator(path: &str) -> bool {
    has_role(path, &[Role::Operator])
}

fn has_role(path: &str, roles: &[Role]) -> bool {
    find(path).is_some_and(|entry| roles.contains(&entry.key.role))
}

/// Dotted keys that differ between any two of `settings`; a key that only some have differs too, unless those
/// have its default.
pub fn swept(settings: &[Settings]) -> Vec<String> {
    // Both are sorted, so one walk over a pair finds all that differs in it.
    let differing = |pair: &'_ [Settings]| -> BTreeSet<String> {
        let both = pair[0].iter().merge_join_by(&pair[1], |(a, _), (b, _)| a.cmp(b));
        let differs = both.filter_map(|side| match side {
            EitherOrBoth::Both((_, a), (_, b)) if a == b => None,
            EitherOrBoth::Both((key, _), _)
            | EitherOrBoth::Left((key, _))
            | EitherOrBoth::Right((key, _)) => Some(key.clone()),
        });
        differs.collect()
    };
    let union = |mut a: BTreeSet<String>, b: BTreeSet<String>| {
        a.extend(b);
        a
    };
    let keys = settings.par_windows(2).map(differing).reduce(BTreeSet::new, union);
    let by_default = |key: &str| settings.iter().all(|s| s.get(key).is_none_or(|v| is_default(key, v, s)));
    keys.into_iter().filter(|key| !by_default(key)).collect()
}

/// The value of a key, also of one that a cell leaves out.
pub fn value(path: &str, settings: &Settings) -> Option<Value> {
    let absent =
        || of(path, settings).and_then(|entry| entry.key.absent.unwrap_or(entry.key.default).value());
    settings.get(path).cloned().or_else(absent)
}

/// A value for a reader, as [`Key::shown`]; of a key that is none, as it is.
pub fn shown(path: &str, value: &Value) -> String {
    find(path).map_or_else(|| text::value(value), |entry| entry.key.shown(value))
}

/// Whether a value is what counts where the key is not written.
pub fn is_default(path: &str, value: &Value, settings: &Settings) -> bool {
    of(path, settings)
        .and_then(|entry| entry.key.default.value())
        .is_some_and(|default| same(value, &default))
}

/// 0 and 0.0 are the same value.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Whether the values of a key follow from those of a key that decides it: SGD has a momentum and AdamW betas, and
/// a preset its sizes. What must be written does not follow from a kind, nor what is written for one kind alone.
pub fn goes_along(path: &str, settings: &[Settings]) -> bool {
    let kinds = of_path(path).filter(|entry| {
        let of_some = entry.section.kind.is_some_and(|kind| !kind.values.is_empty());
        of_some && !entry.key.default.is_required()
    });
    // Without a kind there is no such key; without a preset its sizes are free.
    let mut kinds = kinds.filter_map(Entry::chooser);
    kinds.any(|kind| goes_with(path, &kind, settings) && !is_of_one_kind(path, &kind, settings))
        || deciders(path)
            .any(|key| settings.iter().all(|s| s.contains_key(key)) && goes_with(path, key, settings))
}

/// Whether several kinds have the key and only some of them its default: LoRA of rank 16 beside QLoRA, whose rank nobody wrote.
fn is_of_one_kind(path: &str, kind: &str, settings: &[Settings]) -> bool {
    let is_default = |settings: &Settings| {
        let entry = of_path(path).find(|entry| entry.is_of(settings))?;
        Some(*settings.get(path)? == entry.key.default.value()?)
    };
    let of_kinds = settings.iter().filter_map(|s| Some((s.get(kind)?.to_string(), is_default(s)?)));
    let (left, written): (Vec<_>, Vec<_>) = of_kinds.unique().partition(|(_, is_default)| *is_default);
    written.iter().any(|(kind, _)| left.iter().any(|(other, _)| other != kind))
}

/// The keys that decide a key's value where it is not written.
pub fn deciders(path: &str) -> impl Iterator<Item = &'static str> {
    of_path(path).flat_map(|entry| entry.key.follows.iter().copied())
}

fn of_path(path: &str) -> impl Iterator<Item = &'static Entry> {
    all().iter().filter(move |entry| entry.path == path)
}

/// Whether cells with an equal `leader` have equal values of `key`.
fn goes_with(key: &str, leader: &str, settings: &[Settings]) -> bool {
    let values = settings.iter().map(|s| (s.get(leader).map(Value::to_string), s.get(key)));
    values.into_group_map().values().all(|values| values.iter().all_equal())
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;

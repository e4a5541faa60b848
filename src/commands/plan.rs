//! `runner plan`: every cell, its estimated memory and whether it fits.

use std::collections::HashMap;

use itertools::Itertools;
use rayon::prelude::*;
use serde_json::Value;

use super::timelines::timelines;
use crate::device::Target;
use crate::measure::Estimate;
use crate::recipe::{Cell, Recipe, keys};
use crate::run::memory_limit;
use crate::words::values::Values;
use crate::words::{Bytes, DeviceId, settings, text};

/// What the plan says of a cell.
struct Planned {
    estimate: Estimate,
    /// Bytes of the device's memory, where they are known.
    limit: Option<u64>,
    fits: Option<bool>,
    /// Bytes that a rank sends in a step, at most.
    sent: Option<u64>,
    /// Its values of the swept keys.
    values: Vec<String>,
}

impl Planned {
    fn new(cell: &Cell, limit: u64, swept: &[String]) -> Self {
        let estimate = cell.within(limit).estimate();
        let limit = Some(limit).filter(|limit| *limit < u64::MAX);
        let on_host = cell.measure.host_memory_limit.is_none_or(|limit| estimate.host <= limit.0);
        let fits = match on_host {
            false => Some(false),
            // The driver has its own part of the limit.
            true => limit.map(|limit| estimate.total() + cell.device_id().context_bytes() <= limit),
        };
        let json = cell.to_json();
        let value = |key: &String| {
            let written =
                json.pointer(&format!("/{}", key.replace('.', "/"))).filter(|value| !value.is_null());
            let value = written.cloned().or_else(|| keys::value(key, &settings(&json)));
            value.map_or_else(|| "-".into(), |value| shown(key, &value))
        };
        Self { estimate, limit, fits, sent: cell.sent(), values: swept.iter().map(value).collect() }
    }
}

/// The plan as a table with a closing sentence; whether a cell fits is asked of the target's memory.
pub fn plan(recipe: &Recipe, target: &Target) -> String {
    let swept = recipe.telling_keys();
    let infos: HashMap<DeviceId, _> =
        recipe.cells.iter().map(Cell::device_id).unique().map(|id| (id, target.info(id))).collect();
    let of = |cell: &Cell| Planned::new(cell, memory_limit(cell, &infos[&cell.device_id()]), swept);
    let planned: Vec<Planned> = recipe.cells.par_iter().map(of).collect();
    let host = planned.iter().any(|cell| cell.estimate.host > 0);
    let mut header = vec!["cell"];
    header.extend(swept.iter().map(|key| short(key, swept)));
    header.extend(["weights", "kept", "estimate", "limit", "fits"]);
    header.extend(host.then_some("host"));
    let ranks = planned.iter().any(|cell| cell.sent.is_some());
    header.extend(ranks.then_some("sent"));
    let is_here = |index: &usize| !recipe.elsewhere.contains_key(index);
    let line = |(index, cell): (usize, &Planned)| {
        let Planned { estimate, limit, fits, sent, values } = cell;
        let mut line = vec![(index + 1).to_string()];
        line.extend(values.iter().cloned());
        line.extend(
            [estimate.weights, estimate.kept, estimate.total()].map(|bytes| Bytes(bytes).to_string()),
        );
        let fits = match fits {
            _ if !is_here(&index) => "not here",
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        line.extend([limit.map_or("-".into(), |limit| Bytes(limit).to_string()), fits.to_string()]);
        line.extend(host.then(|| Bytes(estimate.host).to_string()));
        line.extend(ranks.then(|| sent.map_or("-".into(), |sent| Bytes(sent).to_string())));
        line
    };
    let lines = planned.iter().enumerate().map(line).collect();
    let count =
        |fits| (0..planned.len()).filter(is_here).filter(|index| planned[*index].fits == fits).count();
    let (too_large, unknown) = (count(Some(false)), count(None));
    let table = text::table(&header, lines, 0);
    let verdict = match (too_large, unknown) {
        (0, 0) if recipe.elsewhere.is_empty() => "every cell fits by its estimate".to_string(),
        (0, 0) => "every cell that can run here fits by its estimate".to_string(),
        (0, n) => format!("of {n} it is not known whether they fit: their device's memory is not"),
        (n, _) => format!("{n} would not fit by their estimates and may become `oom` rows"),
    };
    let cells = match recipe.cells.len() {
        1 => "1 cell".to_string(),
        n => format!("{n} cells"),
    };
    let sent = if ranks { " sent: by a rank in a step, the most; memory is a rank's." } else { "" };
    let host = if host { " host: what is there instead of on the device." } else { "" };
    let elsewhere = recipe.elsewhere_notice().map_or(String::new(), |notice| format!("\n{notice}"));
    format!(
        "{}\n{table}\n{cells}; {verdict}. kept: from forward to backward; estimate: at the highest \
         moment.{host}{sent}{elsewhere}{}",
        recipe.title,
        timelines(&recipe.cells),
    )
}

/// A value as it is read: an amount of memory has its unit.
pub fn shown(key: &str, value: &Value) -> String {
    match (keys::find(key).map(|entry| entry.key.values), value.as_u64()) {
        (Some(Values::Bytes), Some(bytes)) => Bytes(bytes).to_string(),
        _ => text::value(value),
    }
}

/// The key without its section, where that is clear: a kind is one of something.
pub fn short<'a>(key: &'a str, among: &[String]) -> &'a str {
    let last = |key: &'a str| key.rsplit('.').next().unwrap_or(key);
    let same = among.iter().filter(|other| other.rsplit('.').next() == Some(last(key))).count();
    match last(key) {
        "kind" => key.strip_prefix("train.").unwrap_or(key),
        name if same == 1 => name,
        _ => key,
    }
}

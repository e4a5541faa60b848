//! `runner plan`: every cell, its estimated memory and whether it fits.

use std::collections::HashMap;

use rayon::prelude::*;

use super::timelines::timelines;
use crate::device::Target;
use crate::recipe::{Cell, Recipe, keys};
use crate::run::memory_limit;
use crate::words::{Bytes, Settings};
use crate::words::{DeviceId, text};

/// The plan as a table with a closing sentence; whether a cell fits is asked of the target's memory.
pub fn plan(recipe: &Recipe, target: &Target) -> String {
    let settings: Vec<Settings> = recipe.cells.par_iter().map(Cell::settings).collect();
    let swept = recipe.telling_keys();
    let mut header = vec!["cell"];
    header.extend(swept.iter().map(|key| short(key, &swept)));
    let host = recipe.cells.iter().any(|cell| cell.estimate().host > 0);
    header.extend(["weights", "kept", "estimate", "limit", "fits"]);
    header.extend(host.then_some("host"));
    let ranks = recipe.cells.iter().any(|cell| cell.sent().is_some());
    header.extend(ranks.then_some("sent"));
    let memory = |device: DeviceId| (device, target.info(device));
    let devices: HashMap<_, _> = [recipe.device(), DeviceId::Cpu].into_iter().map(memory).collect();
    let (mut too_large, mut unknown) = (0, 0);
    let mut lines = Vec::new();
    for (index, cell) in recipe.cells.iter().enumerate() {
        let limit = memory_limit(cell, &devices[&cell.device_id()]);
        let estimate = cell.within(limit).estimate();
        let limit = Some(limit).filter(|limit| *limit < u64::MAX);
        let on_host = cell.measure.host_memory_limit.is_none_or(|limit| estimate.host <= limit.0);
        let fits = match (on_host, limit) {
            (false, _) => Some(false),
            (true, limit) => limit.map(|limit| estimate.total() <= limit),
        };
        too_large += usize::from(fits == Some(false));
        unknown += usize::from(fits.is_none());
        let mut line = vec![(index + 1).to_string()];
        line.extend(swept.iter().map(|key| {
            keys::value(key, &settings[index]).map_or_else(|| "-".into(), |value| text::value(&value))
        }));
        line.extend([
            Bytes(estimate.weights).to_string(),
            Bytes(estimate.kept).to_string(),
            Bytes(estimate.total()).to_string(),
            limit.map_or("-".into(), |limit| Bytes(limit).to_string()),
            fits.map_or("-", |fits| if fits { "yes" } else { "no" }).to_string(),
        ]);
        line.extend(host.then(|| Bytes(estimate.host).to_string()));
        line.extend(ranks.then(|| cell.sent().map_or("-".into(), |sent| Bytes(sent).to_string())));
        lines.push(line);
    }
    let table = text::table(&header, lines, 0);
    let verdict = match (too_large, unknown) {
        (0, 0) => "every cell fits by its estimate".to_string(),
        (0, n) => format!("of {n} it is not known whether they fit: their device's memory is not"),
        (n, _) => format!("{n} would not fit by their estimates and may become `oom` rows"),
    };
    let cells = match recipe.cells.len() {
        1 => "1 cell".to_string(),
        n => format!("{n} cells"),
    };
    let sent = if ranks { " sent: by a rank in a step, the most; memory is a rank's." } else { "" };
    let host = if host { " host: what is there instead of on the device." } else { "" };
    format!(
        "{}\n{table}\n{cells}; {verdict}. kept: from forward to backward; estimate: at the highest \
         moment.{host}{sent}{}",
        recipe.title,
        timelines(&recipe.cells),
    )
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

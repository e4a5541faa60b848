//! `runner plan`: every cell, its estimated memory and whether it fits.

use std::collections::HashMap;

use itertools::Itertools;
use rayon::prelude::*;

use super::timelines::timelines;
use crate::advise::{Rates, step_time};
use crate::common::{Bytes, DeviceId, text};
use crate::device::Target;
use crate::keys::settings;
use crate::measure::Estimate;
use crate::recipe::{Cell, Recipe, keys};
use crate::run::memory_limit;

/// A cell's line of the plan.
struct Planned {
    estimate: Estimate,
    /// Bytes of the device's memory, where known.
    limit: Option<u64>,
    fits: Option<Fits>,
    /// Bytes that a rank sends in a step, at most.
    sent: Option<u64>,
    /// Predicted seconds of a step, of a card whose rates are known, and without other ranks.
    seconds: Option<f64>,
    /// Its values of the swept keys.
    values: Vec<String>,
}

/// Whether a cell fits by its estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fits {
    Yes,
    /// With less room to spare than a GPU's pools may reserve.
    Close,
    No,
}

impl Fits {
    fn of(tensors: u64, limit: u64, device: DeviceId) -> Self {
        match device {
            DeviceId::Cpu if tensors <= limit => Self::Yes,
            _ if tensors > limit.saturating_sub(device.context_bytes()) => Self::No,
            _ if tensors > device.room(limit) => Self::Close,
            _ => Self::Yes,
        }
    }
}

impl Planned {
    /// `room`: bytes that are free on the host; 0 where nobody knows.
    fn new(cell: &Cell, limit: u64, room: u64, rates: Option<&Rates>, swept: &[String]) -> Self {
        let within = cell.within(limit);
        let (estimate, sent) = (within.estimate(), cell.sent());
        let rates = rates.filter(|_| sent.is_none() && cell.device_id() != DeviceId::Cpu);
        let seconds = rates.map(|rates| step_time(&within, rates).total());
        let limit = Some(limit).filter(|limit| *limit < u64::MAX);
        let allowed =
            cell.measure.host_memory_limit.is_none_or(|limit| estimate.on_host(cell.device_id()) <= limit.0);
        let fits = match allowed && (room == 0 || estimate.host <= room) {
            false => Some(Fits::No),
            true => limit.map(|limit| Fits::of(estimate.total(), limit, cell.device_id())),
        };
        let json = cell.to_json();
        let value = |key: &String| {
            let written =
                json.pointer(&format!("/{}", key.replace('.', "/"))).filter(|value| !value.is_null());
            let value = written.cloned().or_else(|| keys::value(key, &settings(&json)));
            value.map_or_else(|| "-".into(), |value| keys::shown(key, &value))
        };
        Self { estimate, limit, fits, sent, seconds, values: swept.iter().map(value).collect() }
    }
}

/// The plan as a table of these cells with a closing sentence about all; cells fit or not into the target's memory.
pub fn plan(recipe: &Recipe, target: &Target, shown: &[usize]) -> String {
    let infos: HashMap<DeviceId, _> =
        recipe.cells.iter().map(Cell::device_id).unique().map(|id| (id, target.info(id))).collect();
    let room = target.info(DeviceId::Cpu).memory_available;
    let limit = |cell: &Cell| memory_limit(cell, &infos[&cell.device_id()]);
    let rates = target.card().map(|(card, part)| Rates::of_card(card, part));
    let of_cell = |cell: &Cell| Planned::new(cell, limit(cell), room, rates.as_ref(), &recipe.telling);
    let planned: Vec<Planned> = recipe.cells.par_iter().map(of_cell).collect();
    let host = planned.iter().any(|cell| cell.estimate.host > 0);
    let ranks = planned.iter().any(|cell| cell.sent.is_some());
    let timed = planned.iter().any(|cell| cell.seconds.is_some());
    let mut table = table(recipe, &planned, shown, [host, ranks, timed]);
    if shown.len() < planned.len() {
        let more = text::counted(planned.len() - shown.len(), "more cell");
        table += &format!("\nand {more}: `runner plan` lists all");
    }
    let cells = text::counted(recipe.cells.len(), "cell");
    let sent = if ranks { " sent: the most that a rank sends in a step; memory is per rank." } else { "" };
    let host = if host { " host: what is on the host instead of the device." } else { "" };
    let times = if timed { " step: by the card's data sheet, on which nothing was measured." } else { "" };
    let elsewhere = recipe.elsewhere_notice().map_or(String::new(), |notice| format!("\n{notice}"));
    format!(
        "{}\n{table}\n{cells}; {}. kept: from forward to backward; estimate: at the step's \
         peak.{host}{sent}{times}{elsewhere}{}",
        recipe.title,
        verdict(recipe, &planned),
        timelines(&recipe.cells),
    )
}

/// A line for each of the shown cells, with what is on the host, what a rank sends and times where these columns are wanted.
fn table(recipe: &Recipe, planned: &[Planned], shown: &[usize], [host, ranks, timed]: [bool; 3]) -> String {
    let swept = &recipe.telling;
    let mut header = vec!["cell"];
    header.extend(swept.iter().map(|key| short(key, swept)));
    header.extend(["weights", "kept", "estimate", "limit", "fits"]);
    header.extend(host.then_some("host"));
    header.extend(ranks.then_some("sent"));
    header.extend(timed.then_some("step"));
    let bytes = |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| Bytes(bytes).to_string());
    let line = |&index: &usize| {
        let Planned { estimate, limit, fits, sent, seconds, values } = &planned[index];
        let fits = match fits {
            _ if recipe.elsewhere.contains_key(&index) => "not here",
            Some(Fits::Yes) => "yes",
            Some(Fits::Close) => "close",
            Some(Fits::No) => "no",
            None => "-",
        };
        let sizes = [estimate.weights, estimate.kept, estimate.total()].map(|size| bytes(Some(size)));
        let mut line = vec![(index + 1).to_string()];
        line.extend(values.iter().cloned().chain(sizes).chain([bytes(*limit), fits.into()]));
        line.extend(host.then(|| bytes(Some(estimate.host))));
        line.extend(ranks.then(|| bytes(*sent)));
        line.extend(timed.then(|| seconds.map_or_else(|| "-".into(), text::seconds)));
        line
    };
    text::table(&header, shown.iter().map(line).collect(), 0)
}

/// How many cells fit.
fn verdict(recipe: &Recipe, planned: &[Planned]) -> String {
    let here = planned.iter().enumerate().filter(|(index, _)| !recipe.elsewhere.contains_key(index));
    let count = |fits| here.clone().filter(|(_, cell)| cell.fits == fits).count();
    let mut verdict = match (count(Some(Fits::No)), count(None)) {
        (0, 0) if recipe.elsewhere.is_empty() => "every cell fits by its estimate".to_string(),
        (0, 0) => "every cell that can run here fits by its estimate".to_string(),
        (0, n) => {
            format!("of {n} it is not known whether they fit, since the memory of their device is not known")
        }
        (n, _) => format!("{n} would not fit by their estimates and may become `oom` rows"),
    };
    let close = count(Some(Fits::Close));
    if close > 0 {
        verdict += &format!("; {close} with less room to spare than a GPU's pools may reserve (`close`)");
    }
    verdict
}

/// The key without its section, where no other key has the same last part; a `kind` keeps its section.
pub fn short<'a>(key: &'a str, among: &[String]) -> &'a str {
    let last = |key: &'a str| key.rsplit('.').next().unwrap_or(key);
    let same = among.iter().filter(|other| other.rsplit('.').next() == Some(last(key))).count();
    match last(key) {
        "kind" => key.strip_prefix("train.").unwrap_or(key),
        name if same == 1 => name,
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_and_what_pools_hold_need_room_on_a_gpu() {
        let gpu = DeviceId::Cuda(0);
        let limit = gpu.limit_for(5_000_000_000);
        let of = |tensors, device| Fits::of(tensors, limit, device);
        assert_eq!([of(5_000_000_000, gpu), of(5_000_000_011, gpu)], [Fits::Yes, Fits::Close]);
        let rest = limit - gpu.context_bytes();
        assert_eq!([of(rest, gpu), of(rest + 1, gpu)], [Fits::Close, Fits::No]);
        assert_eq!([of(limit, DeviceId::Cpu), of(limit + 1, DeviceId::Cpu)], [Fits::Yes, Fits::No]);
    }
}

//! What the numbers of a report do not show.

use super::columns;
use super::environment::of_processes;
use super::interval::builds;
use super::prelude::*;
use crate::common::text::{and, counted, percent};

/// A step of which kernels take less than this share waits for its host.
const AT_WORK: f64 = 0.75;
/// Below this share of its rate of matrix products a GPU waits for its host more than it computes.
const WAITING: f64 = 0.1;

/// The limits of what the numbers show, the most important first.
pub fn limits(comparison: &Comparison) -> Vec<String> {
    let rows = of_processes(comparison);
    let devices = rows.iter().map(|row| row.environment.device.name.as_str()).unique().collect_vec();
    let devices = match devices.as_slice() {
        [] => None,
        [one] => Some(format!("Other devices: everything was measured on {one}.")),
        several => Some(format!("Devices differ in more than the method: {}.", and(several))),
    };
    let first = [processes(comparison), waiting(comparison), of_builds(comparison), devices];
    let last = [learning(comparison), rates(comparison)].into_iter().flatten().map(String::from);
    first.into_iter().flatten().chain(last).collect()
}

fn updates(line: &Line) -> bool {
    line.settings.get("train.optimizer.kind").is_some_and(|kind| kind != "none")
}

fn learning(comparison: &Comparison) -> Option<&'static str> {
    if !comparison.lines.iter().any(updates) {
        return Some("Learning: no parameter is updated, so a loss says nothing about it.");
    }
    let has_random_weights = |line: &Line| {
        line.settings.contains_key("model.vocab_size")
            && ["", "random"].contains(&line.setting("model.weights"))
    };
    let random = comparison.lines.iter().any(has_random_weights);
    random.then_some("Quality of a pretrained model: weights begin random.")
}

/// Whether optimizers and ways of tuning are compared, each at one learning rate.
fn rates(comparison: &Comparison) -> Option<&'static str> {
    let learning = comparison.lines.iter().filter(|line| updates(line)).map(|line| {
        let value = |key: &str| line.settings.get(key).map(ToString::to_string);
        ((value("train.optimizer.kind"), value("tuning.method")), value("train.optimizer.lr"))
    });
    let rates = learning.unique().into_group_map();
    (rates.len() > 1 && rates.values().all(|rates| rates.len() == 1))
        .then_some("Other learning rates: each method was tried at one, and another may suit it better.")
}

/// Of how many processes and seeds the times are.
fn processes(comparison: &Comparison) -> Option<String> {
    let groups = comparison.groups();
    let counts = groups.iter().map(|group| comparison.over_processes("step_s_median", &group.lines).len());
    Some(match counts.filter(|count| *count > 0).min()? {
        1 => "Differences in time of methods that ran in one process: another one may take longer or less."
            .into(),
        least => format!(
            "Small differences in time: each comes from at least {least} processes, and one in twenty intervals misses."
        ),
    })
}

/// Times of different builds are not compared.
fn of_builds(comparison: &Comparison) -> Option<String> {
    let all = builds(comparison, &(0..comparison.lines.len()).collect_vec());
    (all.len() > 1).then(|| {
        format!(
            "Differences in time between cells of {} builds of the runner, {}. `runner run --stale` measures all with one.",
            all.len(),
            and(&all)
        )
    })
}

/// Whether a step of one process on a GPU waits for its host, which launches kernels one by one: by the kernels of its traced step,
/// else by its share of the device's rate.
pub fn waits_for_host(line: &Line) -> bool {
    let is = |key: &str, value: &str| line.settings.get(key).is_none_or(|of| of == value);
    // Blocks that move wait for their copies, ranks for each other, an update on the host for it, and a graph for nobody.
    let launches = line.row.is_some_and(|row| !row.is_on_cpu())
        && line.measured().is_some_and(|measured| measured.ranks.is_empty() && !measured.is_graph())
        && is("offload.strategy", "none")
        && is("offload.optimizer", "device");
    let share = || columns::named("share_of_matmul_rate")(line);
    launches
        && line.busy().map_or_else(|| share().is_some_and(|share| share < WAITING), |busy| busy < AT_WORK)
}

/// How many cells wait for their host.
fn waiting(comparison: &Comparison) -> Option<String> {
    let waiting = comparison.lines.iter().filter(|line| waits_for_host(line)).collect_vec();
    let least = waiting.iter().filter_map(|line| line.busy()).min_by(f64::total_cmp);
    let least = least.map_or(String::new(), |busy| format!(" (at the least {})", percent(busy)));
    let cells = format!("{} of {}", waiting.len(), counted(comparison.lines.len(), "cell"));
    (!waiting.is_empty()).then(|| {
        format!(
            "The device's own speed in {cells} that wait for their host: kernels take less than {} of the step{least}.",
            percent(AT_WORK),
        )
    })
}

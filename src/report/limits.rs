//! What the numbers of a report do not show.

use itertools::Itertools;

use super::columns;
use super::environment::of_processes;
use super::interval::builds;
use super::line::Line;
use super::table::Comparison;
use crate::common::text::{and, counted, percent, seconds};

/// A step of which kernels take less than this share waits for its host.
const AT_WORK: f64 = 0.75;
/// Below this share of its rate of matrix products a GPU waits for its host more than it computes.
const WAITING: f64 = 0.1;

/// The limits of what the numbers show, the most important first.
pub fn limits(comparison: &Comparison) -> Vec<String> {
    let lines = || comparison.lines.iter();
    let rows = of_processes(comparison);
    let mut out = Vec::new();
    out.extend(processes(comparison));
    out.extend(waiting(comparison));
    out.extend(of_builds(comparison));
    let devices = rows.iter().map(|row| row.environment.device.name.as_str()).unique().collect_vec();
    out.extend(match devices.as_slice() {
        [] => None,
        [one] => Some(format!("Other devices: everything was measured on {one}.")),
        several => Some(format!("Devices differ in more than the method: {}.", and(several))),
    });
    let updates = |line: &Line| line.settings.get("train.optimizer.kind").is_some_and(|kind| kind != "none");
    if !lines().any(updates) {
        out.push("Learning: no parameter is updated, so a loss says nothing about it.".into());
    } else if lines().any(|line| has_random_weights(line)) {
        out.push("Quality of a pretrained model: weights begin random.".into());
    }
    // Optimizers and ways of tuning, each with its learning rates.
    let learning = lines().filter(|line| updates(line)).map(|line| {
        let of = |key: &str| line.settings.get(key).map(ToString::to_string);
        ((of("train.optimizer.kind"), of("tuning.method")), of("train.optimizer.lr"))
    });
    let rates = learning.unique().into_group_map();
    if rates.len() > 1 && rates.values().all(|rates| rates.len() == 1) {
        out.push(
            "Other learning rates: each method was tried at one, and another may suit it better.".into(),
        );
    }
    out
}

fn has_random_weights(line: &Line) -> bool {
    let weights = line.settings.get("model.weights").and_then(|of| of.as_str());
    line.settings.contains_key("model.vocab_size") && weights.is_none_or(|of| of == "random")
}

/// Of how many processes and seeds the times are.
fn processes(comparison: &Comparison) -> Option<String> {
    let groups = comparison.groups();
    let counts = groups.iter().map(|group| comparison.over_processes("step_s_median", &group.lines).len());
    let counts = counts.filter(|count| *count > 0).minmax().into_option();
    Some(match counts? {
        (1, 1) => {
            "Differences in time: each cell ran in one process, and another one may take longer or less."
                .into()
        }
        (1, _) => {
            "Differences in time of methods that ran in one process: another one may take longer or less."
                .into()
        }
        (least, _) => format!(
            "Small differences in time: each is of at least {}, and one in twenty intervals misses.",
            counted(least, "process").replace("processs", "processes")
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

/// How many cells wait for their host, and how long it takes from one kernel to the next.
fn waiting(comparison: &Comparison) -> Option<String> {
    let waiting = comparison.lines.iter().filter(|line| waits_for_host(line)).collect_vec();
    let launch = waiting.iter().filter_map(|line| line.row?.environment.ceilings.launch);
    let launch = launch.min_by(f64::total_cmp);
    let launch = launch.map_or(String::new(), |time| {
        format!(" The host needs {} from one small kernel to the next.", seconds(time))
    });
    let least = waiting.iter().filter_map(|line| line.busy()).min_by(f64::total_cmp);
    let least = least.map_or(String::new(), |busy| format!(" (at the least {})", percent(busy)));
    (!waiting.is_empty()).then(|| {
        format!(
            "The device's own speed in {} of {} that wait for their host: kernels take less than {} of the step{least}.{launch}",
            waiting.len(),
            counted(comparison.lines.len(), "cell"),
            percent(AT_WORK),
        )
    })
}

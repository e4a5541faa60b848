//! The paragraph of a report that says what its numbers do not show.

use itertools::Itertools;
use polars::prelude::ChunkQuantile;

use super::environment::of_processes;
use super::line::Line;
use super::table::Comparison;
use crate::recipe::Cell;
use crate::residence::Memory;
use crate::words::text::percent;

/// A step of which kernels take less than this share waits for its host.
const AT_WORK: f64 = 0.75;
/// Below this share of its rate of matrix products a GPU waits for its host more than it computes.
const WAITING: f64 = 0.1;

/// The limits of what the numbers show.
pub fn limits(comparison: &Comparison) -> String {
    let lines = || comparison.lines.iter();
    let rows = of_processes(comparison);
    let mut out = Vec::new();
    let machines = rows.iter().map(|row| row.environment.device.name.as_str()).unique().count();
    out.extend(match machines {
        0 => None,
        1 => Some(
            "All measurements are of one kind of device: on another one the ratios may differ, and so may the sizes at which \
             a method pays."
                .to_string(),
        ),
        n => Some(format!("The measurements are of {n} kinds of device, which differ in more than the method.")),
    });
    // Cells of several seeds are processes of one method.
    let is_alone = comparison.problems() == comparison.shapes.len();
    if is_alone && !rows.is_empty() && lines().all(|line| line.rows.len() < 2) {
        out.push("Each cell ran in one process, so the times of two cells may differ by as much as those of two processes.".into());
    }
    let trained = lines().any(|line| line.cell.train.optimizer.rule().is_some());
    let whole = if lines().any(|line| line.cell.train.mode.trains()) {
        "forward and backward"
    } else {
        "forward alone"
    };
    if !trained {
        out.push(format!(
            "No parameter is updated: a step is {whole}, and its loss says nothing about learning."
        ));
    }
    let random =
        lines().any(|line| line.cell.model.decoder().is_some() && line.cell.model.weights_folder().is_none());
    if random {
        out.push("Weights begin random: time and memory do not depend on them, but quality does.".into());
    }
    // Optimizers and ways of tuning, each with its learning rates.
    let learning = lines().filter(|line| line.cell.train.optimizer.rule().is_some()).map(|line| {
        let of = |key: &str| line.settings.get(key).map(ToString::to_string);
        ((of("train.optimizer.kind"), of("tuning.method")), of("train.optimizer.lr"))
    });
    let rates = learning.unique().into_group_map();
    if trained && rates.len() > 1 && rates.values().all(|rates| rates.len() == 1) {
        out.push("Each method was tried at one learning rate; another may suit it better.".into());
    }
    out.extend(waiting(comparison));
    out.extend(
        rows.iter().any(|row| !row.is_on_cpu()).then(|| {
            "Peak memory counts tensors alone; a card must also hold what the driver counts.".into()
        }),
    );
    out.join(" ")
}

/// How many cells of a GPU wait for their host, which launches kernels one by one, where the traces or the rates tell it.
fn waiting(comparison: &Comparison) -> Option<String> {
    let on_gpu = |line: &&Line| line.row.is_some_and(|row| !row.is_on_cpu());
    let lines = || comparison.lines.iter().filter(on_gpu);
    // Blocks that move wait for their copies, ranks for each other, an update on the host for it, and a graph for nobody.
    let launched = |line: &&Line| {
        let Cell { offload, train, parallel, .. } = line.cell;
        !offload.moves() && offload.optimizer == Memory::Device && !train.graph && parallel.is_alone()
    };
    let busy: Vec<f64> = lines().filter(launched).filter_map(Line::busy).collect();
    let idle = busy.iter().copied().filter(|busy| *busy < AT_WORK);
    if let Some(least) = idle.clone().min_by(f64::total_cmp) {
        return Some(format!(
            "At {} of {} traced cells of one process without a graph or offload, kernels take less than {} of the step, at the \
             lowest {}: the rest of these times is that of the host, mostly of launching kernels, which larger work would hide.",
            idle.count(),
            busy.len(),
            percent(AT_WORK),
            percent(least)
        ));
    }
    let launched = (0..comparison.lines.len()).filter(|&i| {
        let line = &comparison.lines[i];
        on_gpu(&line) && launched(&line)
    });
    let share = comparison.frame.of_rows("share_of_matmul_rate", launched).median();
    share.filter(|share| busy.is_empty() && *share < WAITING).map(|share| {
        format!(
            "In the median cell of one process without a graph or offload the device reaches {} of its rate of matrix products: \
             the batches are small, and much of these times is that of launching kernels and of updates, which larger ones \
             would hide.",
            percent(share)
        )
    })
}

//! Hand-made recipes and rows for the tests of the report.

use std::path::Path;

use crate::measure::trace::{self, Activity, ActivityKind, chrome_trace};
use crate::measure::{Counts, Estimate, Evaluation, Load, Loading, Measurement, MemoryUse, Samples};
use crate::recipe::{Cell, Recipe, Source};
use crate::row::{Ceilings, DeviceInfo};
use crate::row::{Environment, Row, Status};
use crate::run::testing;

/// A recipe of SwiGLU stacks whose `[grid]` and `[report]` are given.
pub fn recipe(grid_and_report: &str) -> Recipe {
    let text = format!(
        r#"title = "Checkpoint levels"
question = "What does recomputing <cost> & save?"
device = "cpu"

[model]
kind = "swiglu"
hidden_size = 512
intermediate_size = 2048
num_hidden_layers = 2

[train]
batch_size = 16
seq_len = 128

{grid_and_report}"#
    );
    Recipe::parse(&Source { path: "recipes/levels.toml".into(), text }).expect("a valid recipe")
}

/// A recipe of small language models whose `[grid]` and `[report]` are given.
pub fn language_recipe(grid_and_report: &str) -> Recipe {
    let text = format!(
        r#"title = "Language models"
device = "cpu"

[model]
kind = "gpt2"
vocab_size = 1024
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4

[data]
corpus = "generated"
size = "1 MiB"
vocab_size = 1024

[train]
batch_size = 4
seq_len = 64
optimizer = {{ kind = "adamw", lr = 1e-3 }}

[eval]
every = 20

{grid_and_report}"#
    );
    Recipe::parse(&Source { path: "recipes/language.toml".into(), text }).expect("a valid recipe")
}

/// The published study: five shapes at three levels.
pub const STUDY: &str = r#"
[[grid]]
"train.batch_size" = [16, 32]
"checkpoint.level" = [0, 0.5, 1]

[[grid]]
"train.batch_size" = [8, 16]
"train.seq_len" = 512
"model.hidden_size" = 1024
"model.intermediate_size" = 4096
"model.num_hidden_layers" = 3
"checkpoint.level" = [0, 0.5, 1]

[[grid]]
"train.batch_size" = 4
"train.seq_len" = 1024
"model.hidden_size" = 4096
"model.intermediate_size" = 16384
"model.num_hidden_layers" = 5
"checkpoint.level" = [0, 0.5, 1]

[report]
baseline = { "checkpoint.level" = 0 }
"#;

pub fn environment() -> Environment {
    Environment {
        runner_version: "0.1.0".into(),
        commit: "0123456789ab".into(),
        build: "ba9876543210".into(),
        device: DeviceInfo { name: "Test CPU @ 2.00GHz".into(), ..testing::device() },
        ceilings: Ceilings { matmul_fp32: Some(100e9), copy: Some(10e9), ..Ceilings::default() },
        operating_system: "Linux 6.1".into(),
        date: "2026-11-21T07:30:00Z".into(),
    }
}

/// Times in seconds, memory in bytes; the samples of a phase lie within 1 % of its median.
pub fn measurement(forward: f64, backward: f64, peak: u64) -> Measurement {
    let samples = |median: f64| Samples::new(vec![median * 0.99, median, median * 1.01]);
    Measurement {
        forward: Some(samples(forward)),
        backward: Some(samples(backward)),
        optimizer: Some(samples(forward / 10.0)),
        step: samples(forward * 1.1 + backward),
        tokens_per_second: 2048.0 / (forward * 1.1 + backward),
        loss: vec![2.0, 1.5, 1.25],
        memory: MemoryUse {
            live_peak: peak,
            forward_peak: peak / 2,
            backward_peak: peak,
            optimizer_peak: peak / 4,
            after_forward: peak / 3,
            process_rss_peak: Some(peak * 2),
            ..MemoryUse::default()
        },
        flops_per_second: 50e9,
        ..testing::measurement(0.0)
    }
}

pub fn ok_row(cell: &Cell, forward: f64, backward: f64, peak: u64) -> Row {
    let mut row = Row::new(cell, &environment(), Status::Ok, String::new());
    row.measurement = Some(measurement(forward, backward, peak));
    row.estimate = Estimate { weights: peak / 2, activations: peak / 2, ..Estimate::default() };
    row
}

/// A language model's row with these training losses and evaluations (step, loss, accuracy).
pub fn learned_row(cell: &Cell, losses: Vec<f64>, evaluations: &[(usize, f64, f64)]) -> Row {
    let mut row = ok_row(cell, 0.01, 0.02, 100 << 20);
    let m = row.measurement.as_mut().expect("a measured row");
    m.loss = losses;
    let evaluation = |&(step, loss, accuracy): &_| Evaluation { step, loss, accuracy };
    m.evaluations = evaluations.iter().map(evaluation).collect();
    row
}

/// A row with a sampler: seconds of the whole run, real tokens of each step, padding and cut tokens.
pub fn loading_row(cell: &Cell, run_seconds: f64, tokens: &[u64], padding: u64, cut: u64) -> Row {
    let mut row = ok_row(cell, 0.01, 0.02, 100 << 20);
    let m = row.measurement.as_mut().expect("a measured row");
    let of_step = |(i, &tokens): (usize, &u64)| Load {
        counts: Counts {
            samples: 4,
            tokens,
            padding: if i == 0 { padding } else { 0 },
            cut_samples: u64::from(i == 0 && cut > 0),
            cut: if i == 0 { cut } else { 0 },
            ..Counts::default()
        },
        stall: 0.001,
    };
    let loads: Vec<Load> = tokens.iter().enumerate().map(of_step).collect();
    let seconds = |total: f64| Samples::new(vec![total / loads.len() as f64; loads.len()]);
    (m.forward, m.backward) = (Some(seconds(run_seconds / 3.0)), Some(seconds(run_seconds / 2.0)));
    m.step = seconds(run_seconds * 0.9);
    let loading = Loading::new(run_seconds, &loads);
    m.tokens_per_second = loading.tokens() as f64 / run_seconds;
    m.loading = Some(loading);
    row
}

/// A row of every language model: losses fall with the steps, each cell's a little less than the
/// one's before it, evaluated ten times.
pub fn language_rows(recipe: &Recipe, steps: usize) -> Vec<Row> {
    let row = |(i, cell): (usize, &Cell)| {
        let at = |step: usize| {
            let share = step as f64 / steps as f64;
            3.0 + 0.06 * i as f64 + 4.0 * (-5.0 * share).exp()
        };
        let noise = |step: usize| ((step * step * 37 + i * 11) % 101) as f64 / 250.0 - 0.2;
        let losses = (0..steps).map(|step| at(step) + noise(step)).collect();
        let evaluations: Vec<(usize, f64, f64)> = (0..=10)
            .map(|n| n * steps / 10)
            .map(|step| (step, at(step) + 0.1, 0.4 * step as f64 / steps as f64))
            .collect();
        learned_row(cell, losses, &evaluations)
    };
    recipe.cells.iter().enumerate().map(row).collect()
}

pub fn bad_row(cell: &Cell, status: Status, reason: &str) -> Row {
    let mut row = Row::new(cell, &environment(), status, reason.into());
    row.estimate = Estimate { weights: 1 << 30, ..Estimate::default() };
    row
}

/// A row of every cell: time grows with the work, level 0.5 and 1 take less memory for more
/// backward time.
pub fn rows(recipe: &Recipe) -> Vec<Row> {
    let row = |cell: &Cell| {
        let flops = cell.flops();
        let level = cell.checkpoint.level.number();
        let forward = flops.forward / 80e9;
        let backward = (flops.backward + flops.recompute) / 78e9 * (1.0 + level * 0.03);
        let weights = cell.model.parameters() * 8;
        let kept = (cell.train.tokens() * 40_960) as f64 * (1.0 - 0.6 * level);
        let peak = weights + kept as u64;
        let mut row = ok_row(cell, forward, backward, peak);
        row.estimate.workspace = peak / 50;
        row
    };
    recipe.cells.iter().map(row).collect()
}

/// Writes the traces of some rows into a results folder.
pub fn write_traces<'t>(folder: &Path, traces: impl IntoIterator<Item = (&'t Row, &'t [Activity])>) {
    std::fs::create_dir_all(folder.join(trace::FOLDER)).expect("a folder");
    for (row, activities) in traces {
        std::fs::write(trace::path(folder, &row.key), chrome_trace(activities)).expect("a written trace");
    }
}

/// Three kernels of 7 ms in a step of 10 ms on stream 7. Copies to the device run for 2 ms on
/// stream 13, 48 MiB or 25.2 GB/s, half of it under a kernel; one to the host for 1 ms on stream 7,
/// 16 MiB or 16.8 GB/s, all of it under a kernel of stream 14: 2 of 3 ms are hidden.
pub fn step_trace() -> Vec<Activity> {
    let activity = |kind, name: &str, stream, start: u64, end: u64, mebibytes: u64| Activity {
        kind,
        name: name.into(),
        operator: None,
        stream,
        start: start * 100_000,
        end: end * 100_000,
        bytes: mebibytes << 20,
    };
    vec![
        activity(ActivityKind::HostToDevice, "copy to the device", 13, 0, 10, 24),
        activity(ActivityKind::Kernel, "nvjet_sm90_tst_128x256", 7, 10, 50, 0),
        activity(ActivityKind::HostToDevice, "copy to the device", 13, 35, 45, 24),
        activity(ActivityKind::Kernel, "silu_and_gate_f32", 7, 60, 70, 0),
        activity(ActivityKind::Kernel, "reduce_kernel_f32", 14, 80, 100, 0),
        activity(ActivityKind::DeviceToHost, "copy to the host", 7, 85, 95, 16),
    ]
}

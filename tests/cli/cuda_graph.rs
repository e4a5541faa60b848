//! Steps as CUDA graphs: the values, times and memory of their launches, and why a step has none.

use runner::device::Feature;
use serde_json::Value;

use crate::cuda::lacks;
use crate::cuda_training::{GPT2, QWEN2, SWIGLU, trained};
use crate::place::{changed, estimated, losses};

fn path(row: &Value) -> &str {
    row["measurement"]["paths"]["graph"].as_str().expect("a path")
}

/// Without `train.graph` in the recipe; the losses are those of launches.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_step_that_can_be_recorded_is_and_a_row_says_why_one_was_not() {
    const RECORDED: &str = "forward and backward are one CUDA graph";
    let optimizer = "optimizer = { kind = \"adamw\", lr = 1e-5 }";
    let qwen2 = changed(QWEN2, &[("title = \"biases\"", "title = \"graphs\"")]);
    let rows = trained(
        &format!(
            "{qwen2}[[grid]]\n\"train.graph\" = [\"auto\", false]\n\
             [[grid]]\n\"offload.strategy\" = [\"naive\", \"overlap\"]\n\
             [[grid]]\n\"measure.warmup\" = 1\n\
             [[grid]]\n\"offload.strategy\" = \"overlap\"\n\"offload.optimizer\" = \"host\"\n"
        ),
        6,
    );
    assert!(qwen2.contains(optimizer));
    let found = |is: &dyn Fn(&Value) -> bool| rows.iter().find(|row| is(&row["cell"])).expect("a cell");
    let plain = |cell: &Value| cell["offload"]["strategy"] == "none" && cell["measure"]["warmup"] == 2;
    let (auto, launched) = (
        found(&|cell| plain(cell) && cell["train"]["graph"] == true),
        found(&|cell| plain(cell) && cell["train"]["graph"].is_null()),
    );
    assert_eq!([auto, launched].map(path), [RECORDED, "none: train.graph is false"]);
    assert_eq!(losses(auto), losses(launched), "bit for bit");
    let strategy = |name: &'static str, optimizer: &'static str| {
        path(found(&|cell| cell["offload"]["strategy"] == name && cell["offload"]["optimizer"] == optimizer))
    };
    assert_eq!(strategy("overlap", "device"), RECORDED);
    assert_eq!(strategy("naive", "device"), "none: the host waits for each block");
    assert_eq!(strategy("overlap", "host"), "none: copies of gradients are not recorded");
    let cold = found(&|cell| cell["measure"]["warmup"] == 1);
    assert_eq!(path(cold), "none: the first warm-up step computes, and the second is recorded");
    for row in rows.iter().filter(|row| path(row) == RECORDED) {
        phases_make_the_step(row);
        within_the_estimate(row);
    }
}

/// A step of some milliseconds: the device's times of its phases fill the host's time of the run.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_phases_of_a_graph_fill_the_run() {
    let small = "kind = \"gpt2\"\npreset = \"gpt2\"\n";
    let (before, after) = GPT2.split_once("[model]\n").expect("a model");
    let after = after.split_once("[precision]").expect("a precision").1;
    let recipe = format!("{before}[model]\n{small}[precision]{after}");
    let recipe = changed(
        recipe.split("[grid]").next().expect("a beginning"),
        &[
            ("batch_size = 2", "batch_size = 8"),
            ("seq_len = 7", "seq_len = 512"),
            ("warmup = 2", "warmup = 4"),
        ],
    );
    let rows = trained(&format!("{recipe}[grid]\n\"train.graph\" = [\"auto\", false]\n"), 2);
    for row in &rows {
        let measured = &row["measurement"];
        let seconds = measured["step"]["seconds"].as_array().expect("samples").iter();
        let steps: f64 = seconds.map(|seconds| seconds.as_f64().expect("a time")).sum();
        let run = measured["run_seconds"].as_f64().expect("a time");
        assert!((0.9..1.02).contains(&(steps / run)), "{steps} s of steps in {run} s: {}", path(row));
        phases_make_the_step(row);
        within_the_estimate(row);
    }
    // The kernels are the same; a graph leaves out the time between them.
    let phase = |row: &Value, phase: &str| row["measurement"][phase]["median"].as_f64().expect("a time");
    let [graph, launches] = [true, false].map(|graph| {
        let is = |row: &&Value| (row["cell"]["train"]["graph"] == true) == graph;
        rows.iter().find(is).expect("a row of each")
    });
    // Of 124 million weights 39 are the head's, whose gradients the loss makes in forward; the blocks' backward has twice the
    // products of their forward: 170 of 170 + 85 + 3 * 39.
    let share = phase(graph, "backward") / (phase(graph, "forward") + phase(graph, "backward"));
    assert!((0.4..0.6).contains(&share), "backward is {share} of forward and backward");
    for name in ["forward", "backward"] {
        let ratio = phase(graph, name) / phase(launches, name);
        assert!((0.3..1.1).contains(&ratio), "{name} takes {ratio} of its launches' time");
    }
}

fn within_the_estimate(row: &Value) {
    let (estimate, live) =
        (estimated(row), row["measurement"]["memory"]["live_peak"].as_f64().expect("bytes"));
    let off = (estimate - live).abs();
    assert!(off < (0.08 * live).max((1 << 20) as f64), "{estimate} bytes estimated, {live} measured: {row}");
}

/// A recorded step computes what the step computes, bit for bit, with what changes between steps: tokens, the loss scale,
/// clipping, and the weights; and sums over micro-batches.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_graph_trains_as_its_launches_do() {
    let graphs = "[[grid]]\n\"train.graph\" = [false, true]\n\"train.accumulation_steps\" = [1, 3]\n";
    let gpt2 = GPT2.split("[grid]").next().expect("a beginning");
    let bf16 = "[precision]\ncompute = \"bf16\"\n";
    let fp16 = "[precision]\ncompute = \"fp16\"\nautocast = true\n\
                scaler = { kind = \"dynamic\", init_scale = 65536.0 }\n";
    let ways = "\"checkpoint.blocks\" = [0, 1]\n\
                \"train.optimizer.kind\" = [\"adamw\", \"adamw8bit\"]\n";
    // Of bf16 alone.
    let split = !lacks(Feature::Bf16Products);
    let remainders = if split { "lr = 1e-3, store_param_remainders = true" } else { "lr = 1e-3" };
    let tuned = "\"tuning\" = [{ method = \"lora\", rank = 3 }, { method = \"qlora\", rank = 3 }]\n";
    for (recipe, cells) in [
        (
            format!(
                "{SWIGLU}[[grid]]\n\"train.graph\" = [false, true]\n\"checkpoint.level\" = [0, 0.5, 1]\n"
            ),
            6,
        ),
        (format!("{QWEN2}{graphs}\"checkpoint.level\" = [0, 1]\n"), 8),
        (
            format!(
                "{}{graphs}{ways}",
                changed(
                    gpt2,
                    &[("optimizer =", "clip = \"previous_norm\"\noptimizer ="), ("lr = 1e-3", remainders)]
                )
            ),
            16,
        ),
        (format!("{}{graphs}", changed(gpt2, &[(bf16, fp16)])), 4),
        (format!("{}{graphs}{tuned}", changed(QWEN2, &[("steps = 10", "steps = 5")])), 8),
    ] {
        graphs_equal_launches(&recipe, cells);
    }
}

/// Trains a recipe half of whose cells have graphs, and compares these with the same cells without.
fn graphs_equal_launches(recipe: &str, cells: usize) {
    let rows = trained(recipe, cells);
    let without_graph = |row: &Value| {
        let mut cell = row["cell"].clone();
        cell["train"].as_object_mut().expect("a section").remove("graph");
        cell
    };
    let is_recorded = |row: &&Value| row["cell"]["train"]["graph"] == true;
    assert_eq!(rows.iter().filter(is_recorded).count(), cells / 2);
    for graph in rows.iter().filter(is_recorded) {
        let launches =
            rows.iter().find(|row| !is_recorded(row) && without_graph(row) == without_graph(graph));
        let (launches, measured) = (launches.expect("the same without"), &graph["measurement"]);
        assert_eq!(measured["paths"]["graph"], "forward and backward are one CUDA graph");
        assert_eq!(losses(graph), losses(launches), "bit for bit: {}", graph["cell"]);
        phases_make_the_step(graph);
        let live = |row: &Value| row["measurement"]["memory"]["live_peak"].as_f64().expect("bytes");
        // Of several micro-batches it adds gradients as blocks end, and fewer of them are there at once.
        let adds = graph["cell"]["train"]["accumulation_steps"] != 1;
        // It may read a batch at one place while the next is there already. Of a stack: 3 x 37 x 40 inputs and as many
        // targets in bf16.
        let is_stack = graph["cell"]["model"]["kind"] == "swiglu";
        let batch = if is_stack { 3.0 * 37.0 * 40.0 * 2.0 * 2.0 } else { 0.0 };
        let (with, without) = (live(graph), live(launches));
        let same = 0.99 * without..1.01 * (without + batch);
        assert!(adds || same.contains(&with), "the same memory: {with} {without}");
    }
}

/// Forward, backward and update have times of their own, which together are the step.
fn phases_make_the_step(row: &Value) {
    let measured = &row["measurement"];
    let seconds = |phase: &str| -> Vec<f64> {
        let samples = measured[phase]["seconds"].as_array().into_iter().flatten();
        samples.map(|seconds| seconds.as_f64().expect("a time")).collect()
    };
    let [forward, backward, update, step] = ["forward", "backward", "optimizer", "step"].map(seconds);
    assert!(!step.is_empty() && forward.len() == step.len() && backward.len() == step.len(), "{row}");
    for (i, step) in step.iter().enumerate() {
        assert!(forward[i] > 0.0 && backward[i] > 0.0, "step {i}: {} and {} s", forward[i], backward[i]);
        let sum = forward[i] + backward[i] + update.get(i).unwrap_or(&0.0);
        assert!((sum / step - 1.0).abs() < 0.02, "step {i}: {sum} of {step} s: {row}");
    }
}

/// The copies of blocks that move are part of the graph, of all weights and of adapters.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_graph_of_blocks_that_move_trains_as_its_launches_do() {
    let offload = "offload = [{ strategy = \"function\" }, { strategy = \"overlap\" }, \
                   { strategy = \"overlap\", buffers = 1, resident_blocks = 1 }]\n";
    let graphs = format!("[[grid]]\n\"train.graph\" = [false, true]\n{offload}");
    let adapters = format!("{graphs}\"tuning\" = [{{ method = \"lora\", rank = 3 }}]\n");
    graphs_equal_launches(&format!("{QWEN2}{graphs}"), 6);
    graphs_equal_launches(&format!("{QWEN2}{adapters}"), 6);
}

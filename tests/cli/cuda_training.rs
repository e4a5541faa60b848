//! Training on an NVIDIA GPU in settings that a CPU cannot show: the types, layouts and copies are the
//! device's own.

use runner::device::Feature;
use serde_json::Value;

use crate::cuda::{lacks, need_gpu, suited};
use crate::equivalence::{peaks_are_equal, samples_train_alike};
use crate::place::{Place, SMALL, changed, losses};

/// Runs every cell; gives the rows, whose losses are all finite.
pub fn trained(recipe: &str, cells: usize) -> Vec<Value> {
    need_gpu();
    let place = Place::new(&suited(recipe));
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0).says(&[&format!("{cells} measured")]);
    let rows = place.rows();
    assert_eq!(place.count("ok"), cells, "{:?}", rows.iter().map(|row| &row["reason"]).collect::<Vec<_>>());
    rows.iter().for_each(|row| assert!(losses(row).iter().all(|loss| loss.is_finite()), "{row}"));
    rows
}

/// The largest difference between the losses of two rows.
pub fn apart(row: &Value, other: &Value) -> f64 {
    let (ours, others) = (losses(row), losses(other));
    assert_eq!(ours.len(), others.len());
    ours.iter().zip(others).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn samples() -> String {
    changed(
        SMALL,
        &[
            ("[model]", "device = \"cuda:0\"\n[model]"),
            ("num_hidden_layers = 2", "num_hidden_layers = 6"),
            ("max_position_embeddings = 32", "max_position_embeddings = 128"),
            ("batch_size = 2", "batch_size = 4"),
            ("seq_len = 16", "seq_len = 128"),
            ("[measure]", "[offload]\nstrategy = \"overlap\"\noptimizer = \"host\"\n[measure]"),
        ],
    ) + "[[grid]]\n\"data.sampler\" = [\"packed\", \"standard\"]\n\
         [[grid]]\n\"data.sampler\" = \"balanced\"\n\"data.k\" = 8\n"
}

/// More blocks than slots, and gradients in the place of weights: each width that the device prepares for is
/// a backward of its own.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn samples_of_every_width_train_with_blocks_and_optimizer_on_the_host() {
    trained(&samples(), 3);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn samples_train_alike_wherever_blocks_are_on_a_gpu() {
    need_gpu();
    samples_train_alike("cuda:0", 5e-4);
}

const SWIGLU: &str = r#"title = "a stack"
device = "cuda:0"
[model]
kind = "swiglu"
hidden_size = 40
intermediate_size = 72
num_hidden_layers = 3
[precision]
compute = "bf16"
[train]
batch_size = 3
seq_len = 37
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
warmup = 2
steps = 8
"#;

const QWEN2: &str = r#"title = "biases"
device = "cuda:0"
[model]
kind = "qwen2"
preset = "qwen2.5-0.5b"
num_hidden_layers = 4
[precision]
compute = "bf16"
[train]
batch_size = 1
seq_len = 512
optimizer = { kind = "adamw", lr = 1e-5 }
[measure]
warmup = 2
steps = 10
"#;

pub const GPT2: &str = r#"title = "biases"
device = "cuda:0"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 72
num_hidden_layers = 5
num_attention_heads = 4
max_position_embeddings = 64
[precision]
compute = "bf16"
[train]
batch_size = 2
seq_len = 7
clip_norm = 0.1
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
warmup = 2
steps = 10
[grid]
"offload.strategy" = ["none", "overlap"]
"#;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn models_with_biases_stay_finite_in_bf16() {
    if lacks(Feature::Bf16Products) {
        return;
    }
    trained(QWEN2, 1);
    trained(GPT2, 2);
}

/// Matrices whose rows the backend pads: 100 columns of fp32, and of batches whose widths differ.
const PLAIN: &str = r#"title = "plain attention"
device = "cuda:0"
[model]
kind = "qwen2"
vocab_size = 300
hidden_size = 40
intermediate_size = 100
num_hidden_layers = 3
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 64
[data]
corpus = "generated"
size = "20 KiB"
vocab_size = 300
[train]
batch_size = 3
seq_len = 33
clip_norm = 1.0
optimizer = { kind = "adamw", lr = 3e-3 }
[measure]
warmup = 1
steps = 7
[[grid]]
"data.sampler" = "standard"
"ops.attention" = ["custom", "plain"]
[[grid]]
"data.sampler" = "balanced"
"data.k" = 8
"ops.attention" = ["custom", "plain"]
"#;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn plain_attention_gives_the_custom_operators_losses() {
    let rows = trained(PLAIN, 4);
    for row in &rows {
        let sampler = |row: &Value| row["cell"]["data"]["sampler"].clone();
        let other = rows.iter().find(|other| sampler(other) == sampler(row)).expect("itself");
        let apart = apart(row, other);
        assert!(apart < 1e-4, "{apart:.1e} {}", row["cell"]);
    }
}

/// Rows of 1408 elements of two bytes.
const WIDE: &str = r#"title = "padded rows"
device = "cuda:0"
[model]
kind = "llama"
vocab_size = 512
hidden_size = 512
intermediate_size = 1408
num_hidden_layers = 9
num_attention_heads = 8
num_key_value_heads = 4
max_position_embeddings = 256
[precision]
compute = "bf16"
[train]
batch_size = 4
seq_len = 256
optimizer = { kind = "sgd", lr = 0.1 }
[measure]
warmup = 1
steps = 3
[grid]
"offload.strategy" = ["none", "overlap"]
"#;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn matrices_whose_rows_are_padded_train_with_blocks_on_the_host() {
    let rows = trained(WIDE, 2);
    let apart = apart(&rows[0], &rows[1]);
    assert!(apart < 1e-2, "{apart:.1e}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn one_warm_up_step_tells_the_memory_that_two_tell() {
    need_gpu();
    peaks_are_equal("cuda:0", "\"measure.warmup\" = [1, 2]\n\"measure.steps\" = 2");
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
        assert!(measured["forward"].is_null() && launches["measurement"]["forward"].is_object());
        let live = |row: &Value| row["measurement"]["memory"]["live_peak"].as_f64().expect("bytes");
        // Of several micro-batches it adds gradients as blocks end, and fewer of them are there at once.
        let adds = graph["cell"]["train"]["accumulation_steps"] != 1;
        // It reads a batch at one place while the next is there already. Of a stack: 3 x 37 x 40 inputs and as many
        // targets in bf16.
        let is_stack = graph["cell"]["model"]["kind"] == "swiglu";
        let batch = if is_stack { 3.0 * 37.0 * 40.0 * 2.0 * 2.0 } else { 0.0 };
        let (with, without) = (live(graph), live(launches));
        assert!(adds || (with / (without + batch) - 1.0).abs() < 0.01, "the same memory: {with} {without}");
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

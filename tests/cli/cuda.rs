//! The same program on an NVIDIA GPU: `cargo test --release --test cli cuda -- --ignored --test-threads 1`.

use std::path::Path;

use crate::place::{Place, TINY, files, fixture, losses};
use runner::device::Feature;
use runner::device::cuda;
use runner::device::trace::{self, read_chrome_trace};

/// A test that needs a GPU fails where there is none.
#[track_caller]
pub fn need_gpu() {
    assert!(cuda::count() > 0, "this test needs an NVIDIA GPU, and the driver reports none");
}

/// Whether the first GPU, or what `RUNNER_CAPABILITY` takes it for, lacks something, which is said.
pub fn lacks(feature: Feature) -> bool {
    need_gpu();
    let own = cuda::capability(0);
    let lacks = !own.has(feature);
    if lacks {
        println!("skipped, or in other types: {feature}, and the GPU is taken for {own}");
    }
    lacks
}

/// The recipe in fp16 where the GPU has no bf16.
pub fn suited(recipe: &str) -> String {
    match recipe.contains("bf16") && lacks(Feature::Bf16Products) {
        true => recipe.replace("\"bf16\"", "\"fp16\""),
        false => recipe.into(),
    }
}

/// The types that the GPU multiplies.
fn types() -> Vec<&'static str> {
    let types = [("tf32", Feature::Tf32Products), ("bf16", Feature::Bf16Products)];
    let has = types.into_iter().filter(|(_, need)| !lacks(*need)).map(|(name, _)| name);
    ["fp32", "fp16"].into_iter().chain(has).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn verify_passes_in_every_precision() {
    need_gpu();
    let place = Place::new(TINY);
    let golden = fixture("swiglu");
    for compute in types() {
        let compute = format!("precision.compute={compute}");
        let args = ["verify", &golden, "--device", "cuda:0", "--set", &compute];
        place.runner_on_gpu(&args).exits(0).says(&["20 of 20 quantities pass"]);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn language_models_equal_the_reference_in_every_precision() {
    need_gpu();
    let place = Place::new(TINY);
    for name in ["qwen2", "gpt2", "gptj"] {
        let golden = fixture(name);
        for compute in types() {
            let compute = format!("precision.compute={compute}");
            let args = ["verify", &golden, "--device", "cuda:0", "--set", &compute];
            place.runner_on_gpu(&args).exits(0).says(&["quantities pass"]);
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn blocks_inputs_and_optimizer_on_the_host_equal_the_reference() {
    need_gpu();
    let place = Place::new(TINY);
    let golden = fixture("qwen2");
    for strategy in ["naive", "function", "overlap"] {
        let offload =
            format!("offload={{strategy=\"{strategy}\", activations=\"host\", optimizer=\"host\"}}");
        let args = ["verify", &golden, "--device", "cuda:0", "--set", &offload];
        place.runner_on_gpu(&args).exits(0).says(&["quantities pass"]);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_run_measures_time_and_memory_and_says_its_paths() {
    need_gpu();
    let place = Place::new(TINY);
    place.runner_on_gpu(&["run", "recipe.toml", "--trace"]).exits(0).says(&["4 measured"]);
    for row in place.rows() {
        let m = &row["measurement"];
        assert!(
            m["paths"]["matmul"].as_str().is_some_and(|path| path.contains("cuBLASLt")),
            "{}",
            m["paths"]
        );
        assert_eq!(m["backward"]["seconds"].as_array().map(Vec::len), Some(3));
        let memory = &m["memory"];
        assert!(memory["live_peak"].as_u64() > Some(2 * 3 * 32 * 64 * 4), "{memory}");
        assert!(memory["driver_peak"].as_u64() > memory["reserved_peak"].as_u64(), "{memory}");
        assert!(m["loss"][3].as_f64() < m["loss"][0].as_f64(), "training lowers the loss: {}", m["loss"]);
    }
    assert_eq!(files(&place.results().join("traces")).len(), 4);
    for row in place.row_files() {
        let profile = place.runner(&["profile", row.to_str().expect("UTF-8")]).exits(0);
        for start in ["forward swiglu", "backward swiglu", "optimizer update", "optimizer idle"] {
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(profile.out.lines().any(|line| words(line).starts_with(start)), "{}", profile.out);
        }
        profile.says(&["The kernels that took longest."]);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn out_of_memory_is_a_row_and_the_others_run() {
    need_gpu();
    let recipe = TINY
        .replace("hidden_size = 32", "hidden_size = 1024")
        .replace("intermediate_size = 64", "intermediate_size = 4096")
        .replace("steps = 3", "steps = 3\nmemory_limit = \"1 GiB\"")
        .replace("[2, 4]", "[2, 4096]");
    let place = Place::new(&recipe);
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(42).says(&["2 out of memory", "out of device memory"]);
    assert_eq!((place.count("ok"), place.count("oom")), (2, 2));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn offloaded_models_equal_the_reference() {
    need_gpu();
    let place = Place::new(TINY);
    for name in ["qwen2", "gpt2", "gptj"] {
        let golden = fixture(name);
        for strategy in ["naive", "checkpointed", "function", "overlap"] {
            let strategy = format!("offload.strategy={strategy}");
            let args = ["verify", &golden, "--device", "cuda:0", "--set", &strategy];
            place.runner_on_gpu(&args).exits(0).says(&["quantities pass"]);
        }
    }
}

/// Eight blocks of 2 MB each, through three slots.
const EIGHT_BLOCKS: &str = r#"title = "offload"
[model]
kind = "qwen2"
vocab_size = 512
hidden_size = 256
intermediate_size = 1024
num_hidden_layers = 8
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 512
[precision]
compute = "bf16"
[train]
batch_size = 4
seq_len = 256
[measure]
repeats = 1
warmup = 1
steps = 3
[grid]
"offload.strategy" = ["none", "naive", "overlap"]
"#;

/// The device's own records show what crossed the bus.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn rows_say_what_crossed_the_bus() {
    need_gpu();
    let place = Place::new(&suited(EIGHT_BLOCKS));
    place.runner_on_gpu(&["run", "recipe.toml"]).exits(0).says(&["3 measured"]);
    let of = |strategy: &str| {
        let rows = place.rows();
        rows.into_iter().find(|row| row["cell"]["offload"]["strategy"] == strategy).expect("a row")["measurement"]
            .clone()
    };
    assert!(of("none")["crossings"].is_null());
    let copies = |strategy: &str| -> Vec<(String, u64)> {
        let measured = of(strategy);
        let crossings = measured["crossings"].as_array().expect("crossings");
        let part = |c: &serde_json::Value| {
            let place = format!("{} {}", c["phase"], c["direction"]).replace('"', "");
            (place, c["copies"].as_u64().expect("a number"))
        };
        crossings.iter().map(part).collect()
    };
    let expected = |forward: u64, backward: u64| {
        let place = |name: &str, copies| (name.to_string(), copies);
        vec![
            place("forward to_device", forward),
            place("backward to_device", backward),
            place("backward to_host", 8),
        ]
    };
    assert_eq!(copies("naive"), expected(8, 8));
    let overlap = copies("overlap");
    // A step without waiting may have the tokens of a batch on their way, 4 KiB.
    assert!([5, 6].map(|forward| expected(forward, 5)).contains(&overlap), "{overlap:?}");
    let bytes = |crossing: usize| of("overlap")["crossings"][crossing]["bytes"].as_u64().expect("bytes");
    // 2 · 256² + 2 · 256 · 128 + 3 · 256 · 1024 weights of two bytes, norms, biases and their alignment.
    for (crossing, blocks) in [(0, 5), (1, 5), (2, 8)] {
        let block = 1_966_080;
        assert!(
            (blocks * block..blocks * block * 101 / 100).contains(&bytes(crossing)),
            "{}",
            bytes(crossing)
        );
    }
    let bytes = bytes(2);
    let naive = of("naive");
    let hidden =
        naive["crossings"].as_array().expect("crossings").iter().map(|c| c["hidden_seconds"].as_f64());
    assert_eq!(hidden.map(|h| h.unwrap_or(1.0)).sum::<f64>(), 0.0, "naive hides nothing");
    let pinned = of("overlap")["memory"]["pinned"].as_u64().expect("pinned bytes");
    assert!((2 * bytes..2 * bytes * 105 / 100).contains(&pinned), "{pinned} of {bytes}");
}

/// Padding changes no loss, nor does the way in which a batch comes to the device; the loss of a step is read
/// in it where the recipe asks for that alone.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn padding_staging_and_reading_change_no_loss() {
    need_gpu();
    let recipe = r#"title = "samplers"
device = "cuda:0"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
max_position_embeddings = 256
[data]
corpus = "generated"
size = "20 KiB"
vocab_size = 300
[train]
batch_size = 8
seq_len = 256
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 1
epochs = 1
[[grid]]
"data.sampler" = ["padded", "standard"]
"data.pinned" = [true, false]
[[grid]]
"data.sampler" = "standard"
"train.sync_each_step" = true
"#;
    let place = Place::new(recipe);
    place.runner_on_gpu(&["run", "recipe.toml", "--trace"]).exits(0).says(&["5 measured"]);
    for (file, row) in place.row_files().iter().zip(place.rows()) {
        let results = file.parent().and_then(Path::parent).expect("the results");
        let key = file.file_stem().and_then(|name| name.to_str()).expect("a name");
        let trace = std::fs::read(trace::path(results, key)).expect("a trace");
        let trace = read_chrome_trace(&trace).expect("a whole one");
        let reads = row["cell"]["train"]["sync_each_step"] == true;
        assert_eq!(trace.iter().any(|a| a.name.contains("copy to the host")), reads, "{}", row["cell"]);
    }
    let rows: Vec<Vec<f64>> = place.rows().iter().map(losses).collect();
    for other in &rows[1..] {
        let worst = other.iter().zip(&rows[0]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("losses of samplers differ by {worst:.1e}");
        assert!(other.len() == rows[0].len() && worst < 1e-3, "{rows:?}");
    }
}

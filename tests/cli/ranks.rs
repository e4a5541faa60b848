//! Cells in several processes: the same training as in one.

pub mod ends;

use std::path::Path;

use serde_json::Value;

use crate::place::{Place, losses};

/// Tied embeddings, samples of unequal length, two micro-batches and clipping.
pub const TRAINED: &str = r#"title = "ranks"
device = "cpu"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 32
num_hidden_layers = 3
num_attention_heads = 4
max_position_embeddings = 64
[data]
corpus = "generated"
size = "20 KiB"
vocab_size = 300
[train]
batch_size = 4
seq_len = 64
accumulation_steps = 2
clip_norm = 0.5
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 1
steps = 50
[save]
weights = "out/{data.sampler}-{parallel.data}-{parallel.data_reduce}"
"#;

/// The numbers of a file of weights, all tensors one after the other, by name.
pub fn weights(folder: &Path) -> Vec<f32> {
    numbers(&folder.join("model.safetensors"))
}

/// Of all tensors of a file, in fp32.
pub fn numbers(file: &Path) -> Vec<f32> {
    let file = std::fs::read(file).expect("weights");
    let tensors = safetensors::SafeTensors::deserialize(&file).expect("safetensors");
    let mut named = tensors.tensors();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let numbers = |bytes: &[u8]| {
        let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        bytes.chunks_exact(4).map(number).collect::<Vec<_>>()
    };
    named.iter().flat_map(|(_, tensor)| numbers(tensor.data())).collect()
}

pub fn setting<'r>(row: &'r Value, section: &str, key: &str) -> &'r Value {
    &row["cell"][section][key]
}

/// The largest distance relative to the second.
pub fn apart(ours: &[f64], reference: &[f64]) -> f64 {
    assert_eq!(ours.len(), reference.len());
    let distance = |(a, b): (&f64, &f64)| (a - b).abs() / b.abs();
    ours.iter().zip(reference).map(distance).fold(0.0, f64::max)
}

/// √Σ(a − b)² / √Σb²
pub fn distance(ours: &[f32], reference: &[f32]) -> f64 {
    assert_eq!(ours.len(), reference.len());
    let squares = |of: &dyn Fn(f32, f32) -> f32| -> f64 {
        ours.iter().zip(reference).map(|(a, b)| f64::from(of(*a, *b)).powi(2)).sum()
    };
    (squares(&|a, b| a - b) / squares(&|_, b| b)).sqrt()
}

#[test]
fn replicas_train_as_one_process_does() {
    let grid = "[[grid]]\n\"data.sampler\" = [\"blocks\", \"standard\", \"packed\"]\n\
                \"parallel.data\" = [1, 2, 4]\n[[grid]]\n\"data.sampler\" = [\"blocks\"]\n\
                \"parallel.data\" = [2]\n\"parallel.data_reduce\" = [\"rank0\"]\n";
    let place = Place::new(&format!("{TRAINED}{grid}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["10 measured"]);
    let rows = place.rows();
    for row in &rows {
        let of_one = rows.iter().find(|other| {
            setting(other, "parallel", "data").is_null()
                && setting(other, "data", "sampler") == setting(row, "data", "sampler")
        });
        let reference = losses(of_one.expect("a row of one process"));
        assert!(reference[0] - reference[reference.len() - 1] > 0.5, "it learns: {reference:?}");
        let difference = apart(&losses(row), &reference);
        assert!(difference < 1e-5, "{difference} {}", row["cell"]);

        let Some(ranks) = setting(row, "parallel", "data").as_u64() else { continue };
        let records = row["measurement"]["ranks"].as_array().expect("a record of each rank");
        assert_eq!(records.len() as u64, ranks);
        for (rank, record) in (0..).zip(records) {
            assert_eq!(record["rank"], rank);
            let number = |key: &str| record[key].as_f64().expect("a number");
            assert!(number("sent_bytes") > 0.0 && number("step_seconds") > 0.0);
            assert!(number("exposed_seconds") <= number("step_seconds"), "{record}");
            assert!(record["memory"]["live_peak"].as_u64().expect("bytes") > 0);
        }
    }
    let folder = |name: &str| place.path().join("out").join(name);
    for sampler in ["blocks", "standard", "packed"] {
        let reference = weights(&folder(&format!("{sampler}-1-all_reduce")));
        for ways in ["2-all_reduce", "4-all_reduce", "2-rank0"] {
            if ways == "2-rank0" && sampler != "blocks" {
                continue;
            }
            let ours = weights(&folder(&format!("{sampler}-{ways}")));
            let distance = distance(&ours, &reference);
            assert!(distance < 1e-4, "{sampler} {ways}: {distance}");
        }
    }
}

/// fp16 with a scaler whose first scales overflow, so that steps are skipped, and LoRA and QLoRA on Qwen2.
#[test]
fn the_scaler_and_adapters_see_all_ranks() {
    let amp = r#"title = "amp"
device = "cpu"
[model]
kind = "qwen2"
vocab_size = 300
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 64
[train]
batch_size = 4
seq_len = 32
clip_norm = 0.5
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 0
steps = 20
"#;
    let scaled = "[precision]\ncompute = \"fp16\"\nautocast = true\n\
                  scaler = { kind = \"dynamic\", init_scale = 1e10, growth_interval = 5 }\n";
    let lora = "[tuning]\nmethod = \"lora\"\nrank = 4\n";
    let qlora = &lora.replace("lora", "qlora");
    for (more, relative) in [(scaled, 2e-3), (lora, 1e-5), (qlora, 1e-5)] {
        let place = Place::new(&format!("{amp}{more}[grid]\n\"parallel.data\" = [1, 2]\n"));
        place.runner(&["run", "recipe.toml"]).exits(0).says(&["2 measured"]);
        let mut rows = place.rows();
        rows.sort_by_key(|row| setting(row, "parallel", "data").as_u64());
        assert!(apart(&losses(&rows[1]), &losses(&rows[0])) < relative);
        assert_eq!(rows[0]["measurement"]["scaler"], rows[1]["measurement"]["scaler"]);
    }
}

#[test]
fn ranks_give_the_same_bits_in_every_run() {
    let place =
        Place::new(&format!("{}[parallel]\ndata = 3\n", TRAINED.replace("batch_size = 4", "batch_size = 3")));
    let run = || {
        place.runner(&["run", "recipe.toml", "--force"]).exits(0);
        let weights = weights(&place.path().join("out/blocks-3-all_reduce"));
        (losses(&place.rows()[0]), weights)
    };
    assert_eq!(run(), run());
}

#[test]
fn what_ranks_cannot_do_is_refused_before_anything_runs() {
    let with =
        |more: &str| format!("{}[parallel]\n{more}\n", TRAINED.split("[save]").next().expect("a beginning"));
    for (recipe, parts) in [
        (
            with("data = 3"),
            vec!["train.batch_size = 4 cannot be divided among 3 replicas", "a multiple of 3"],
        ),
        (with("data = 0"), vec!["must be at least 1, not 0"]),
        (with("data = 1000"), vec!["must be at most 256"]),
        (with("date = 2"), vec!["unknown key `date`", "did you mean `data`?"]),
        (with("timeout = 5"), vec!["parallel.timeout has no effect in one process"]),
        (with("data = 2\ntimeout = 0"), vec!["a number above 0"]),
        (with("data = 2\ndata_reduce = \"ring\""), vec!["all_reduce", "rank0"]),
        (with("engine = \"sockets\""), vec!["parallel.engine has no effect in one process"]),
        (
            with("data = 2\nengine = \"nccl\""),
            vec![
                "parallel.engine = \"nccl\" sums on GPUs, and the device is the CPU",
                "remove parallel.engine",
            ],
        ),
        (
            with("data = 2\n[offload]\nstrategy = \"overlap\""),
            vec!["parallel.data goes with [offload] where ranks divide the parameters"],
        ),
        (with("data = 2\n[save]\nstate = \"s\"\nevery = 2"), vec!["in several processes is not saved"]),
    ] {
        Place::new(&recipe).runner(&["check", "recipe.toml"]).exits(2).says(&parts);
    }
}

/// Whatever GPUs are here.
#[test]
fn ranks_go_to_gpus() {
    const STAGES: &str = "pipeline = { stages = 2, schedule = \"1f1b\", micro_batches = 2 }";
    let with = |more: &str| {
        let text = TRAINED.split("[save]").next().expect("a beginning").replace("\"cpu\"", "\"cuda:0\"");
        Place::new(&format!("{}[parallel]\n{more}\n", text.replace("accumulation_steps = 2\n", "")))
    };
    for engine in ["auto", "nccl", "sockets"] {
        for ranks in ["data = 4", "tensor = 4", STAGES] {
            let place = with(&format!("{ranks}\nengine = \"{engine}\""));
            place.runner(&["check", "recipe.toml", "--for", "cuda"]).exits(0).says(&["1 cell"]);
        }
    }
    let place = with("data = 4\nengine = \"nccl\"");
    let plan = place.runner(&["plan", "recipe.toml", "--for", "cuda, 8 GiB"]).exits(0);
    // Of a GPU of its own.
    assert!(plan.out.contains("8.00 GiB"), "{}", plan.out);
    with("data = 2\ntensor = 2").runner(&["check", "recipe.toml", "--for", "cuda"]).exits(0);
    with("data = 2\ntensor = 2\nengine = \"nccl\"")
        .runner(&["check", "recipe.toml", "--for", "cuda"])
        .exits(2)
        .says(&["connects all ranks as one group", "sockets"]);
}

/// All ranks take the step that one records.
#[test]
fn the_first_rank_records_a_step_of_all() {
    let text = TRAINED.split("[save]").next().expect("a beginning").replace("steps = 50", "steps = 2");
    let place = Place::new(&format!("{text}[parallel]\ndata = 2\n"));
    place.runner(&["run", "recipe.toml", "--trace"]).exits(0).says(&["1 measured"]);
    let folder = place.results();
    place.runner(&["profile", folder.to_str().expect("UTF-8")]).exits(0).says(&["backward"]);
}

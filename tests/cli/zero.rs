//! Replicas that divide optimizer state, gradients and weights among them: the same training as in one process.

use std::time::Duration;

use serde_json::Value;

use crate::faults::sweep;
use crate::place::{Place, losses};
use crate::ranks::{apart, distance, setting, weights};

const STAGES: [&str; 3] = ["optimizer", "gradients", "weights"];

/// Tied embeddings, two micro-batches and clipping.
pub const TRAINED: &str = r#"title = "zero"
device = "cpu"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 32
num_hidden_layers = 3
num_attention_heads = 4
max_position_embeddings = 32
[data]
corpus = "generated"
size = "20 KiB"
vocab_size = 300
[train]
batch_size = 4
seq_len = 32
accumulation_steps = 2
clip_norm = 0.5
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 1
steps = 50
"#;

pub fn shard(row: &Value) -> &str {
    setting(row, "parallel", "shard").as_str().unwrap_or("none")
}

fn data(row: &Value) -> u64 {
    setting(row, "parallel", "data").as_u64().unwrap_or(1)
}

/// The mean over ranks of a number of their records.
pub fn mean(row: &Value, of: &str) -> f64 {
    let ranks = row["measurement"]["ranks"].as_array().expect("a record of each rank");
    let numbers = ranks.iter().map(|rank| rank.pointer(of).and_then(Value::as_f64).expect("a number"));
    numbers.sum::<f64>() / ranks.len() as f64
}

/// Elements of each rank's part of a bucket's parameters: they begin at multiples of 128 elements, and parts are
/// multiples of 256.
fn part(parameters: &[usize], ranks: usize) -> usize {
    let begin = |end: usize, elements: &usize| end.next_multiple_of(128) + elements;
    parameters.iter().fold(0, begin).div_ceil(ranks).next_multiple_of(256)
}

/// Of a block of GPT-2 of width 32, and of what is outside of blocks.
fn parts(ranks: usize) -> [usize; 2] {
    let h = 32;
    let block = [h, h, 3 * h * h, 3 * h, h * h, h, h, h, 4 * h * h, 4 * h, 4 * h * h, h];
    [part(&block, ranks), part(&[300 * h, 32 * h, h, h], ranks)]
}

/// Bytes that a rank sends in a step: fp32 gradients, each micro-batch's but at the first stage; weights once, or those of
/// blocks twice for each micro-batch.
fn sent(shard: &str, ranks: usize, micro_batches: usize) -> f64 {
    let [block, others] = parts(ranks);
    let all = 3 * block + others;
    let elements = match shard {
        "optimizer" => all + all,
        "gradients" => micro_batches * all + all,
        _ => micro_batches * all + 2 * micro_batches * 3 * block + others,
    };
    (4 * elements * (ranks - 1)) as f64
}

#[test]
fn every_stage_trains_as_one_process_does() {
    let grid = "[save]\nweights = \"out/{parallel.data}-{parallel.shard}\"\n[[grid]]\n\"parallel.data\" = [1]\n\
                [[grid]]\n\"parallel.data\" = [2, 4]\n\
                \"parallel.shard\" = [\"optimizer\", \"gradients\", \"weights\"]\n";
    let place = Place::new(&format!("{TRAINED}{grid}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["7 measured"]);
    let rows = place.rows();
    let one = rows.iter().find(|row| data(row) == 1).expect("a row of one process");
    let reference = losses(one);
    assert!(reference[0] - reference[reference.len() - 1] > 0.5, "it learns: {reference:?}");
    let folder = |data: u64, shard: &str| place.path().join(format!("out/{data}-{shard}"));
    let expected = weights(&folder(1, "none"));
    for row in rows.iter().filter(|row| data(row) > 1) {
        let (ranks, shard) = (data(row), shard(row));
        let difference = apart(&losses(row), &reference);
        assert!(difference < 1e-5, "{ranks} {shard}: {difference}");
        let difference = distance(&weights(&folder(ranks, shard)), &expected);
        assert!(difference < 1e-4, "{ranks} {shard}: {difference}");
        let (measured, formula) = (mean(row, "/sent_bytes"), sent(shard, ranks as usize, 2));
        // Texts and sums of squares come on top.
        assert!(
            (formula..formula * 1.05).contains(&measured),
            "{ranks} {shard}: {measured} bytes are sent, by the formula {formula}"
        );
    }
}

/// The parts of a rank on the host, by every strategy, or only its moments there: the losses and weights of one process,
/// with the norm of all gradients and without, and the same bits in every run.
#[test]
fn parts_on_the_host_train_as_one_process_does() {
    let grid = r#"[save]
weights = "out/{parallel.data}-{parallel.shard}-{offload.strategy}-{offload.optimizer}-{offload.activations}"
[[grid]]
"parallel.data" = 1
[[grid]]
"parallel.data" = 3
"parallel.shard" = ["optimizer", "gradients"]
"offload.optimizer" = "host"
[[grid]]
"parallel.data" = 3
"parallel.shard" = "weights"
"offload.strategy" = ["overlap", "function", "naive"]
"offload.optimizer" = ["device", "host"]
[[grid]]
"parallel.data" = 3
"parallel.shard" = "weights"
"offload.strategy" = "overlap"
"offload.activations" = "host"
"#;
    let text = TRAINED.replace("batch_size = 4", "batch_size = 3").replace("steps = 50", "steps = 20");
    // Without clipping and accumulation updates begin as gradients arrive, over the weights.
    let at_once = text.replace("clip_norm = 0.5\n", "").replace("accumulation_steps = 2\n", "");
    for text in [text, at_once] {
        let place = Place::new(&format!("{text}{grid}"));
        place.runner(&["run", "recipe.toml"]).exits(0).says(&["10 measured"]);
        let rows = place.rows();
        let one = rows.iter().find(|row| data(row) == 1).expect("a row of one process");
        let folder = |row: &Value| {
            let of =
                |key: &str, absent: &str| setting(row, "offload", key).as_str().unwrap_or(absent).to_string();
            let [strategy, optimizer, activations] =
                [of("strategy", "none"), of("optimizer", "device"), of("activations", "device")];
            let name = format!("out/{}-{}-{strategy}-{optimizer}-{activations}", data(row), shard(row));
            place.path().join(name)
        };
        let expected = weights(&folder(one));
        for row in rows.iter().filter(|row| data(row) > 1) {
            let name = folder(row);
            let difference = apart(&losses(row), &losses(one));
            assert!(difference < 1e-5, "{}: {difference}", name.display());
            let difference = distance(&weights(&name), &expected);
            assert!(difference < 1e-4, "{}: {difference}", name.display());
        }
        let first: Vec<_> = rows.iter().map(|row| (losses(row), weights(&folder(row)))).collect();
        place.runner(&["run", "recipe.toml", "--force"]).exits(0);
        let again = place.rows();
        for (row, bits) in rows.iter().zip(first) {
            let same = again.iter().find(|other| other["cell"] == row["cell"]).expect("its row");
            assert_eq!((losses(same), weights(&folder(row))), bits, "{}", folder(row).display());
        }
    }
}

#[test]
fn a_stage_gives_the_same_bits_in_every_run() {
    let text = TRAINED.replace("batch_size = 4", "batch_size = 3").replace("steps = 50", "steps = 10");
    let place = Place::new(&format!(
        "{text}[parallel]\ndata = 3\n[save]\nweights = \"out/{{parallel.shard}}\"\n\
                                     [grid]\n\"parallel.shard\" = [\"optimizer\", \"gradients\", \"weights\"]\n"
    ));
    let run = || {
        place.runner(&["run", "recipe.toml", "--force"]).exits(0);
        let mut rows = place.rows();
        rows.sort_by_key(|row| shard(row).to_string());
        let losses: Vec<Vec<f64>> = rows.iter().map(losses).collect();
        (losses, STAGES.map(|stage| weights(&place.path().join("out").join(stage))))
    };
    let (losses, all) = run();
    assert_eq!((losses, all), run());
}

/// fp16 with a scaler whose first scales overflow, so that steps are skipped; LoRA, whose frozen weights are divided too;
/// packed samples.
#[test]
fn the_scaler_adapters_and_packed_samples_see_all_ranks() {
    let text = r#"title = "amp"
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
[data]
corpus = "generated"
size = "20 KiB"
vocab_size = 300
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
    let lora = "[tuning]\nmethod = \"lora\"\nrank = 4\n[save]\nadapter = \"out/{parallel.shard}\"\n";
    let grid = "[[grid]]\n\"parallel.data\" = [1]\n[[grid]]\n\"parallel.data\" = [2]\n\
                \"parallel.shard\" = [\"optimizer\", \"gradients\", \"weights\"]\n";
    let packed = text.replace("vocab_size = 300\n[train]", "vocab_size = 300\nsampler = \"packed\"\n[train]");
    for (text, more, relative) in [(text, scaled, 2e-3), (text, lora, 1e-5), (&*packed, "", 1e-5)] {
        let place = Place::new(&format!("{text}{more}{grid}"));
        place.runner(&["run", "recipe.toml"]).exits(0).says(&["4 measured"]);
        let rows = place.rows();
        let one = rows.iter().find(|row| data(row) == 1).expect("a row of one process");
        for row in rows.iter().filter(|row| data(row) > 1) {
            let difference = apart(&losses(row), &losses(one));
            assert!(difference < relative, "{}: {difference} {more}", shard(row));
            assert_eq!(row["measurement"]["scaler"], one["measurement"]["scaler"], "{}", shard(row));
        }
        if more == lora {
            let adapter = |name: &str| {
                std::fs::read(place.path().join("out").join(name).join("adapter_model.safetensors"))
                    .expect("an adapter")
            };
            assert!(STAGES.iter().all(|stage| adapter(stage).len() == adapter("none").len()));
        }
    }
}

#[test]
fn a_killed_rank_ends_the_cell_with_a_row_that_names_it() {
    let recipe = TRAINED.split("[save]").next().expect("a beginning");
    for stage in STAGES {
        let recipe = format!("{recipe}[parallel]\ndata = 4\nshard = \"{stage}\"\n");
        sweep(&recipe, &[(2, Duration::from_millis(700))]);
    }
}

#[test]
fn what_cannot_be_divided_is_refused_before_anything_runs() {
    let with = |more: &str| format!("{TRAINED}[parallel]\n{more}\n");
    let adafactor = with("data = 2\nshard = \"gradients\"")
        .replace("{ kind = \"adamw\", lr = 1e-3 }", "{ kind = \"adafactor\" }");
    let none = with("data = 2\nshard = \"gradients\"")
        .replace("clip_norm = 0.5\n", "")
        .replace("optimizer = { kind = \"adamw\", lr = 1e-3 }", "optimizer = { kind = \"none\" }");
    for (recipe, parts) in [
        (with("shard = \"optimizer\""), vec!["parallel.shard has no effect with one replica"]),
        (with("data = 2\nshard = \"states\""), vec!["optimizer", "gradients", "weights"]),
        (adafactor, vec!["does not go with train.optimizer", "rows and columns", "adamw8bit"]),
        (none, vec!["nothing is updated"]),
        (
            with("data = 2\nshard = \"weights\"\ndata_reduce = \"rank0\""),
            vec!["parallel.shard = \"weights\" does not go with parallel.data_reduce"],
        ),
        (with("data = 2\ntensor = 2\nshard = \"weights\""), vec!["does not go with parallel.tensor"]),
        (
            with("data = 2\nshard = \"weights\"\n[checkpoint]\nblocks = 2"),
            vec!["does not go with checkpoint.blocks", "remove checkpoint.blocks"],
        ),
        (
            with("data = 2\nshard = \"gradients\"\n[offload]\nstrategy = \"overlap\""),
            vec!["does not go with offload.strategy", "use parallel.shard = \"weights\""],
        ),
        (
            with("data = 2\nshard = \"weights\"\n[offload]\noptimizer = \"host\""),
            vec!["does not go with offload.optimizer", "add offload.strategy = \"overlap\""],
        ),
        (
            with("data = 2\n[offload]\noptimizer = \"host\""),
            vec!["where ranks divide the parameters", "add shard = \"optimizer\""],
        ),
        (
            with("data = 2\nshard = \"weights\"\n[offload]\nstrategy = \"checkpointed\""),
            vec!["does not go with offload.strategy", "\"overlap\""],
        ),
        (
            with("data = 2\nshard = \"weights\"\n[offload]\nstrategy = \"overlap\"\nresident_blocks = 1"),
            vec!["does not go with offload.resident_blocks"],
        ),
    ] {
        Place::new(&recipe).runner(&["check", "recipe.toml"]).exits(2).says(&parts);
    }
}

//! Layers that are divided among ranks: the same training as in one process, for every family and with what goes with it.

use std::time::Duration;

use serde_json::Value;

use crate::faults::sweep;
use crate::place::{Place, losses};
use crate::ranks::{apart, distance, numbers, setting, weights};

const SIZES: &str = "vocab_size = 304\nhidden_size = 32\nnum_hidden_layers = 2\nnum_attention_heads = 4\n";

/// Two micro-batches and clipping.
pub fn recipe(model: &str, more: &str) -> String {
    let sizes = if model.contains("swiglu") { "hidden_size = 32\nnum_hidden_layers = 2\n" } else { SIZES };
    format!(
        "title = \"tensor\"\ndevice = \"cpu\"\n[model]\n{model}{sizes}[train]\nbatch_size = 4\nseq_len = 32\n\
         accumulation_steps = 2\nclip_norm = 0.1\noptimizer = {{ kind = \"adamw\", lr = 1e-3 }}\n\
         [measure]\nrepeats = 1\nwarmup = 0\nsteps = 6\n{more}"
    )
}

const GPT2: &str = "kind = \"gpt2\"\n";
pub const QWEN2: &str = "kind = \"qwen2\"\nnum_key_value_heads = 4\nintermediate_size = 48\n";

/// The rows by the number of ranks, one process first.
fn rows(place: &Place) -> Vec<Value> {
    let mut rows = place.rows();
    rows.sort_by_key(|row| setting(row, "parallel", "tensor").as_u64());
    rows
}

/// Losses, and the saved weights where there are any, are those of one process.
fn same_as_one_process(model: &str, more: &str, relative: f64) -> Vec<Value> {
    let saved = !model.contains("swiglu");
    let save = if saved { "[save]\nweights = \"out/{parallel.tensor}\"\n" } else { "" };
    let grid = "[grid]\n\"parallel.tensor\" = [1, 2, 4]\n";
    let place = Place::new(&recipe(model, &format!("{more}{save}{grid}")));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["3 measured"]);
    let rows = rows(&place);
    let reference = losses(&rows[0]);
    for row in &rows[1..] {
        let difference = apart(&losses(row), &reference);
        assert!(difference < relative, "{difference} {}", row["cell"]);
    }
    let of = |ranks: usize| weights(&place.path().join(format!("out/{ranks}")));
    if saved {
        let reference = of(1);
        for ranks in [2, 4] {
            let distance = distance(&of(ranks), &reference);
            assert!(distance < 10.0 * relative, "{ranks}: {distance}");
        }
    }
    rows
}

#[test]
fn every_family_trains_as_in_one_process() {
    for model in [
        GPT2,
        "kind = \"gpt2\"\ntie_word_embeddings = false\n",
        QWEN2,
        "kind = \"llama\"\nnum_key_value_heads = 4\nintermediate_size = 48\ntie_word_embeddings = true\n",
        "kind = \"gptj\"\nrotary_dim = 4\n",
        // Every rank has the norms of queries and keys.
        "kind = \"qwen3\"\nnum_key_value_heads = 4\nintermediate_size = 48\nhead_dim = 6\n",
        "kind = \"gpt_neox\"\nintermediate_size = 48\n",
        "kind = \"swiglu\"\nintermediate_size = 48\n",
    ] {
        same_as_one_process(model, "", 1e-5);
    }
}

/// What reads gradients, keeps less, or gives rows another shape.
#[test]
fn what_goes_with_divided_layers_sees_all_ranks() {
    let text = "[data]\ncorpus = \"generated\"\nsize = \"20 KiB\"\nvocab_size = 304\n";
    let scaled = "[precision]\ncompute = \"fp16\"\nautocast = true\n\
                  scaler = { kind = \"dynamic\", init_scale = 4e7, growth_interval = 3 }\n";
    for (more, relative) in [
        ("[checkpoint]\nblocks = 1\n", 1e-5),
        ("[tuning]\nmethod = \"bitfit\"\n", 1e-5),
        (&format!("{text}sampler = \"packed\"\n"), 1e-5),
        (&format!("{text}[eval]\nevery = 3\nbatches = 2\n"), 1e-5),
        (scaled, 2e-3),
    ] {
        let rows = same_as_one_process(QWEN2, more, relative);
        assert_eq!(rows[0]["measurement"]["scaler"], rows[1]["measurement"]["scaler"]);
        let quality = |row: &Value| -> Vec<f64> {
            let evaluations = row["measurement"]["evaluations"].as_array();
            let loss = |evaluation: &Value| evaluation["loss"].as_f64().expect("a number");
            evaluations.into_iter().flatten().map(loss).collect()
        };
        let reference = quality(&rows[0]);
        assert_eq!(reference.len(), if more.contains("[eval]") { 3 } else { 0 });
        assert!(rows.iter().all(|row| apart(&quality(row), &reference) < relative));
    }
}

/// LoRA on layers that divide by their outputs, three of them side by side in GPT-2, and by their inputs. B is zero before
/// the first step only: a gradient that lacks another rank's part is noticed.
#[test]
fn adapters_divide_with_their_layers() {
    for (model, layers) in
        [(GPT2, "c_attn, c_proj, c_fc"), (QWEN2, "q_proj, k_proj, v_proj, o_proj, gate_proj, down_proj")]
    {
        let lora = format!(
            "[tuning]\nmethod = \"lora\"\nrank = 3\ntarget_modules = \"{layers}\"\n\
             [save]\nadapter = \"out/{{parallel.tensor}}\"\n[grid]\n\"parallel.tensor\" = [1, 2, 4]\n"
        );
        let place = Place::new(&recipe(model, &lora).replace("lr = 1e-3", "lr = 3e-2"));
        place.runner(&["run", "recipe.toml"]).exits(0).says(&["3 measured"]);
        let rows = rows(&place);
        let reference = losses(&rows[0]);
        let moved = |loss: &f64| (loss - reference[0]).abs() > 1e-3 * reference[0];
        assert!(reference.iter().any(moved), "{reference:?}");
        let adapter =
            |ranks: usize| numbers(&place.path().join(format!("out/{ranks}/adapter_model.safetensors")));
        for (row, ranks) in rows[1..].iter().zip([2, 4]) {
            let (losses, values) = (apart(&losses(row), &reference), distance(&adapter(ranks), &adapter(1)));
            assert!(losses < 1e-5 && values < 1e-3, "{layers} {ranks}: {losses} {values}");
        }
    }
}

/// Two replicas of two ranks each, whose gradients are summed in both ways.
#[test]
fn replicas_divide_their_layers() {
    let grid = "[save]\nweights = \"out/{parallel.data}{parallel.data_reduce}\"\n\
                [[grid]]\n\"parallel.data\" = [1]\n[[grid]]\n\"parallel.data\" = [2]\n\"parallel.tensor\" = [2]\n\
                \"parallel.data_reduce\" = [\"all_reduce\", \"rank0\"]\n";
    let place = Place::new(&recipe(GPT2, grid));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["3 measured"]);
    let rows = rows(&place);
    let reference = weights(&place.path().join("out/1all_reduce"));
    for (row, ways) in rows[1..].iter().zip(["all_reduce", "rank0"]) {
        assert_eq!(row["measurement"]["ranks"].as_array().map(Vec::len), Some(4));
        assert!(apart(&losses(row), &losses(&rows[0])) < 1e-5);
        assert!(distance(&weights(&place.path().join(format!("out/2{ways}"))), &reference) < 1e-4);
    }
}

/// A folder of weights gives each rank its shares: the losses that the weights have in one process.
#[test]
fn a_folder_s_weights_are_divided() {
    let place = Place::new(&recipe(GPT2, "[save]\nweights = \"first\"\n"));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let model = "kind = \"gpt2\"\nweights = \"first\"\n";
    let grid = "[grid]\n\"parallel.tensor\" = [1, 2, 4]\n";
    place.write("recipe.toml", &recipe(model, grid).replace(SIZES, ""));
    place.runner(&["run", "recipe.toml", "--force"]).exits(0).says(&["3 measured"]);
    let rows: Vec<Value> =
        rows(&place).into_iter().filter(|row| setting(row, "model", "weights") == "first").collect();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| apart(&losses(row), &losses(&rows[0])) < 1e-5));
}

#[test]
fn divided_layers_give_the_same_bits_in_every_run() {
    let place = Place::new(&recipe(GPT2, "[parallel]\ntensor = 4\n[save]\nweights = \"out\"\n"));
    let run = || {
        place.runner(&["run", "recipe.toml", "--force"]).exits(0);
        (losses(&place.rows()[0]), weights(&place.path().join("out")))
    };
    assert_eq!(run(), run());
}

#[test]
fn a_killed_rank_of_divided_layers_is_named() {
    let moments = [(1, 0), (0, 400), (3, 700)].map(|(rank, moment)| (rank, Duration::from_millis(moment)));
    sweep(&recipe(GPT2, "[parallel]\ntensor = 4\n"), &moments);
}

#[test]
fn what_cannot_be_divided_is_refused_before_anything_runs() {
    let with = |model: &str, more: &str| recipe(model, &format!("[parallel]\n{more}\n"));
    let heads = "kind = \"qwen2\"\nnum_key_value_heads = 2\nintermediate_size = 48\n";
    for (recipe, parts) in [
        (with(GPT2, "tensor = 3"), vec!["model.num_attention_heads = 4 cannot be divided among 3 ranks"]),
        (with(heads, "tensor = 4"), vec!["model.num_key_value_heads = 2", "a multiple of 4"]),
        (
            with(GPT2, "tensor = 2").replace("vocab_size = 304", "vocab_size = 303"),
            vec!["model.vocab_size = 303 cannot be divided among 2 ranks"],
        ),
        (
            with("kind = \"swiglu\"\nintermediate_size = 47\n", "tensor = 2"),
            vec!["model.intermediate_size = 47", "parallel.tensor"],
        ),
        (with(GPT2, "tensor = 0"), vec!["must be at least 1, not 0"]),
        (with(GPT2, "tensor = 128\ndata = 4"), vec!["512 ranks, more than 256"]),
        (with(GPT2, "tensor = 2\ndata_reduce = \"rank0\""), vec!["parallel.data_reduce has no effect"]),
        (with(GPT2, "tensor = 2\n[ops]\nloss = \"plain\""), vec!["ops.loss = \"plain\" has the logits"]),
        (with(QWEN2, "tensor = 2\n[tuning]\nmethod = \"qlora\""), vec!["tuning.method = \"qlora\""]),
        (
            with(QWEN2, "tensor = 2\n[tuning]\nmethod = \"lora\"\ndropout = 0.1"),
            vec!["an adapter's dropout draws a mask", "remove tuning.dropout"],
        ),
        (
            with(GPT2, "tensor = 2\n[offload]\nstrategy = \"overlap\""),
            vec!["parallel.tensor does not go with [offload]"],
        ),
        (
            with(GPT2, "tensor = 2\n[save]\nstate = \"s\"\nevery = 2"),
            vec!["in several processes is not saved"],
        ),
        (
            with(GPT2, "tensor = 2").replace("kind = \"adamw\"", "kind = \"adafactor\""),
            vec!["this optimizer reads the rows and columns"],
        ),
    ] {
        Place::new(&recipe).runner(&["check", "recipe.toml"]).exits(2).says(&parts);
    }
}

/// An evaluation's messages are not those of a step.
#[test]
fn evaluations_are_no_part_of_what_a_step_sends() {
    let eval = "[eval]\nbatches = 3\n[parallel]\ntensor = 2\n[grid]\n\"eval.every\" = [1, 100]\n";
    let text = "[data]\ncorpus = \"generated\"\nvocab_size = 304\n";
    let place = Place::new(&recipe(GPT2, &format!("{text}{eval}")));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["2 measured"]);
    let sent = |row: &Value| row["measurement"]["ranks"][0]["sent_bytes"].as_f64().expect("bytes");
    let rows = place.rows();
    let [often, never] = [&rows[0], &rows[1]].map(sent);
    // That a rank is still there is said once a second.
    assert!(never > 0.0 && (often / never - 1.0).abs() < 1e-3, "{often} {never}");
}

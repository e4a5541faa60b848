//! Networks over the ranks of a pipeline: the same training as in one process, what rows and reports say of it, and what is
//! refused.

use std::path::Path;
use std::time::Duration;

use crate::faults::sweep;
use crate::place::{Place, changed, files, losses};
use crate::ranks::{apart, weights};

/// Tied embeddings and blocks that do not divide evenly.
pub const TRAINED: &str = r#"title = "pipeline"
device = "cpu"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 32
num_hidden_layers = 5
num_attention_heads = 4
max_position_embeddings = 32
[data]
corpus = "generated"
size = "20 KiB"
vocab_size = 300
[train]
batch_size = 8
seq_len = 16
clip_norm = 0.5
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 1
steps = 12
"#;

const TWO: &str = "stages = 2\nschedule = \"1f1b\"\nmicro_batches = 4";
const SAVED: &str = "[save]\nweights = \"out/{parallel.pipeline.stages}-{parallel.pipeline.schedule}\"\n";

fn with(recipe: &str, keys: &str) -> String {
    format!("{recipe}[parallel.pipeline]\n{keys}\n")
}

fn distance(ours: &Path, reference: &Path) -> f64 {
    let (ours, reference) = (weights(ours), weights(reference));
    assert_eq!(ours.len(), reference.len());
    let squares = |of: &dyn Fn(f32, f32) -> f32| -> f64 {
        ours.iter().zip(&reference).map(|(a, b)| f64::from(of(*a, *b)).powi(2)).sum()
    };
    (squares(&|a, b| a - b) / squares(&|_, b| b)).sqrt()
}

#[test]
fn stages_train_as_one_process_does_and_the_report_draws_their_steps() {
    let one = Place::new(&format!("{TRAINED}[save]\nweights = \"out\"\n"));
    one.runner(&["run", "recipe.toml"]).exits(0);
    let reference = losses(&one.rows()[0]);
    assert!(reference[0] - reference[reference.len() - 1] > 0.3, "it learns: {reference:?}");

    let grid = "[[grid]]\n\"parallel.pipeline.stages\" = [2, 4]\n\"parallel.pipeline.micro_batches\" = [4]\n\
                \"parallel.pipeline.schedule\" = [\"gpipe\", \"1f1b\"]\n[[grid]]\n\
                \"parallel.pipeline.stages\" = [2]\n\"parallel.pipeline.micro_batches\" = [4]\n\
                \"parallel.pipeline.schedule\" = [\"interleaved\"]\n\"parallel.pipeline.chunks\" = [2]\n";
    let place = Place::new(&format!("{TRAINED}{SAVED}{grid}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["5 measured"]);
    for row in place.rows() {
        let pipeline = &row["cell"]["parallel"]["pipeline"];
        let difference = apart(&losses(&row), &reference);
        assert!(difference < 1e-5, "{difference} {pipeline}");
        let name = format!("out/{}-{}", pipeline["stages"], pipeline["schedule"].as_str().expect("a word"));
        let difference = distance(&place.path().join(&name), &one.path().join("out"));
        assert!(difference < 1e-4, "{difference} {name}");

        let records = row["measurement"]["ranks"].as_array().expect("a record of each rank");
        assert_eq!(records.len() as u64, pipeline["stages"].as_u64().expect("a number"));
        let chunks = pipeline["chunks"].as_u64().unwrap_or(1) as usize;
        for record in records {
            assert!(record["sent_bytes"].as_f64().expect("bytes") > 0.0);
            let (stages, timeline) = (&record["stages"], record["timeline"].as_array().expect("spans"));
            assert_eq!(stages.as_array().expect("times").len(), chunks);
            assert!(stages[0]["forward"].as_f64() > Some(0.0) && stages[0]["backward"].as_f64() > Some(0.0));
            assert_eq!(timeline.len(), 2 * 4 * chunks + 1);
            let mut end = 0.0;
            for span in timeline {
                let number = |key: &str| span[key].as_f64().expect("seconds");
                assert!(number("start") >= end && number("end") >= number("start"), "{span}");
                end = number("end");
            }
        }
    }
    let folders = files(&place.results());
    let charts = files(folders.iter().find(|path| path.ends_with("charts")).expect("a folder of charts"));
    let chart = |path: &&std::path::PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("pipeline-") && name.ends_with(".svg")
    };
    assert_eq!(charts.iter().filter(chart).count(), 2, "the least idle and the most idle: {charts:?}");
}

/// fp16 with a scaler whose first scales overflow, so that steps are skipped; LoRA and QLoRA; weights that are read again.
#[test]
fn the_scaler_and_adapters_see_all_stages() {
    let scaled = "[precision]\ncompute = \"fp16\"\nautocast = true\n\
                  scaler = { kind = \"dynamic\", init_scale = 1e10, growth_interval = 5 }\n";
    let lora = "[tuning]\nmethod = \"lora\"\nrank = 4\ntarget_modules = \"c_attn\"\n";
    let qlora = &lora.replace("lora", "qlora");
    for (more, relative) in [(scaled, 2e-3), (lora, 1e-5), (qlora, 1e-5)] {
        let text = format!("{TRAINED}{more}");
        let (one, ours) = (Place::new(&text), Place::new(&with(&text, TWO)));
        for place in [&one, &ours] {
            place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
        }
        let (one, ours) = (one.rows().remove(0), ours.rows().remove(0));
        assert!(apart(&losses(&ours), &losses(&one)) < relative, "{:?} {:?}", losses(&ours), losses(&one));
        assert_eq!(ours["measurement"]["scaler"], one["measurement"]["scaler"]);
    }
}

#[test]
fn a_killed_stage_ends_the_cell_with_a_row_that_names_it() {
    let moments = [0, 2, 3].map(|rank| (rank, Duration::from_millis(400)));
    sweep(&with(TRAINED, "stages = 4\nschedule = \"1f1b\"\nmicro_batches = 8"), &moments);
}

/// 1F1B keeps a micro-batch for each stage behind, whatever their number, and GPipe what its stages are computed from.
#[test]
fn many_micro_batches_take_the_memory_of_sixteen() {
    const MANY: usize = 96;
    let peaks = |micro_batches: usize, keys: &str| {
        let batch = format!("batch_size = {micro_batches}");
        let changes = [
            ("batch_size = 8", batch.as_str()),
            ("hidden_size = 32", "hidden_size = 64"),
            ("seq_len = 16", "seq_len = 32"),
            ("steps = 12", "steps = 1"),
            ("warmup = 1", "warmup = 0"),
        ];
        let keys = format!("stages = 4\nmicro_batches = {micro_batches}\n{keys}");
        let place = Place::new(&with(&changed(TRAINED, &changes), &keys));
        place.runner(&["run", "recipe.toml"]).exits(0);
        let row = place.rows().remove(0);
        let ranks = row["measurement"]["ranks"].as_array().expect("ranks").clone();
        ranks.iter().map(|rank| rank["memory"]["live_peak"].as_f64().expect("bytes")).collect::<Vec<_>>()
    };
    // Of each micro-batch every rank has ids and labels, in small tensors, and its actions. Of a block alone more than ten
    // activations of 8 KiB are kept where a graph lives.
    let input = 32.0 * 64.0 * 4.0;
    let [own, recomputed] = [3.0, 6.0].map(|inputs| (MANY - 16) as f64 * inputs * input);
    let f1b1 = "schedule = \"1f1b\"";
    for (few, many) in peaks(16, f1b1).iter().zip(peaks(MANY, f1b1)) {
        assert!(many < few + own, "{few} and {many} bytes");
    }
    // Inputs of stages, and gradients of outputs that arrive before they are wanted.
    let gpipe = "schedule = \"gpipe\"\n[checkpoint]\nblocks = 8";
    for (few, many) in peaks(16, gpipe).iter().zip(peaks(MANY, gpipe)) {
        assert!(many < few + recomputed, "{few} and {many} bytes");
    }
}

#[test]
fn the_plan_draws_every_schedule() {
    let text = changed(TRAINED, &[("num_hidden_layers = 5", "num_hidden_layers = 8")]);
    let place =
        Place::new(&with(&text, "stages = 4\nmicro_batches = 8\nschedule = \"interleaved\"\nchunks = 2"));
    place.runner(&["plan", "recipe.toml"]).exits(0).says(&[
        "cell 1: interleaved 1F1B, micro-batches: 8",
        "rank 0, blocks 0 and 4",
        "with stages of equal time 15.8 %",
        "messages a step: 112 of",
        "activations by rank: 5.5, 4.5, 3.5, 2.5",
    ]);
}

#[test]
fn pipelines_that_cannot_be_are_refused_before_anything_runs() {
    for (recipe, parts) in [
        (
            with(TRAINED, &TWO.replace("stages = 2", "stages = 6")),
            vec!["need a block for each stage, and the network has 5"],
        ),
        (
            with(TRAINED, &TWO.replace("micro_batches = 4", "micro_batches = 3")),
            vec!["train.batch_size = 8 cannot be divided into 3 micro-batches"],
        ),
        (
            with(TRAINED, "stages = 2\nmicro_batches = 1\nschedule = \"interleaved\"\nchunks = 2"),
            vec!["1 micro-batches cannot be interleaved", "a multiple of 2"],
        ),
        (
            with(TRAINED, "stages = 2\nmicro_batches = 4\nschedule = \"interleaved\"\nchunks = 1"),
            vec!["must be at least 2, not 1", "it would be \"1f1b\""],
        ),
        (with(TRAINED, &format!("{TWO}\nchunks = 2")), vec!["schedule = \"interleaved\""]),
        (with(TRAINED, &TWO.replace("stages = 2", "stages = 1")), vec!["must be at least 2, not 1"]),
        (with(TRAINED, "stages = 2\nschedule = \"1f1b\""), vec!["micro_batches"]),
        (with(TRAINED, "stages = 2\nmicro_batches = 4\nschedule = \"1b1f\""), vec!["1f1b"]),
        (with(TRAINED, "stages = 2\nmicro_batches = 4\nschedule = \"written\""), vec!["actions"]),
        (
            with(
                TRAINED,
                "stages = 2\nmicro_batches = 2\nschedule = \"written\"\nactions = \"0F0 0B0 0F1 0B1; 1F0 1F1 1B0 1B1\"",
            ),
            vec!["`0B0` of rank 0 waits for `1B0`", "rank 1 is at `1F1`"],
        ),
        (
            with(TRAINED, "stages = 2\nmicro_batches = 4\nschedule = \"pipedream\""),
            vec!["train.clip_norm", "PipeDream"],
        ),
        (
            with(
                &changed(TRAINED, &[("clip_norm = 0.5\n", "")]),
                "stages = 2\nmicro_batches = 4\nschedule = \"pipedream\"",
            ),
            vec!["tie_word_embeddings = false"],
        ),
        (
            format!(
                "{TRAINED}[parallel]\ndata = 2\npipeline = {{ stages = 2, schedule = \"1f1b\", micro_batches = 4 }}\n"
            ),
            vec!["does not go with parallel.data"],
        ),
        (
            with(&changed(TRAINED, &[("clip_norm", "accumulation_steps = 2\nclip_norm")]), TWO),
            vec!["train.accumulation_steps"],
        ),
        (with(&format!("{TRAINED}[eval]\nevery = 2\n"), TWO), vec!["does not go with eval"]),
    ] {
        Place::new(&recipe).runner(&["check", "recipe.toml"]).exits(2).says(&parts);
    }
}

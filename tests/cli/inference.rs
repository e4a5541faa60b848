//! Forward alone: rows that keep nothing for backward, generation with blocks on the host, and what is refused.

use serde_json::Value;

use crate::place::{Place, fixture};

const RECIPE: &str = r#"title = "inference"
device = "cpu"
[model]
kind = "qwen2"
vocab_size = 211
hidden_size = 128
intermediate_size = 512
num_hidden_layers = 5
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 64
[train]
mode = "inference"
batch_size = 2
seq_len = 32
[measure]
repeats = 1
warmup = 1
steps = 3
"#;

const STRATEGIES: &str = r#"[[grid]]
"offload.strategy" = ["none", "naive", "checkpointed", "function", "overlap"]
[[grid]]
"offload.strategy" = "overlap"
"offload.buffers" = 2
"offload.resident_blocks" = [2, "auto"]
[report]
baseline = { "offload.strategy" = "none" }
"#;

/// The recipe with other lines.
fn with(changes: &[(&str, &str)], more: &str) -> String {
    let changed = changes.iter().fold(RECIPE.to_string(), |recipe, (from, to)| {
        assert!(recipe.contains(from), "{from}");
        recipe.replace(from, to)
    });
    changed + more
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn losses(row: &Value) -> Vec<f64> {
    row["measurement"]["loss"].as_array().expect("losses").iter().map(number).collect()
}

fn peak(row: &Value) -> f64 {
    number(&row["measurement"]["memory"]["live_peak"])
}

/// Runs the recipe; every estimate is near what was measured, and nothing is kept.
fn rows(recipe: &str) -> Vec<Value> {
    let place = Place::new(recipe);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    for row in &rows {
        let parts = ["weights", "gradients", "optimizer", "activations", "workspace"];
        let estimate: f64 = parts.iter().map(|part| number(&row["estimate"][part])).sum();
        let ratio = estimate / peak(row);
        assert!((0.92..1.08).contains(&ratio), "{ratio} {}", row["cell"]);
        for nothing in ["gradients", "optimizer", "activations", "kept"] {
            assert!(row["estimate"][nothing].as_u64().unwrap_or(0) == 0, "{nothing} {}", row["estimate"]);
        }
        let measurement = &row["measurement"];
        assert!(measurement["backward"].is_null() && measurement["optimizer"].is_null());
        assert!(
            number(&measurement["forward"]["median"]) > 0.0
                && number(&measurement["tokens_per_second"]) > 0.0
        );
        assert_eq!(measurement["step"]["median"], measurement["forward"]["median"]);
        assert!(number(&row["flops"]["forward"]) > 0.0 && number(&row["flops"]["backward"]) == 0.0);
    }
    rows
}

/// By every strategy the same losses; weights of the blocks that move are in slots alone.
#[test]
fn every_strategy_computes_alike_in_its_memory() {
    let rows = rows(&with(&[], STRATEGIES));
    assert_eq!(rows.len(), 7);
    let none = rows.iter().find(|row| row["cell"]["offload"]["strategy"] == "none").expect("a baseline");
    // 12 · 128² + 3 · 128 · 384 weights and some biases in each of five blocks, of four bytes.
    let block = 4.0 * f64::from(2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 512 + 5 * 128);
    for row in &rows {
        for (ours, theirs) in losses(row).iter().zip(losses(none)) {
            assert!((ours - theirs).abs() <= 1e-5 * theirs, "{}", row["cell"]);
        }
        let offload = &row["cell"]["offload"];
        let here = match (offload["strategy"].as_str(), offload["resident_blocks"].as_u64()) {
            (Some("none"), _) | (_, None) => 5.0,
            (Some("overlap"), Some(0)) => 3.0,
            (Some("overlap"), Some(resident)) => 2.0 + resident as f64,
            _ => 1.0,
        };
        let saved = (peak(none) - peak(row)) / block;
        assert!((saved - (5.0 - here)).abs() < 0.1, "{saved} blocks less, {offload}");
    }
}

/// The first loss of a training is the loss of its first batch.
#[test]
fn a_forward_has_the_loss_that_training_begins_with() {
    let kinds = [
        ("kind = \"qwen2\"", "kind = \"qwen2\""),
        ("kind = \"qwen2\"", "kind = \"llama\""),
        ("kind = \"qwen2\"\n", "kind = \"gpt2\"\n"),
    ];
    for (from, to) in kinds {
        let mut changes = vec![(from, to), ("warmup = 1", "warmup = 0")];
        if to.contains("gpt2") {
            changes.push(("num_key_value_heads = 2\n", ""));
        }
        for precision in
            ["", "[precision]\ncompute = \"bf16\"\n", "[precision]\ncompute = \"bf16\"\nautocast = true\n"]
        {
            let inference = rows(&with(&changes, precision)).remove(0);
            let training = [&changes[..], &[("mode = \"inference\"", "mode = \"training\"")]].concat();
            let place = Place::new(&with(&training, precision));
            place.runner(&["run", "recipe.toml"]).exits(0);
            let training = place.rows().remove(0);
            assert_eq!(losses(&inference)[0], losses(&training)[0], "{to} {precision}");
            assert!(peak(&inference) < peak(&training));
            assert!(training["cell"]["train"].get("mode").is_none(), "rows of trainings stay as they are");
        }
    }
}

/// GPT-J's head and its bias are one matrix, which is there next to the logits.
#[test]
fn a_head_with_a_bias_is_in_the_estimate() {
    let gptj = [
        ("kind = \"qwen2\"\n", "kind = \"gptj\"\nrotary_dim = 8\n"),
        ("num_key_value_heads = 2\n", ""),
        ("vocab_size = 211", "vocab_size = 30011"),
        ("num_hidden_layers = 5", "num_hidden_layers = 1"),
    ];
    rows(&with(&gptj, "[grid]\n\"offload.strategy\" = [\"none\", \"overlap\"]\n"));
}

/// Samples of unequal length, a network without blocks that move, and adapters.
#[test]
fn samplers_other_networks_and_adapters_go_forward_too() {
    let data = "[data]\ncorpus = \"generated\"\nvocab_size = 300\nsize = \"24 KiB\"\n";
    let vocabulary = ("vocab_size = 211", "vocab_size = 300");
    let sampler = "[[grid]]\n\"data.sampler\" = [\"padded\", \"standard\", \"packed\"]\n\
                   \"offload.strategy\" = [\"none\", \"overlap\"]\n";
    let sampled = rows(&with(&[vocabulary], &format!("{data}sampler = \"standard\"\n{sampler}")));
    assert_eq!(sampled.len(), 6);
    let swiglu = "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"swiglu\"\nhidden_size = 128\n\
                  intermediate_size = 256\nnum_hidden_layers = 3\n[train]\nmode = \"inference\"\nbatch_size = 2\n\
                  seq_len = 64\n[measure]\nrepeats = 1\nwarmup = 1\nsteps = 3\n[grid]\n\"train.batch_size\" = [2, 4]\n";
    assert_eq!(rows(swiglu).len(), 2);
    let lora =
        "[tuning]\nmethod = \"lora\"\n[grid]\n\"offload.strategy\" = [\"none\", \"naive\", \"overlap\"]\n";
    assert_eq!(rows(&with(&[], lora)).len(), 3);
}

/// Questions are answered once, by a network whose blocks move.
#[test]
fn questions_are_answered_once() {
    let task = "[data]\ncorpus = \"task\"\nvocab_size = 300\nsampler = \"packed\"\n[task]\nkind = \"sums\"\n\
                evaluate_generation = 4\nmax_new_tokens = 5\nexamples = 1\n[grid]\n\
                \"offload.strategy\" = [\"none\", \"overlap\"]\n";
    let sizes = [
        ("vocab_size = 211", "vocab_size = 300"),
        ("max_position_embeddings = 64", "max_position_embeddings = 256"),
        ("seq_len = 32", "seq_len = 128"),
    ];
    let place = Place::new(&with(&sizes, task));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let given = |row: &Value| row["measurement"]["answers"][0]["samples"].clone();
    let rows = place.rows();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["measurement"]["answers"].as_array().expect("answers").len() == 1));
    assert_eq!(given(&rows[0]), given(&rows[1]));
    let report = std::fs::read_to_string(place.results().join("report.html")).unwrap();
    assert!(report.contains("Answers") && !report.contains("right before"), "{report}");
}

#[test]
fn the_report_of_forwards_has_no_backward() {
    let place = Place::new(&with(&[], STRATEGIES));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["forward", "peak"]);
    let table = std::fs::read_to_string(place.results().join("table.md")).unwrap();
    let header = table.lines().find(|line| line.contains("forward")).expect("a header");
    for (column, there) in [("tokens/s", true), ("peak memory", true), ("× step", true), ("backward", false)]
    {
        assert_eq!(header.contains(column), there, "{column}: {header}");
    }
    let report = std::fs::read_to_string(place.results().join("report.html")).unwrap();
    for (part, there) in [("step time", true), ("backward time", false), ("last 5", false)] {
        assert_eq!(report.contains(part), there, "{part}");
    }
    let csv = std::fs::read_to_string(place.results().join("table.csv")).unwrap();
    assert!(csv.lines().all(|line| !line.contains("not run")), "{csv}");
    // Beside trainings only their rows have one.
    let both =
        with(&[("mode = \"inference\"\n", "")], "[grid]\n\"train.mode\" = [\"training\", \"inference\"]\n");
    let place = Place::new(&both);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let table = std::fs::read_to_string(place.results().join("table.md")).unwrap();
    for part in ["backward", "no mode", "mode inference"] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn what_only_training_has_is_refused() {
    let check = |more: &str, key: &str| {
        let refused = format!("{key} has no effect with train.mode = \"inference\"");
        Place::new(&with(&[], more))
            .runner(&["check", "recipe.toml"])
            .exits(2)
            .says(&[&refused, &format!("remove {key}")]);
    };
    check("[checkpoint]\nblocks = 1\n", "checkpoint.blocks");
    check("[checkpoint]\nlevel = 1\n", "checkpoint.level");
    check("[offload]\nstrategy = \"overlap\"\nactivations = \"host\"\n", "offload.activations");
    check("[offload]\noptimizer = \"host\"\n", "offload.optimizer");
    check("[precision]\ncompute = \"fp16\"\nscaler = { kind = \"dynamic\" }\n", "precision.scaler");
    check("[tuning]\nmethod = \"bitfit\"\n", "tuning.method");
    check("[tuning]\nmethod = \"lora\"\ndropout = 0.1\n", "tuning.dropout");
    check("[eval]\nevery = 1\n", "eval");
    check("[save]\nweights = \"out\"\n", "save");
    let train = |line: &str, key: &str| {
        let recipe = with(&[("batch_size = 2", &format!("{line}\nbatch_size = 2"))], "");
        let refused = format!("{key} has no effect with train.mode = \"inference\"");
        Place::new(&recipe).runner(&["check", "recipe.toml"]).exits(2).says(&[&refused]);
    };
    train("optimizer = { kind = \"adamw\", lr = 1e-3 }", "train.optimizer");
    train("clip_norm = 1.0", "train.clip_norm");
    train("schedule = { kind = \"cosine\" }", "train.schedule");
    train("accumulation_steps = 2", "train.accumulation_steps");
    let histogram = with(&[("warmup = 1", "warmup = 1\ngradient_histogram = true")], "");
    Place::new(&histogram)
        .runner(&["check", "recipe.toml"])
        .exits(2)
        .says(&["measure.gradient_histogram has no effect"]);
    let unknown = with(&[("\"inference\"", "\"inferense\"")], "");
    Place::new(&unknown).runner(&["check", "recipe.toml"]).exits(2).says(&["did you mean `inference`?"]);
}

/// The text is the same wherever the blocks live.
#[test]
fn generation_takes_a_strategy() {
    let place = Place::new(RECIPE);
    for family in ["qwen2", "gpt2"] {
        let folder = fixture(family);
        let generate = |settings: &[&str]| {
            let mut args = vec!["generate", folder.as_str(), "--ids", "5,6,7", "--ids", "9", "--tokens", "6"];
            settings.iter().for_each(|setting| args.extend(["--set", setting]));
            place.runner(&args)
        };
        let plain = generate(&[]).exits(0).out;
        for settings in [
            &["offload.strategy=naive"][..],
            &["offload.strategy=function"],
            &["offload.strategy=overlap", "offload.buffers=2"],
            &["offload.strategy=overlap", "offload.resident_blocks=1"],
            &["offload.strategy=overlap", "offload.resident_blocks=auto"],
        ] {
            assert_eq!(generate(settings).exits(0).out, plain, "{family} {settings:?}");
        }
        generate(&["offload.strategy=overlaped"]).exits(2).says(&["did you mean `overlap`?"]);
        let advice = "leave out --set offload.optimizer=\"host\": only training uses it";
        generate(&["offload.optimizer=host"]).exits(2).says(&["no effect", advice]);
        generate(&["offload.activations=host", "offload.strategy=naive"]).exits(2).says(&["has no effect"]);
        generate(&["train.batch_size=3"]).exits(1).says(&["not `train.batch_size`", "offload"]);
    }
}

/// Numbers that are none make every token as probable as another: that is said, not written.
#[test]
fn weights_that_are_not_numbers_write_nothing() {
    let place = Place::new(RECIPE);
    let of = std::path::PathBuf::from(fixture("gpt2"));
    for name in ["config.json", "model.safetensors"] {
        let mut bytes = std::fs::read(of.join(name)).expect("a fixture");
        if name.ends_with("safetensors") {
            let half = bytes.len() / 8 * 4;
            bytes[half..]
                .chunks_exact_mut(4)
                .for_each(|number| number.copy_from_slice(&f32::NAN.to_le_bytes()));
        }
        std::fs::write(place.path().join(name), bytes).expect("it is written");
    }
    let args = ["generate", ".", "--ids", "5,6,7", "--tokens", "6"];
    for more in [&[][..], &["--measure"], &["--temperature", "0.7"]] {
        let ended = place.runner(&[&args[..], more].concat());
        ended.exits(1).says(&["the model's logits are not numbers", "not finite"]);
    }
}

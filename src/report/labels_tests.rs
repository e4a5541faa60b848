//! Names of methods and shapes.

use super::super::content;
use super::super::table::Comparison;
use super::super::testing::language_recipe;
use super::*;
use serde_json::json;

fn settings() -> Settings {
    crate::words::flatten(&json!({
        "train": { "batch_size": 16, "seq_len": 128 },
        "model": { "kind": "swiglu", "hidden_size": 512 },
        "checkpoint": { "level": 0.0 },
        "ops": { "swiglu": "plain" },
    }))
}

fn keys(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Labels of the first two cells of a grid over a small language model.
fn of_grid(grid: &str) -> [(String, String); 2] {
    let recipe = language_recipe(grid);
    let comparison = Comparison::new(&recipe, &[]);
    [0, 1].map(|i| {
        let line = &comparison.lines[i];
        (comparison.shapes[line.shape].label.clone(), comparison.methods[line.method].clone())
    })
}

#[test]
fn language_models_have_readable_names() {
    let methods = [
        ("\"ops.norm\" = [\"custom\", \"plain\"]", ["custom norm", "plain norm"]),
        (
            "\"ops.norm\" = [\"plain\", \"custom\"]\n\"ops.gelu\" = [\"plain\", \"custom\"]",
            ["plain operators", "plain norm"],
        ),
        (
            "\"precision\" = [{ compute = \"fp32\" }, { compute = \"fp16\", autocast = true, \
             scaler = { kind = \"static\", scale = 1024 } }]",
            ["fp32", "autocast, fp16, static scale"],
        ),
        (
            "precision.compute = \"fp16\"\n\"precision.scaler.kind\" = \"static\"\n\
             \"precision.scaler.scale\" = [1000, 0.25]",
            ["scale 1000", "scale 2⁻²"],
        ),
        ("\"train.clip_norm\" = [1.5, 2]", ["clip norm 1.5", "clip norm 2"]),
        (
            "\"train.schedule\" = [{ kind = \"constant\" }, { kind = \"cosine\", warmup_steps = 5 }]",
            ["constant schedule", "cosine schedule"],
        ),
        (
            "\"model.positions\" = [\"learned\", \"sinusoidal\"]",
            ["learned positions", "sinusoidal positions"],
        ),
        ("\"model.tie_word_embeddings\" = [true, false]", ["tied embeddings", "untied embeddings"]),
        ("\"offload.optimizer\" = [\"device\", \"host\"]", ["optimizer on device", "optimizer on host"]),
        ("\"train.optimizer.lr\" = [0.001, 0.01]", ["lr 0.001", "lr 0.01"]),
        (
            "\"train.optimizer\" = [{ kind = \"adamw\", epsilon = 1e-8 }, { kind = \"adamw\", epsilon = 1e-6 }]",
            ["epsilon 1e-8", "epsilon 1e-6"],
        ),
        // How is measured names a method where nothing else does.
        ("\"measure.warmup\" = [1, 3]", ["warmup 1", "warmup 3"]),
    ];
    for (grid, names) in methods {
        assert_eq!(of_grid(&format!("[grid]\n{grid}")).map(|(_, method)| method), names, "{grid}");
    }
    let sizes = [
        ("\"train.accumulation_steps\" = [1, 2]", ["accumulation steps 1", "accumulation steps 2"]),
        ("\"data.size\" = [\"1 MiB\", \"2 MiB\"]", ["corpus size 1.00 MiB", "corpus size 2.00 MiB"]),
    ];
    for (grid, names) in sizes {
        assert_eq!(of_grid(&format!("[grid]\n{grid}")).map(|(shape, _)| shape), names, "{grid}");
    }
}

#[test]
fn names_do_not_say_how_is_measured() {
    let grid = "[[grid]]\n\"train.clip_norm\" = 1.5\n\"measure.warmup\" = 1\n\
                [[grid]]\n\"train.clip_norm\" = 2\n\"measure.warmup\" = 3\n";
    assert_eq!(of_grid(grid).map(|(_, method)| method), ["clip norm 1.5", "clip norm 2"]);
}

#[test]
fn a_preset_stands_for_what_it_sets() {
    let grid = "[[grid]]\n\"model\" = [{ kind = \"qwen2\", preset = \"qwen2.5-0.5b\" }, \
                { kind = \"qwen2\", preset = \"qwen2.5-7b\" }]\n\"train.batch_size\" = [1, 2]\n";
    let recipe = language_recipe(grid);
    let comparison = Comparison::new(&recipe, &[]);
    let shapes: Vec<&str> = comparison.shapes.iter().map(|shape| shape.label.as_str()).collect();
    assert_eq!(
        shapes,
        [
            "batch size 1, qwen2.5-0.5b",
            "batch size 2, qwen2.5-0.5b",
            "batch size 1, qwen2.5-7b",
            "batch size 2, qwen2.5-7b"
        ]
    );
    // The smaller model ties its embeddings; that is no method of its own.
    assert_eq!(comparison.methods.len(), 1);
}

#[test]
fn a_method_that_is_alone_has_the_name_of_what_it_trains() {
    let lora = Settings::from_iter([("tuning.method".to_string(), "lora".into())]);
    let full = |kind: &str| {
        Settings::from_iter([
            ("model.kind".to_string(), kind.into()),
            ("tuning.method".to_string(), "full".into()),
            ("checkpoint.level".to_string(), 0.into()),
            ("precision.compute".to_string(), "bf16".into()),
        ])
    };
    assert_eq!(methods(&[], &[&lora]).0, ["LoRA"]);
    assert_eq!(methods(&[], &[&full("swiglu")]).0, ["level 0"]);
    // Other networks may have no level.
    assert_eq!(methods(&[], &[&full("gpt2")]).0, ["bf16"]);
}

#[test]
fn a_method_of_several_processes_says_how_many() {
    let of = |data: usize, graph: bool| {
        Settings::from_iter([
            ("parallel.data".to_string(), data.into()),
            ("train.graph".to_string(), graph.into()),
        ])
    };
    let all = [of(1, false), of(2, false), of(2, true)];
    let (labels, _) = methods(&keys(&["parallel.data", "train.graph"]), &all.each_ref());
    assert_eq!(labels, ["one replica", "2 replicas", "2 replicas, as a graph"]);
}

#[test]
fn shapes_and_methods() {
    let sizes = keys(&["train.batch_size", "train.seq_len", "model.hidden_size"]);
    assert_eq!(shape_label(&sizes, &settings()), "16×128, 512");
    assert_eq!(size_legend(&sizes), "batch size × sequence length, hidden size");
    assert_eq!(shape_name(&sizes, &settings()), "16×128, hidden size 512");
    assert_eq!(shape_label(&sizes[1..], &settings()), "sequence length 128, hidden size 512");
    assert_eq!(shape_label(&sizes[..1], &settings()), "batch size 16");
    let methods = keys(&["checkpoint.level", "ops.swiglu"]);
    assert_eq!(label(methods.iter().collect(), &methods, &settings()), "level 0, plain");
    assert_eq!(short_label(methods.iter().collect(), &methods, &settings()), "plain");
    let limit = keys(&["measure.memory_limit"]);
    assert_eq!(label(limit.iter().collect(), &limit, &settings()), "no memory limit");
}

#[test]
fn files_of_one_name_are_told_apart_by_their_paths() {
    let of = |path: &str| crate::words::flatten(&json!({ "model": { "kind": "gpt2", "weights": path } }));
    let three = [of("a/final"), of("b/final"), of("c/other")];
    let (labels, _) = methods(&keys(&["model.weights"]), &three.iter().collect::<Vec<_>>());
    assert_eq!(labels, ["final weights (a/final)", "final weights (b/final)", "other weights"]);
}

/// What fp32 has in the place of a scale goes without words, so no scale is in the note; bf16 is told, so fp16 is.
#[test]
fn the_note_holds_for_every_method_that_does_not_say_otherwise() {
    let precision = |rest: &str| {
        format!("{{ compute = \"fp16\", autocast = true, scaler = {{ kind = \"static\", scale = {rest} }} }}")
    };
    let scales: Vec<String> = ["2", "4", "8", "16"].iter().map(|scale| precision(scale)).collect();
    let grid = format!(
        "[grid]\nprecision = [{}, {{ compute = \"fp32\" }}, {{ compute = \"bf16\", autocast = true }}]\n",
        scales.join(", ")
    );
    let recipe = language_recipe(&grid);
    let comparison = Comparison::new(&recipe, &[]);
    assert_eq!(comparison.methods, ["scale 2¹", "scale 2²", "scale 2³", "scale 2⁴", "fp32", "bf16"]);
    assert_eq!(comparison.shared, "fp16");
}

/// Segments change nothing of blocks that move, and those that stay beside them are kept.
#[test]
fn names_of_blocks_that_move_say_that_they_are_recomputed() {
    let of = |grid: &str| {
        let recipe = language_recipe(grid);
        let comparison = Comparison::new(&recipe, &[]);
        let caption = content::overview(&comparison).expect("a table").caption;
        let mut methods = comparison.methods;
        methods.sort();
        (methods, caption)
    };
    let (methods, caption) =
        of("[grid]\n\"checkpoint.blocks\" = [0, 1]\n\"offload.strategy\" = [\"none\", \"overlap\"]\n");
    assert_eq!(
        methods,
        [
            "blocks recomputed, no offload",
            "blocks recomputed, overlap (checkpoint.blocks 0)",
            "blocks recomputed, overlap (checkpoint.blocks 1)",
            "no blocks recomputed, no offload",
        ]
    );
    assert!(caption.ends_with("Whatever its name says, a method recomputes blocks that move."), "{caption}");
    let resident = "\"offload.strategy\" = \"overlap\"\n\"offload.resident_blocks\" = 1\n";
    let (methods, _) = of(&format!("[grid]\n\"checkpoint.blocks\" = [0, 1]\n{resident}"));
    assert_eq!(methods, ["blocks recomputed", "moving blocks recomputed"]);
    let (methods, caption) = of("[grid]\n\"checkpoint.blocks\" = [0, 1]\n");
    assert!(methods == ["blocks recomputed", "no blocks recomputed"] && !caption.contains("Whatever"));
}

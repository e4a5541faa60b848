//! Names of methods and shapes.

use super::super::table::Comparison;
use super::super::testing::language_recipe;
use super::*;
use serde_json::json;

fn settings() -> Settings {
    crate::keys::flatten(&json!({
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
fn methods_are_keys_with_their_values() {
    let methods = [
        ("\"ops.norm\" = [\"custom\", \"plain\"]", ["norm custom", "norm plain"]),
        (
            "\"precision\" = [{ compute = \"fp32\" }, { compute = \"fp16\", autocast = true, \
             scaler = { kind = \"static\", scale = 1024 } }]",
            ["precision fp32", "autocast, precision fp16, scaler static"],
        ),
        (
            "precision.compute = \"fp16\"\n\"precision.scaler.kind\" = \"static\"\n\
             \"precision.scaler.scale\" = [1000, 0.25]",
            ["scale 1000", "scale 2⁻²"],
        ),
        ("\"train.clip_norm\" = [1.5, 2]", ["clip norm 1.5", "clip norm 2"]),
        ("\"offload.optimizer\" = [\"device\", \"host\"]", ["optimizer on device", "optimizer on host"]),
        ("\"train.optimizer.lr\" = [0.001, 0.01]", ["lr 0.001", "lr 0.01"]),
        (
            "\"train.optimizer\" = [{ kind = \"adamw\", epsilon = 1e-8 }, { kind = \"adamw\", epsilon = 1e-6 }]",
            ["epsilon 1e-8", "epsilon 1e-6"],
        ),
        // How is measured tells methods apart where nothing else does.
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

/// The table of two rates has one name, so its methods are told apart by what differs.
#[test]
fn a_recipe_names_its_cells() {
    let grid = "[[grid]]\nname = \"clipped\"\n\"train.clip_norm\" = [1.5, 2]\n\
                [[grid]]\nname = \"as it is\"\n\"train.batch_size\" = [4, 8]\n";
    let recipe = language_recipe(grid);
    let comparison = Comparison::new(&recipe, &[]);
    assert_eq!(comparison.methods, ["clipped (clip norm 1.5)", "clipped (clip norm 2)", "as it is"]);
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

fn of(keys: &[String], all: &[&Settings]) -> Vec<String> {
    let named: Vec<Named> = all.iter().map(|settings| Named { settings, name: "" }).collect();
    methods(keys, &named, |_| false)
}

#[test]
fn a_method_that_is_alone_has_the_name_of_what_it_trains() {
    let lora = Settings::from_iter([("tuning.method".to_string(), "lora".into())]);
    let full = Settings::from_iter([
        ("tuning.method".to_string(), "full".into()),
        ("precision.compute".to_string(), "bf16".into()),
    ]);
    assert_eq!(of(&[], &[&lora]), ["tuning lora"]);
    assert_eq!(of(&[], &[&full]), ["precision bf16"]);
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
    assert_eq!(in_full(&methods, &settings()), "level 0, swiglu plain");
    assert_eq!(of(&methods, &[&settings()]), ["swiglu plain"]);
}

#[test]
fn files_of_one_name_are_told_apart_by_their_paths() {
    let with = |path: &str| crate::keys::flatten(&json!({ "model": { "kind": "gpt2", "weights": path } }));
    let three = [with("a/final"), with("b/final"), with("c/other")];
    let labels = of(&keys(&["model.weights"]), &three.iter().collect::<Vec<_>>());
    assert_eq!(
        labels,
        ["weights final (weights a/final)", "weights final (weights b/final)", "weights other"]
    );
}

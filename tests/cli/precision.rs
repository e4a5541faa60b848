//! Mixed precision through the binary: autocast, gradient scalers, sizes of gradients.

use serde_json::Value;

use crate::place::{Place, SMALL, changed};

/// It learns in some tens of steps, of milliseconds each.
fn learning() -> String {
    changed(
        SMALL,
        &[
            ("batch_size = 2", "batch_size = 4"),
            ("seq_len = 16", "seq_len = 32\nclip_norm = 1.0"),
            ("lr = 1e-3", "lr = 3e-3"),
            ("[measure]", "[eval]\nevery = 4\nbatches = 2\n[measure]"),
            ("\nsteps = 2", "\nsteps = 39"),
        ],
    )
}

const AMP: &str = "[precision]\ncompute = \"fp16\"\nautocast = true\n";

/// The row of a recipe with one cell.
fn row(recipe: &str) -> Value {
    let place = Place::new(recipe);
    place.runner(&["run", "recipe.toml"]);
    place.rows().remove(0)
}

fn scaled(scaler: &str) -> Value {
    row(&format!("{}{AMP}scaler = {scaler}\n", learning()))
}

/// Of each evaluation.
fn held_out(row: &Value) -> Vec<f64> {
    let evaluations = row["measurement"]["evaluations"].as_array().expect("evaluations");
    evaluations.iter().map(|e| e["loss"].as_f64().expect("a loss")).collect()
}

#[test]
fn amp_learns_what_fp32_learns() {
    let end = |row: &Value| *held_out(row).last().unwrap();
    let fp32 = row(&learning());
    let start = held_out(&fp32)[0];
    assert!(end(&fp32) < start - 1.0);
    let dynamic = scaled("{ kind = \"dynamic\" }");
    let fixed = scaled("{ kind = \"static\" }");
    let bf16 = row(&format!("{}{}", learning(), AMP.replace("fp16", "bf16")));
    for other in [&dynamic, &fixed, &bf16] {
        assert!(
            (end(other) - end(&fp32)).abs() < 0.05,
            "{} of {}: {}",
            end(other),
            end(&fp32),
            other["cell"]
        );
    }
    // Both scales are 65536 throughout.
    assert_eq!(end(&dynamic), end(&fixed));
    let scaler = &dynamic["measurement"]["scaler"];
    assert_eq!((&scaler["skipped"], &scaler["final_scale"]), (&0.into(), &65536.0.into()));
    assert_eq!(scaler["scales"].as_array().map(Vec::len), Some(40));
}

#[test]
fn a_static_scale_that_overflows_diverges_with_advice() {
    let row = scaled("{ kind = \"static\", scale = 1e12 }");
    assert_eq!(row["status"], "diverged");
    let reason = row["reason"].as_str().unwrap();
    for part in ["steps 1 to 20 were all skipped", "smaller precision.scaler.scale", "dynamic"] {
        assert!(reason.contains(part), "{part} is missing in: {reason}");
    }
}

/// Sixteen times too large and more: the first steps are skipped, which changes nothing at all.
#[test]
fn a_dynamic_scale_that_overflows_backs_off_and_training_recovers() {
    let row = scaled("{ kind = \"dynamic\", init_scale = 1e9, growth_interval = 1000 }");
    let scaler = &row["measurement"]["scaler"];
    let skipped = scaler["skipped"].as_u64().unwrap() as usize;
    assert!((4..20).contains(&skipped), "{scaler}");
    // Those are the first ones.
    let steps: Vec<u64> =
        scaler["skipped_steps"].as_array().unwrap().iter().map(|s| s.as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=skipped as u64).collect::<Vec<_>>());
    assert_eq!(scaler["smallest_scale"].as_f64(), Some(1e9 / 2f64.powi(skipped as i32)));
    let losses = held_out(&row);
    assert_eq!(losses[0], losses[1], "four skipped steps leave every parameter as it was");
    assert!(losses[losses.len() - 1] < losses[0] - 0.8, "{losses:?}");
}

/// Of 2^-13 and of 2^16. In fp16 without enough of a scale gradients become zero.
#[test]
fn gradients_that_fp16_loses_are_counted() {
    let zeros = |scale: &str| {
        let recipe = learning().replace("steps = 39", "steps = 1\ngradient_histogram = true");
        let row = row(&format!("{recipe}{AMP}scaler = {{ kind = \"static\", scale = {scale} }}\n"));
        let histogram = &row["measurement"]["gradient_histogram"];
        let activations = &histogram["activations"];
        assert_eq!(histogram["scale"].as_f64(), scale.parse().ok());
        assert_eq!(activations["not_finite"], 0);
        assert!(histogram["parameters"]["bins"].as_array().unwrap().iter().any(|n| *n != 0));
        activations["zero"].as_u64().unwrap()
    };
    let (low, high) = (zeros("0.0001220703125"), zeros("65536"));
    assert!(low > 4 * high, "{low} {high}");
}

/// Weights are cast once for all micro-batches of a step, and gradients are unscaled once: three of two
/// sequences are one of six.
#[test]
fn accumulation_under_autocast_is_the_same_step() {
    let losses = |sizes: &str| {
        let recipe = learning()
            .replace("batch_size = 4", sizes)
            .replace("steps = 39", "steps = 5")
            .replace("corpus = \"generated\"\nsize = \"100 KiB\"\nvocab_size = 300", "corpus = \"random\"");
        let recipe = recipe.replace("[eval]\nevery = 4\nbatches = 2\n", "");
        let row = row(&format!("{recipe}{AMP}scaler = {{ kind = \"dynamic\" }}\n"));
        let losses = row["measurement"]["loss"].as_array().unwrap().clone();
        losses.iter().map(|loss| loss.as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let (whole, parts) = (losses("batch_size = 6"), losses("batch_size = 2\naccumulation_steps = 3"));
    for (a, b) in whole.iter().zip(&parts) {
        assert!((a - b).abs() < 2e-3, "{whole:?} {parts:?}");
    }
}

/// Casts are a part of it, and what accumulation holds.
#[test]
fn the_estimate_of_a_language_model_is_within_five_percent_of_the_measured_peak() {
    let recipe = learning()
        .replace("hidden_size = 32", "hidden_size = 192")
        .replace("num_hidden_layers = 2", "num_hidden_layers = 3")
        .replace("seq_len = 32", "seq_len = 128")
        .replace("max_position_embeddings = 32", "max_position_embeddings = 128")
        .replace("vocab_size = 300", "vocab_size = 1024")
        .replace("[eval]\nevery = 4\nbatches = 2\n", "")
        .replace("steps = 39", "steps = 1");
    let grid = "[[grid]]\n\"train.accumulation_steps\" = [1, 2]\n\"precision.compute\" = \"fp16\"\n\
                \"precision.autocast\" = true\n[[grid]]\n\"train.accumulation_steps\" = [1, 2]\n";
    let place = Place::new(&format!("{recipe}{grid}"));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let parts = ["weights", "gradients", "optimizer", "activations", "workspace"];
        let estimate: u64 = parts.iter().map(|part| row["estimate"][part].as_u64().unwrap()).sum();
        let measured = row["measurement"]["memory"]["live_peak"].as_u64().unwrap();
        let ratio = estimate as f64 / measured as f64;
        assert!((0.95..1.05).contains(&ratio), "estimate/measured = {ratio:.3} for {}", row["cell"]);
    }
}

#[test]
fn what_has_no_effect_or_cannot_be_is_refused() {
    let refused = |more: &str, parts: &[&str]| {
        Place::new(&format!("{}{more}", learning())).runner(&["check", "recipe.toml"]).exits(2).says(parts);
    };
    let scaler = |text: &str| format!("{AMP}scaler = {text}\n");
    refused("[precision]\ncompute = \"bf16\"\nscaler = { kind = \"dynamic\" }\n", &["no effect", "bf16"]);
    refused(&scaler("{ kind = \"dynamic\", scale = 2 }"), &["unknown key `scale`", "init_scale"]);
    refused(&scaler("{ kind = \"static\", scale = 0 }"), &["a number above 0"]);
    refused(&scaler("{ kind = \"static\", scale = 1e-9 }"), &["2^-14"]);
    refused(&scaler("{ kind = \"dynamic\", growth_factor = 1 }"), &["does not make the scale grow"]);
    refused(&scaler("{ kind = \"dynamic\", backoff_factor = 2 }"), &["does not make the scale smaller"]);
    refused(&scaler("{ scale = 2 }"), &["`kind` is missing"]);
    let offload = "[offload]\nstrategy = \"overlap\"\n";
    let moved = format!("{}{}{offload}optimizer = \"host\"\n", learning(), scaler("{ kind = \"dynamic\" }"));
    Place::new(&moved).runner(&["check", "recipe.toml"]).exits(0).says(&["all valid"]);
    let histogram = learning().replace("warmup = 1", "warmup = 1\ngradient_histogram = true");
    let place = Place::new(&format!("{histogram}{offload}"));
    place.runner(&["check", "recipe.toml"]).exits(2).says(&["measure.gradient_histogram"]);
    let idle = learning().replace("optimizer = { kind = \"adamw\", lr = 3e-3 }\n", "");
    let place = Place::new(&format!("{idle}{}", scaler("{ kind = \"dynamic\" }")));
    place.runner(&["check", "recipe.toml"]).exits(2).says(&["no step to skip"]);
}

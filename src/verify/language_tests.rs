//! References that pass, settings that keep them or are said not to, and damage that is noticed: in
//! gradients, micro-batches, updates and slots.

use std::path::PathBuf;

use super::*;
use crate::model::language::LmBatch;
use crate::recipe::{Recipe, Source};
use crate::train::{Damage, Feed};
use crate::verify::{passes, table, verify};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn options(settings: &[&str]) -> Options {
    let settings = ["device=cpu"].iter().chain(settings).map(|setting| setting.parse().unwrap());
    Options { settings: settings.collect(), atol: None }
}

fn verified(name: &str, settings: &[&str]) -> Vec<Check> {
    verify(&fixture(name), &options(settings)).unwrap()
}

/// Names of what a predicate holds for.
fn named(checks: &[Check], of: impl Fn(&Check) -> bool) -> Vec<&str> {
    checks.iter().filter(|check| of(check)).map(|check| check.name.as_str()).collect()
}

#[test]
fn qwen2_and_gpt2_equal_the_reference() {
    for (name, quantities) in [("qwen2", 236), ("gpt2", 124)] {
        let checks = verified(name, &[]);
        assert!(passes(&checks), "{name}\n{}", table(&checks));
        let compared = named(&checks, Check::is_compared).len();
        assert_eq!((compared, checks.len()), (quantities, quantities), "{name}");
    }
}

/// What moves data, repeats a micro-batch or chooses an operator leaves every value as it was.
#[test]
fn settings_that_change_no_value_are_compared_in_full() {
    let resident = |name| verified(name, &["checkpoint.level=0"]).len();
    let counts = [("qwen2", resident("qwen2")), ("gpt2", resident("gpt2"))];
    for settings in [
        &["offload.strategy=naive"][..],
        &["offload.strategy=checkpointed", "offload.optimizer=host"],
        &["offload.strategy=function", "ops.attention=plain"],
        &["offload.strategy=overlap", "train.accumulation_steps=3"],
        &["offload.strategy=overlap", "offload.buffers=2", "offload.activations=host"],
        &["offload={strategy=\"overlap\", optimizer=\"host\", activations=\"host\"}"],
        &["offload.strategy=overlap", "offload.resident_blocks=1", "train.accumulation_steps=2"],
        &["offload={strategy=\"function\", resident_blocks=2, optimizer=\"host\"}", "checkpoint.blocks=1"],
        &["offload.optimizer=host", "train.accumulation_steps=2"],
        &["train.accumulation_steps=4", "ops.loss=plain", "ops.norm=plain"],
        // Larger than the gradients' norm of either.
        &["train.clip_norm=1e3", "train.sync_each_step=true"],
    ] {
        for (name, count) in counts {
            let level = if name == "qwen2" { &["checkpoint.level=0"][..] } else { &[] };
            let checks = verified(name, &[settings, level].concat());
            let clips = settings.iter().any(|setting| setting.contains("clip_norm"));
            assert!(passes(&checks), "{name} {settings:?}\n{}", table(&checks));
            let compared = named(&checks, Check::is_compared).len();
            assert_eq!(
                compared,
                count + usize::from(clips),
                "{name} {settings:?}: every quantity is compared"
            );
        }
    }
}

/// The reference's sequences packed into one, and as rows of samples.
#[test]
fn samplers_are_verified() {
    for sampler in ["packed", "standard"] {
        // The folder has no tokenizer of its own, and the text is not read.
        let data = "corpus=\"generated\", tokenizer=\"train\"";
        let sampler = format!("data={{{data}, sampler=\"{sampler}\"}}");
        for (name, quantities) in [("qwen2", 118), ("gpt2", 124)] {
            let level = if name == "qwen2" { "checkpoint.level=0" } else { "ops.gelu=plain" };
            let checks = verified(name, &[&sampler, level, "train.accumulation_steps=2"]);
            assert!(passes(&checks), "{name} {sampler}\n{}", table(&checks));
            assert_eq!(named(&checks, Check::is_compared).len(), quantities);
            assert_eq!(named(&checks, |check| !check.is_compared()), ["the text of data.corpus"]);
        }
    }
}

/// Clipping, another rate and another optimizer change what comes after an update, and nothing before it.
#[test]
fn what_settings_change_is_named_and_not_compared() {
    for (settings, reason) in [
        (&["train.clip_norm=0.5"][..], "train.clip_norm = 0.5 scales gradients by 0.0"),
        (
            &["train.clip_norm=0.5", "offload.strategy=overlap", "train.accumulation_steps=2"],
            "train.clip_norm",
        ),
        (&["train.optimizer.lr=2e-3"], "train.optimizer is not the reference's"),
        (&["train.optimizer={kind=\"sgd\", lr=0.1}"], "train.optimizer is not the reference's"),
        (&["train.schedule.kind=cosine", "train.schedule.warmup_steps=2"], "train.schedule changes"),
        (&["precision.compute=bf16"], "weights in bf16 cannot hold"),
    ] {
        let checks = verified("gpt2", settings);
        assert!(passes(&checks), "{settings:?}\n{}", table(&checks));
        let left: Vec<&str> = named(&checks, |check| match &check.outcome {
            Outcome::NotCompared(said) => said.contains(reason),
            Outcome::Compared(_) | Outcome::Failed(_) => false,
        });
        assert_eq!(
            left,
            ["losses of 3 steps", "step3_grad.*, 40 tensors", "step3.*, 40 tensors"],
            "{settings:?}"
        );
        let gradients = named(&checks, |check| check.is_compared() && check.name.starts_with("grad."));
        assert_eq!(gradients.len(), 40);
    }
    let clipped = verified("gpt2", &["train.clip_norm=0.5"]);
    assert!(clipped.iter().any(|check| check.is_compared() && check.name.starts_with("factor that clips")));
}

/// Under autocast the weights are fp32, so that steps are compared too; a scaler finds its scale first.
#[test]
fn autocast_and_scalers_are_verified() {
    let half = ["precision.compute=fp16", "precision.autocast=true"];
    let bf16 = ["precision.compute=bf16", "precision.autocast=true"];
    let dynamic = [&half[..], &["precision.scaler.kind=dynamic"]].concat();
    let small = [&half[..], &["precision.scaler={kind=\"static\", scale=1024}"]].concat();
    let large = [&half[..], &["precision.scaler={kind=\"dynamic\", init_scale=1e30}"]].concat();
    let moved = [&large[..], &["offload.strategy=overlap", "offload.optimizer=host"]].concat();
    for name in ["qwen2", "gpt2"] {
        for settings in [&bf16[..], &half, &dynamic, &small, &large, &moved] {
            let checks = verified(name, settings);
            assert!(passes(&checks), "{name} {settings:?}\n{}", table(&checks));
            let steps = named(&checks, |check| check.is_compared() && check.name.contains("step3."));
            assert!(steps.len() >= 38, "{name} {settings:?}: {steps:?}");
            let skipped = named(&checks, |check| check.name.contains("precision.scaler skipped"));
            assert_eq!(skipped.is_empty(), settings != large && settings != moved, "{name} {settings:?}");
        }
    }
    let stuck = verified("gpt2", &[&half[..], &["precision.scaler={kind=\"static\", scale=1e30}"]].concat());
    assert_eq!(named(&stuck, |check| !check.passes()), ["loss, gradients and steps"]);
}

#[test]
fn settings_that_a_reference_does_not_have_are_refused() {
    for (setting, part) in [
        ("train.batch_size=4", "`train.batch_size` is fixed by this reference"),
        ("eval.every=3", "is fixed by this reference"),
        ("measure.steps=3", "`measure.steps` is fixed by this reference"),
        ("train.batchsize=4", "unknown key `batchsize`"),
        ("precision.compute=int3", "unknown value `int3`"),
        ("offload.activations=host", "keep more than their input"),
        ("model.hidden_size=32", "contradicts"),
    ] {
        let error = verify(&fixture("gpt2"), &options(&[setting])).unwrap_err().to_string();
        assert!(error.contains(part), "{setting}: {error}");
    }
}

/// A gradient that was never computed fails as one that is wrong does.
#[test]
fn a_missing_gradient_fails() {
    let golden = Golden::load(&fixture("qwen2")).unwrap();
    let name = "model.norm.weight".to_string();
    let ours = vec![(name.clone(), golden.get("grad.model.norm.weight").data.clone())];
    let checks = gradients("grad", &ours, &golden, comparison());
    assert_eq!(named(&checks, Check::passes), ["grad.model.norm.weight"]);
    assert!(checks.len() > 30);
}

fn cell(settings: &[&str]) -> Cell {
    let weights = quoted(&fixture("qwen2").display().to_string());
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"qwen2\"\nweights = {weights}\n[train]\nbatch_size = 2\n\
         seq_len = 24\noptimizer = {{ kind = \"adamw\" }}\n"
    );
    let settings: Vec<_> = settings.iter().map(|setting| setting.parse().unwrap()).collect();
    Recipe::parse(&Source { path: "t.toml".into(), text }.with(&settings)).unwrap().cells.remove(0)
}

fn comparison() -> Comparison {
    Comparison::new(&cell(&[]), None)
}

/// A slot that is refilled before its block is computed is noticed, in the logits and in gradients.
#[test]
fn a_slot_refilled_too_early_fails() {
    let golden = Golden::load(&fixture("qwen2")).unwrap();
    let reference = Reference::read(&golden, 512, 128, None).unwrap();
    let cell = cell(&["offload.strategy=overlap", "offload.buffers=2"]);
    for early in [false, true] {
        let mut training = Training::<Decoder>::new(&cell, reference.feed(&cell), STEPS);
        if early {
            training.damage(Some(Damage::StaleSlot));
        }
        let checks = compare(training, &cell, &golden, &reference, comparison());
        let failed = |part: &str| checks.iter().any(|c| c.name.contains(part) && !c.passes());
        assert_eq!([failed("logits"), failed("grad.model.layers")], [early; 2], "{}", table(&checks));
    }
}

/// A micro-batch that is lost, or weighs what it should not, is noticed.
#[test]
fn a_lost_micro_batch_fails() {
    let golden = Golden::load(&fixture("qwen2")).unwrap();
    let reference = Reference::read(&golden, 512, 128, None).unwrap();
    let (two, three) = (cell(&["train.accumulation_steps=2"]), cell(&["train.accumulation_steps=3"]));
    for (steps, passes) in [(&three, true), (&two, false)] {
        // The batches are those of `steps`, weighed for three.
        let mut batches = reference.feed(&three).next();
        batches.truncate(steps.train.accumulation_steps);
        let training = Training::<Decoder>::new(&three, Box::new(Given(batches)), STEPS);
        let checks = compare(training, &three, &golden, &reference, comparison());
        let of = |part: &str| checks.iter().filter(|c| c.name.starts_with(part)).all(Check::passes);
        assert_eq!([of("loss"), of("grad.model.layers.0.mlp")], [passes; 2], "{}", table(&checks));
    }
}

struct Given(Vec<LmBatch>);

impl Feed<LmBatch> for Given {
    fn next(&mut self) -> Vec<LmBatch> {
        self.0.clone()
    }
}

/// An update that is left out is noticed in every precision.
#[test]
fn a_skipped_update_fails() {
    let golden = Golden::load(&fixture("qwen2")).unwrap();
    for compute in ["fp32", "fp16", "bf16"] {
        let comparison = Comparison::new(&cell(&[&format!("precision.compute={compute}")]), None);
        for (parameter, reference) in golden.under("step3") {
            let last =
                vec![(parameter.to_string(), golden.get(&format!("step3_grad.{parameter}")).data.clone())];
            let named = |values: Vec<f64>| vec![(parameter.to_string(), values)];
            // One step of three is missing.
            let before: Vec<f64> = reference.data.iter().map(|value| value - 3e-3).collect();
            let after: Vec<f64> = reference.data.iter().map(|value| value - 1e-3).collect();
            let passes = |after: Vec<f64>| {
                let changes = Changes { before: named(before.clone()), after: named(after), last: &last };
                changes.compare(parameter, reference, &golden, comparison).unwrap().passes()
            };
            assert!(passes(reference.data.clone()) && !passes(after), "{parameter}");
        }
    }
}

/// A gradient that is lost, or belongs to another parameter, is noticed.
#[test]
fn a_zeroed_gradient_fails() {
    let golden = Golden::load(&fixture("qwen2")).unwrap();
    for (name, reference) in golden.under("grad") {
        let zeroed = vec![0.0; reference.data.len()];
        assert!(!comparison().check(name, Kind::ModelGradient, &zeroed, reference).passes(), "{name}");
    }
}

//! References that pass, settings that keep them or are said not to, and damage that is noticed: in weights,
//! gradients, slots and references.

use std::path::PathBuf;

use burn::tensor::DType;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::*;
use crate::recipe::{Recipe, Source};
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
            assert_eq!(compared, count + usize::from(clips), "{name} {settings:?}: every quantity is compared");
        }
    }
}

/// Clipping, another rate and another optimizer change what comes after an update, and nothing before it.
#[test]
fn what_settings_change_is_named_and_not_compared() {
    for (settings, reason) in [
        (&["train.clip_norm=0.5"][..], "train.clip_norm = 0.5 clips gradients"),
        (&["train.clip_norm=0.5", "offload.strategy=overlap", "train.accumulation_steps=2"], "train.clip_norm"),
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
        assert_eq!(left, ["losses of 3 steps", "step3_grad.*, 40 tensors", "step3.*, 40 tensors"], "{settings:?}");
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
    for name in ["qwen2", "gpt2"] {
        for settings in [&bf16[..], &half, &dynamic, &small, &large] {
            let checks = verified(name, settings);
            assert!(passes(&checks), "{name} {settings:?}\n{}", table(&checks));
            let steps = named(&checks, |check| check.is_compared() && check.name.contains("step3."));
            assert!(steps.len() >= 38, "{name} {settings:?}: {steps:?}");
            let skipped = named(&checks, |check| check.name.contains("precision.scaler skipped"));
            assert_eq!(skipped.is_empty(), settings != large, "{name} {settings:?}");
        }
    }
    let stuck = verified("gpt2", &[&half[..], &["precision.scaler={kind=\"static\", scale=1e30}"]].concat());
    assert_eq!(named(&stuck, |check| !check.passes()), ["loss, gradients and steps"]);
}

#[test]
fn settings_that_a_reference_does_not_have_are_refused() {
    for (setting, part) in [
        ("train.batch_size=4", "`train.batch_size` is fixed by this reference"),
        ("data.corpus=generated", "is fixed by this reference"),
        ("measure.steps=3", "`measure.steps` is fixed by this reference"),
        ("train.batchsize=4", "unknown key `batchsize`"),
        ("precision.compute=int3", "unknown value `int3`"),
        ("offload.activations=host", "keep more than their input"),
        ("model.hidden_size=32", "contradicts"),
    ] {
        let error = format!("{:?}", verify(&fixture("gpt2"), &options(&[setting])).unwrap_err());
        assert!(error.contains(part), "{setting}: {error}");
    }
}

/// A copy of a fixture whose `golden.safetensors` is changed: a tensor's type, shape and bytes, by name.
fn changed(name: &str, change: impl Fn(&str, &mut (Dtype, Vec<usize>, Vec<u8>))) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(name).join(file), folder.path().join(file)).unwrap();
    }
    let bytes = std::fs::read(fixture(name).join("golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors: Vec<(String, (Dtype, Vec<usize>, Vec<u8>))> = file
        .iter()
        .map(|(name, view)| {
            let mut tensor = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            change(name, &mut tensor);
            (name.to_string(), tensor)
        })
        .collect();
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("golden.safetensors"), bytes).unwrap();
    folder
}

fn stored_as(dtype: DType, (kind, shape, bytes): &mut (Dtype, Vec<usize>, Vec<u8>)) {
    let data = burn::tensor::TensorData::from_bytes_vec(bytes.clone(), shape.clone(), DType::F32);
    *bytes = data.convert_dtype(dtype).as_bytes().to_vec();
    *kind = if dtype == DType::BF16 { Dtype::BF16 } else { Dtype::F16 };
}

/// Gradients in bf16 are compared with what bf16 holds of them, and wrong ones fail.
#[test]
fn references_in_few_bits_are_read() {
    for dtype in [DType::BF16, DType::F16] {
        let gradients = |name: &str| name.starts_with("grad.");
        let rounded = changed("gpt2", |name, tensor| {
            if gradients(name) {
                stored_as(dtype, tensor);
            }
        });
        let checks = verify(rounded.path(), &options(&[])).unwrap();
        assert!(passes(&checks), "{dtype:?}\n{}", table(&checks));
        let compared = named(&checks, |check| check.is_compared() && gradients(&check.name));
        assert_eq!(compared.len(), 40);
        let wrong = changed("gpt2", |name, tensor| {
            if gradients(name) {
                stored_as(dtype, tensor);
            }
            if name == "grad.transformer.ln_f.weight" {
                // A bit of the exponent.
                tensor.2.chunks_exact_mut(2).for_each(|value| value[1] ^= 0x04);
            }
        });
        let checks = verify(wrong.path(), &options(&[])).unwrap();
        assert_eq!(named(&checks, |check| !check.passes()), ["grad.transformer.ln_f.weight"]);
    }
    let ids = changed("gpt2", |name, (kind, _, bytes)| {
        if name == "input_ids" {
            *kind = Dtype::I32;
            *bytes = bytes.chunks_exact(8).flat_map(|id| id[..4].to_vec()).collect();
        }
    });
    assert!(passes(&verify(ids.path(), &options(&[])).unwrap()));
}

#[test]
fn what_cannot_be_compared_fails_by_its_name() {
    let folder = changed("gpt2", |name, (kind, shape, bytes)| match name {
        "grad.transformer.ln_f.weight" => {
            // Of another size.
            bytes.truncate(4 * 12);
            *shape = vec![12];
        }
        "grad.transformer.ln_f.bias" => {
            (*kind, *shape) = (Dtype::U8, vec![bytes.len()]);
        }
        _ => (),
    });
    std::fs::write(folder.path().join("golden.json"), "{}").unwrap();
    let checks = verify(folder.path(), &options(&[])).unwrap();
    assert!(!passes(&checks));
    let failed = named(&checks, |check| !check.passes());
    assert_eq!(
        failed,
        [
            "grad.transformer.ln_f.weight",
            "step3.transformer.ln_f.bias",
            "step3.transformer.ln_f.weight",
            "grad.transformer.ln_f.bias",
            "golden.json"
        ]
    );
    let text = table(&checks);
    for part in ["FAIL: grad.transformer.ln_f.bias: its values are U8", "has the shape [12], and ours has 48"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_reference_that_is_not_the_models_is_an_error() {
    let ids = |value: i64| {
        changed("gpt2", move |name, (_, _, bytes)| {
            if name == "input_ids" {
                bytes[..8].copy_from_slice(&value.to_le_bytes());
            }
        })
    };
    let error = |folder: &tempfile::TempDir, part: &str| {
        let error = format!("{:?}", verify(folder.path(), &options(&[])).unwrap_err());
        assert!(error.contains(part), "{error}");
    };
    error(&ids(512), "input_ids of the reference holds 512, and the model has the 512 tokens");
    error(&ids(-1), "input_ids of the reference holds -1");
    let reshaped = |which: &'static str, to: Vec<usize>| {
        changed("gpt2", move |name, (_, shape, _)| {
            if name == which {
                shape.clone_from(&to);
            }
        })
    };
    error(&reshaped("input_ids", vec![48]), "must be [sequences, tokens]");
    error(&reshaped("labels", vec![4, 12]), "labels of the reference have the shape [4, 12]");
    error(&reshaped("generate.prompt", vec![6, 1]), "must be a row of generate.prompt and more");
    let damaged = changed("gpt2", |_, _| ());
    std::fs::write(damaged.path().join("config.json"), "{").unwrap();
    error(&damaged, "config.json is not a JSON object");
    std::fs::remove_file(damaged.path().join("config.json")).unwrap();
    error(&damaged, "config.json");
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
    let reference = Reference::read(&golden, 512, 128).unwrap();
    let cell = cell(&["offload.strategy=overlap", "offload.buffers=2"]);
    for early in [false, true] {
        let training = Training::<Llama>::new(&cell, reference.steps(&cell), STEPS);
        if early {
            LanguageNetwork::offloaded(training.network()).expect("blocks are on the host").refill_early();
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
    let reference = Reference::read(&golden, 512, 128).unwrap();
    let (two, three) = (cell(&["train.accumulation_steps=2"]), cell(&["train.accumulation_steps=3"]));
    for (steps, passes) in [(&three, true), (&two, false)] {
        // The batches are those of `steps`, weighed for three.
        let mut batches = reference.steps(&three).next();
        batches.truncate(steps.train.accumulation_steps);
        let training = Training::<Llama>::new(&three, Box::new(Given(batches)), STEPS);
        let checks = compare(training, &three, &golden, &reference, comparison());
        let of = |part: &str| checks.iter().filter(|c| c.name.starts_with(part)).all(Check::passes);
        assert_eq!([of("loss"), of("grad.model.layers.0.mlp")], [passes; 2], "{}", table(&checks));
    }
}

struct Given(Vec<crate::model::language::LmBatch>);

impl crate::model::Steps<crate::model::language::LmBatch> for Given {
    fn next(&mut self) -> Vec<crate::model::language::LmBatch> {
        self.0.clone()
    }

    fn held_out(&mut self) -> Option<crate::model::language::LmBatch> {
        None
    }
}

/// An update that is left out is noticed in every precision.
#[test]
fn a_skipped_update_fails() {
    let golden = Golden::load(&fixture("qwen2")).unwrap();
    for compute in [Compute::Fp32, Compute::Fp16, Compute::Bf16] {
        let comparison = Comparison { compute, ..comparison() };
        for (parameter, reference) in golden.under("step3") {
            let last = vec![(parameter.to_string(), golden.get(&format!("step3_grad.{parameter}")).data.clone())];
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

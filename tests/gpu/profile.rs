//! The operators that kernels are recorded with.

use std::collections::BTreeSet;
use std::path::PathBuf;

use burn::tensor::{DType, Distribution, Tensor};
use runner::common::Compute;
use runner::device::Feature;
use runner::device::cuda::Recording;
use runner::device::trace::{ActivityKind, Profile, read_chrome_trace};
use runner::measure::Phase;
use runner::ops::dense::{Arithmetic, WeightLayout, dense};
use runner::ops::gated_mlp::GatedMlp;
use runner::ops::mean_square::mean_square;
use runner::ops::norm::norm;
use runner::ops::{Level, Operator};
use runner::recipe::{Recipe, Source};
use runner::train::train_alone;

use crate::{lacks, on_gpu};

/// A norm, a linear layer, SwiGLU and a loss: in the order of the device's time their kernels name the operators in
/// the order in which they were called, and backward in the opposite one.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn kernels_name_the_operators_that_issued_them() {
    on_gpu(|gpu, checks| {
        let device = gpu.burn().autodiff();
        let random = |shape: [usize; 2]| {
            let normal = Distribution::Normal(0.0, 0.05);
            Tensor::<2>::random(shape, normal, (&device, DType::BF16)).require_grad()
        };
        let (n, h, i) = (512, 256, 768);
        let (x, w) = (random([n, h]), random([h, h]));
        let [gate, up, down] = [[h, i], [h, i], [i, h]].map(random);
        let scale = Tensor::<1>::ones([h], (&device, DType::BF16)).require_grad();
        let target = random([n, h]).inner();
        let arithmetic = Arithmetic::of(Compute::Bf16);
        let layout = WeightLayout::InOut;
        let step = || {
            let y = norm(x.clone(), scale.clone(), None, 1e-6, DType::BF16, Operator::Custom);
            let y = dense(y, w.clone(), None, layout, arithmetic);
            let mlp = GatedMlp::swiglu(layout, Level::Full, arithmetic);
            let y = mlp.forward(y, [gate.clone(), up.clone(), down.clone()], Operator::Custom);
            drop(mean_square(y, target.clone()).backward());
        };
        // Kernels are compiled, and algorithms chosen, at their first launch.
        step();
        let recording = match Recording::start(gpu) {
            Ok(recording) => recording,
            Err(reason) => return checks.verdict("recording", false, &reason),
        };
        (0..3).for_each(|_| step());
        let activities = recording.stop();
        let kernels: Vec<_> = activities.iter().filter(|a| a.kind == ActivityKind::Kernel).collect();
        let mut operators: Vec<&str> = kernels.iter().filter_map(|a| a.operator.as_deref()).collect();
        operators.dedup();
        let once = ["norm", "linear", "swiglu", "loss", "swiglu", "linear", "norm"];
        // A step ends with the operator that the next one begins with.
        let mut expected = [once; 3].concat();
        expected.dedup();
        checks.verdict("operators in their order", operators == expected, &format!("{operators:?}"));
        let nameless: Vec<&str> =
            kernels.iter().filter(|a| a.operator.is_none()).map(|a| a.name.as_str()).collect();
        // Burn's own: the gradient that backward starts from.
        let figures = format!("{} of {}: {nameless:?}", nameless.len(), kernels.len());
        checks.verdict("kernels without an operator", nameless.len() <= 3, &figures);
    });
}

const QWEN: &str = r#"title = "a step"
device = "cuda:0"
[model]
kind = "qwen2"
preset = "qwen2.5-0.5b"
[precision]
compute = "bf16"
[train]
batch_size = 4
seq_len = 512
optimizer = { kind = "adamw", lr = 1e-5 }
[measure]
warmup = 2
steps = 3
"#;

/// The trace of a language model's step: who issued its kernels, by phase. `RUNNER_TRACED=folder` keeps it there.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_step_of_a_language_model_by_operator() {
    on_gpu(|_, checks| {
        let text = if lacks(Feature::Bf16Products) { QWEN.replace("bf16", "fp16") } else { QWEN.into() };
        let source = Source { path: "qwen.toml".into(), text };
        let cell = Recipe::parse(&source).expect("a valid recipe").cells.remove(0);
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let folder = std::env::var_os("RUNNER_TRACED").map_or(temporary.path().into(), PathBuf::from);
        let path = folder.join("trace.json.gz");
        let measured = train_alone(&cell, Some(&path), false).expect("it trains");
        let file = std::fs::read(path).expect("a trace");
        let profile = Profile::new(&read_chrome_trace(&file).expect("a whole one")).expect("a step");
        for part in &profile.parts {
            let name = part.operator.as_deref().unwrap_or("other kernels");
            println!("     {:?} {name}: {} in {:.3} ms", part.phase, part.kernels, part.time as f64 * 1e-6);
        }
        println!(
            "     idle {:?}; step {:.2} ms, measured {:.2}",
            profile.idle,
            profile.span as f64 * 1e-6,
            measured.step.median * 1e3
        );
        let time = |named: bool| -> u64 {
            let parts = profile.parts.iter().filter(|part| part.operator.is_some() == named);
            parts.map(|part| part.time).sum()
        };
        let share = time(true) as f64 / (time(true) + time(false)) as f64;
        checks.verdict("kernel time of operators", share > 0.97, &format!("{:.1} %", 100.0 * share));
        let of = |phase| -> BTreeSet<&str> {
            let parts = profile.parts.iter().filter(|part| part.phase == Some(phase));
            parts.filter_map(|part| part.operator.as_deref()).collect()
        };
        let operators = ["attention", "embedding", "linear", "loss", "norm", "rope", "swiglu"];
        for phase in [Phase::Forward, Phase::Backward] {
            let missing: Vec<_> = operators.iter().filter(|name| !of(phase).contains(**name)).collect();
            // The residual stream is added by the products before it, and backward hands its gradient on.
            let fused = !of(phase).contains("residual");
            checks.verdict(
                &format!("operators of {phase}"),
                missing.is_empty() && fused,
                &format!("missing: {missing:?}, no kernels of residual: {fused}"),
            );
        }
        checks.verdict(
            "the update",
            of(Phase::Optimizer).contains("update"),
            &format!("{:?}", of(Phase::Optimizer)),
        );
    });
}

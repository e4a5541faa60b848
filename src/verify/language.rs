//! A language model against what PyTorch computes from the same weights: logits, loss, every
//! gradient, three AdamW steps and the greedy continuation.

use std::path::Path;

use burn::tensor::{Gradients, Tensor};
use miette::{Result, miette};

use super::{Check, Golden, Kind, Options, tolerance};
use crate::device::dtype;
use crate::model::config::{Architecture, WeightsFrom, from_hugging_face};
use crate::model::generate::{Choice, Request, generate};
use crate::model::language::{Computation, Gpt2, LanguageNetwork, Llama, LmBatch, Tokens};
use crate::model::named::{self, Named};
use crate::model::source::Source;
use crate::offload::{Blocks, Placement};
use crate::ops::dense::Arithmetic;
use crate::ops::{Level, Ops};
use crate::optim::host::Work;
use crate::optim::{AdamW, GradientSet, Optimizer, OptimizerConfig, StepSize};
use crate::recipe::Compute;

/// Whether the reference is a language model's: token ids, and what was computed from them.
pub fn knows(golden: &Golden) -> bool {
    golden.has(&["input_ids"]) && (golden.has(&["logits"]) || golden.has(&["loss"]))
}

/// Gradients below this are rounding alone: AdamW divides by their size, so the parameter they move is
/// not determined.
const ROUNDING: f64 = super::ROUNDING_LEVEL;

/// Of the largest gradient of its tensor. fp32 rounds a gradient by about 1e-6 of that, which for a
/// smaller one is more than 1e-3 of itself, and AdamW's step follows: such elements are held to the
/// absolute bound alone.
const SMALL: f64 = 1e-3;

/// Compares everything the reference holds.
///
/// # Errors
/// When the folder's model cannot be read.
pub fn verify(folder: &Path, golden: &Golden, options: &Options) -> Result<Vec<Check>> {
    let architecture = from_hugging_face(folder).map_err(|e| miette!("{e}"))?;
    let levels = options.level.map_or_else(|| vec![Level::Keep, Level::Full], |level| vec![level]);
    let mut checks = Vec::new();
    for level in levels {
        let computation =
            Computation { arithmetic: Arithmetic::of(options.compute), ops: Ops::default(), level };
        let from = WeightsFrom::Folder(folder.to_path_buf());
        let source = Source::open(&from, &architecture.tensors(), options.device, dtype(options.compute))
            .map_err(|e| miette!("{e}"))?;
        let generated = golden.find("generate.tokens").map_or(0, <[f64]>::len);
        let positions = golden.get("input_ids").shape[1].max(generated);
        let placement = Some(placement(options));
        let quantities = match &architecture {
            Architecture::Qwen2(config) | Architecture::Llama(config) => {
                compare(Llama::new(config, positions, &source, computation, placement), golden, options)
            }
            Architecture::Gpt2(config) => {
                compare(Gpt2::new(config, positions, &source, computation, placement), golden, options)
            }
        };
        let label = format!("level {level}");
        checks.extend(
            quantities.into_iter().map(|check| Check { name: format!("{label}: {}", check.name), ..check }),
        );
        // GPT-2's MLP keeps the same whatever the level.
        if matches!(architecture, Architecture::Gpt2(_)) {
            break;
        }
    }
    Ok(checks)
}

fn placement(options: &Options) -> Placement {
    Placement { offload: options.offload, device: options.device, accumulates: false }
}

fn compare<N: LanguageNetwork>(network: N, golden: &Golden, options: &Options) -> Vec<Check> {
    let adamw = OptimizerConfig::AdamW(AdamW::default());
    let mut optimizer = Optimizer::new(&adamw, options.offload.optimizer, options.device);
    optimizer.adopt(&network, network.offloaded());
    let device = options.device.burn();
    let ids = golden.get("input_ids");
    let values: Vec<u32> = ids.data.iter().map(|id| *id as u32).collect();
    let labels = if golden.has(&["labels"]) { golden.get("labels") } else { ids };
    let labels: Vec<i64> = labels.data.iter().map(|label| *label as i64).collect();
    let batch = LmBatch::new(Tokens::new(&values, ids.shape[0], &device), &labels);
    let check = |name: &str, kind: Kind, ours: &[f64], reference: &[f64]| {
        let mut allowed = tolerance(kind, options.compute, options.device);
        if let Some(atol) = options.atol {
            (allowed.absolute, allowed.of_largest) = (atol, 0.0);
        }
        Check::new(name.to_string(), ours, reference, allowed)
    };

    let mut checks = Vec::new();
    if golden.has(&["logits"]) {
        let hidden = network.hidden(&batch.tokens, None).inner();
        let logits = list(network.logits(hidden));
        checks.push(check("logits", Kind::Logits, &logits, &golden.get("logits").data));
    }
    let loss = network.loss(&batch);
    if golden.has(&["loss"]) {
        checks.push(check("loss", Kind::Loss, &list(loss.clone().inner()), &golden.get("loss").data));
    }
    if golden.names().iter().any(|name| name.starts_with("grad.")) {
        checks.extend(gradients("grad", &all_gradients(&network, &loss.backward()), golden, &check));
        if let Some(blocks) = network.offloaded() {
            blocks.discard_gradients();
        }
    }
    checks.extend(continuation(&network, golden, options));
    // Half-precision weights cannot hold what a step of 1e-3 · the moments' ratio changes.
    if matches!(options.compute, Compute::Fp32 | Compute::Tf32) && golden.has(&["losses"]) {
        checks.extend(training(network, optimizer, &batch, golden, &check));
    }
    checks
}

/// Every gradient that the reference holds under `prefix`; one that we do not have fails.
fn gradients(
    prefix: &str,
    ours: &Named,
    golden: &Golden,
    check: &impl Fn(&str, Kind, &[f64], &[f64]) -> Check,
) -> Vec<Check> {
    let of_prefix = |name: &&str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
    let compare = |name: &str| {
        let reference = golden.find(name).expect("one of its names");
        let ours = ours.iter().find(|(ours, _)| name[prefix.len() + 1..] == **ours);
        let missing = vec![f64::NAN; reference.len()];
        let ours = ours.map_or(&missing, |(_, values)| values);
        check(name, Kind::ModelGradient, ours, reference).of_rounding(reference)
    };
    golden.names().into_iter().filter(of_prefix).map(compare).collect()
}

/// Losses of three AdamW steps on one batch, and gradients and parameters at the third.
fn training<N: LanguageNetwork>(
    mut network: N,
    mut optimizer: Optimizer,
    batch: &LmBatch,
    golden: &Golden,
    check: &impl Fn(&str, Kind, &[f64], &[f64]) -> Check,
) -> Vec<Check> {
    let mut losses = Vec::new();
    let mut third: Named = Vec::new();
    for step in 0..3 {
        let loss = network.loss(batch);
        losses.extend(list(loss.clone().inner()));
        // Gradients that are compared must not become weights before.
        if let Some(blocks) = network.offloaded().filter(|_| step < 2) {
            blocks.update_on_arrival(Work::step(&StepSize::FULL));
        }
        let gradients = loss.backward();
        if step == 2 {
            third = all_gradients(&network, &gradients);
        }
        let mut set = GradientSet::default();
        set.add(&network, gradients);
        if let Some(blocks) = network.offloaded() {
            blocks.update(&mut optimizer, &StepSize::FULL);
        }
        network = optimizer.step(network, set, &StepSize::FULL);
    }
    let mut checks = vec![check("losses of three steps", Kind::Loss, &losses, &golden.get("losses").data)];
    checks.extend(gradients("step3_grad", &third, golden, check));
    for ((name, ours), (_, our_third)) in all_parameters(&network).into_iter().zip(&third) {
        let of = |what: &str| golden.find(&format!("{what}.{name}"));
        let (Some(reference), Some(first), Some(third)) = (of("step3"), of("grad"), of("step3_grad")) else {
            continue;
        };
        let above = |bound: f64| {
            // A row of the embedding that no token reads has no gradient on either side.
            let absent = |i: usize| first[i] == 0.0 && third[i] == 0.0 && our_third[i] == 0.0;
            move |i: &usize| absent(*i) || (first[*i].abs() >= bound && third[*i].abs() >= bound)
        };
        let name = format!("step3.{name}");
        let compared = |keep: &dyn Fn(&usize) -> bool| {
            let kept: Vec<usize> = (0..ours.len()).filter(keep).collect();
            let pick = |values: &[f64]| kept.iter().map(|i| values[*i]).collect::<Vec<f64>>();
            check(&name, Kind::Parameter, &pick(&ours), &pick(reference))
        };
        let largest = first.iter().chain(third).fold(0.0f64, |m, g| m.max(g.abs()));
        let relative = compared(&above(ROUNDING.max(SMALL * largest))).relative;
        let left_out = (0..ours.len()).filter(|i| !above(ROUNDING)(i)).count();
        checks.push(Check { relative, left_out, ..compared(&above(ROUNDING)) });
    }
    checks
}

/// The greedy continuation: the number of tokens that differ, which must be none.
fn continuation<N: LanguageNetwork>(network: &N, golden: &Golden, options: &Options) -> Option<Check> {
    if !golden.has(&["generate.prompt", "generate.tokens"]) || options.compute != Compute::Fp32 {
        return None;
    }
    let tokens = |name: &str| golden.get(name).data.iter().map(|id| *id as u32).collect::<Vec<u32>>();
    let (prompt, expected) = (tokens("generate.prompt"), tokens("generate.tokens"));
    let request = Request { tokens: expected.len() - prompt.len(), choice: Choice::Greedy, end: None };
    let ours = generate(network, &[prompt], &request, &options.device.burn()).remove(0);
    let differing: Vec<f64> = ours.iter().zip(&expected).map(|(a, b)| f64::from(u8::from(a != b))).collect();
    let none = super::Tolerance { absolute: 0.0, of_largest: 0.0, relative: 0.0 };
    let name = format!("greedy continuation, {} tokens", request.tokens);
    Some(Check::new(name, &differing, &vec![0.0; differing.len()], none))
}

/// Those of the module, and those of the blocks on the host.
fn all_gradients<N: LanguageNetwork>(network: &N, gradients: &Gradients) -> Named {
    let offloaded = network.offloaded().map(Blocks::gradients);
    named::gradients(network, gradients).into_iter().chain(offloaded.into_iter().flatten()).collect()
}

/// As [`all_gradients`].
fn all_parameters<N: LanguageNetwork>(network: &N) -> Named {
    let offloaded = network.offloaded().map(Blocks::parameters);
    named::parameters(network).into_iter().chain(offloaded.into_iter().flatten()).collect()
}

fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

#[cfg(test)]
#[path = "language_tests.rs"]
mod tests;

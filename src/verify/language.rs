//! A language model against what PyTorch computes from the same weights: logits, loss, every
//! gradient, three AdamW steps and the greedy continuation. The steps are those that `runner run` times.

use std::path::Path;

use burn::tensor::{DType, Tensor};
use miette::{Result, miette};

use super::adapter;
use super::changes::{Changes, find};
use super::check::Comparison;
use super::reference::{CONTINUATION, Reference};
use super::rounding;
use super::settings::{Variant, as_source, quoted, variants};
use super::undetermined;
use super::updates::{self, Observed, STEPS};
use super::{Check, Golden, Kind, Options, Outcome, ReferenceTensor, Tolerance};
use crate::common::Compute;
use crate::model::config::from_hugging_face;
use crate::model::generate::{Choice, Request, generate};
use crate::model::language::{Decoder, DecoderSizes};
use crate::ops::autocast::autocast;
use crate::params::named::{Named, wide};
use crate::params::table::Tuning;
use crate::params::weights::Weights;
use crate::recipe::{Cell, Recipe};
use crate::train::Training;

/// Settings under which at least logits, loss and gradients are the reference's.
const VERIFIED: [&str; 11] = [
    "device",
    "precision",
    "checkpoint",
    "ops",
    "offload",
    "data",
    "train.accumulation_steps",
    "train.clip_norm",
    "train.optimizer",
    "train.schedule",
    "train.sync_each_step",
];

/// What names of a parameter's values begin with: its gradient, its gradient at the last step, and itself
/// after that step.
const OF_PARAMETERS: [&str; 3] = ["grad", "step3_grad", "step3"];

/// Whether there is a quantity of this name.
pub fn knows(golden: &Golden, name: &str) -> bool {
    let of_parameter = |prefix: &&str| name.strip_prefix(*prefix).is_some_and(|rest| rest.starts_with('.'));
    ["input_ids", "labels", "logits", "loss", "losses"].contains(&name)
        || OF_PARAMETERS.iter().chain(&[adapter::FIRST]).any(of_parameter)
        || (CONTINUATION.contains(&name) && (golden.has(&CONTINUATION) || is_of_pairs(golden)))
}

/// Whether its sequences are sources and targets: they have lengths of their own, or generation begins without a prompt.
fn is_of_pairs(golden: &Golden) -> bool {
    golden.has(&CONTINUATION[1..]) && !golden.has(&CONTINUATION[..1])
}

/// Compares everything the reference holds.
///
/// # Errors
/// When the folder's model or its batch cannot be read, or settings do not go with them.
pub fn verify(folder: &Path, golden: &Golden, options: &Options) -> Result<Vec<Check>> {
    let model = from_hugging_face(folder).map_err(|e| miette!("{e}"))?;
    let architecture = model.language().expect("a language model").architecture();
    let golden = &golden.with_head(architecture.head.name);
    let start = architecture.encoder.map(|encoder| encoder.start);
    let DecoderSizes { vocab_size: vocab, max_positions: positions, gated, tied, .. } =
        model.decoder().expect("a language model");
    let table = model.table(DType::F32, &Tuning::default());
    let checked = |weights: Weights| weights.check(&table.expect("a language model"), tied);
    Weights::open(folder).and_then(checked).map_err(|e| miette!("{e}"))?;
    let reference = Reference::read(golden, vocab, positions, start)?;
    let tuning = adapter::section(folder).map_err(|e| miette!("{e}"))?;
    // A folder may be called `random`, which as weights means others.
    let weights = quoted(&Path::new(".").join(folder).display().to_string());
    let mut recipe = format!(
        "title = \"reference\"\n[model]\nkind = \"{}\"\nweights = {weights}\n[train]\nbatch_size = {}\n\
         seq_len = {}\noptimizer = {{ kind = \"adamw\" }}\n{tuning}",
        model.kind().expect("a language model"),
        reference.batch,
        reference.positions(),
    );
    let is_set = options.settings.iter().any(|s| s.concerns("checkpoint.level") || s.concerns("ops.swiglu"));
    // GPT-2's MLP keeps the same whatever the level, and so does one that is no SwiGLU operator.
    let original = Recipe::parse_finished(&as_source(recipe.clone()), false)?;
    if !is_set && gated && !original.cells[0].tuning().opens_swiglu() {
        recipe += "[grid]\n\"checkpoint.level\" = [0, 1]\n";
    }
    // Virtual tokens may predict too, and their logits are not among the reference's.
    let virtual_ = original.cells[0].tuning().virtual_tokens.is_some();
    let off = inexactness(golden, &reference, vocab).filter(|_| !virtual_).unwrap_or(0.0);
    let mut checks = Vec::new();
    for Variant { label, cell } in variants(recipe, &VERIFIED, &options.settings)? {
        let comparison = Comparison::new(&cell, options.atol).with_reference(off);
        let feed = reference.feed(&cell);
        let compared = compare(Training::new(&cell, feed, STEPS), &cell, golden, &reference, comparison);
        let compared = rounding::widened(compared, &cell, &reference)
            .and_then(|compared| undetermined::widened(compared, &cell, golden, &reference))
            .map_err(|e| miette!("cannot write weights into a temporary folder (TMPDIR): {e}"))?;
        checks.extend(compared.into_iter().map(|check| check.labelled(&label)));
    }
    Ok(checks)
}

/// How far the reference's loss is from the one of its own logits in f64.
fn inexactness(golden: &Golden, reference: &Reference, vocab: usize) -> Option<f64> {
    let (logits, loss) = (&golden.find("logits")?.data, golden.find("loss")?.data.first()?);
    let whole = logits.len() == reference.batch * reference.sequence * vocab;
    whole.then(|| (reference.loss_of(logits) - loss).abs())
}

/// `training` has made no step.
fn compare(
    mut training: Training<'_, Decoder>,
    cell: &Cell,
    golden: &Golden,
    reference: &Reference,
    comparison: Comparison,
) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(expected) = golden.find("logits") {
        let ours = logits(training.network(), cell, reference);
        checks.push(comparison.check("logits", Kind::Logits, &ours, expected));
    }
    checks.extend(adapter::first_values(&training.parameters(), cell, golden));
    let continuation = continuation(training.network(), cell, reference);
    // Steps after the first are for values after updates alone, and of a large model they take long.
    let updated = golden.has(&["losses"]) || OF_PARAMETERS[1..].iter().any(|p| !golden.under(p).is_empty());
    let observed = match updates::observe(&mut training, if updated { STEPS } else { 1 }) {
        Ok(observed) => observed,
        Err(reason) => {
            checks.push(Check::failed("loss, gradients and steps", reason));
            return checks;
        }
    };
    if observed.skipped > 0 {
        let name = format!("{} steps that precision.scaler skipped", observed.skipped);
        checks.push(Check::not_compared(name, "their gradients overflowed, and were computed again"));
    }
    if !cell.data.is_random() {
        let reason = "the reference has a batch of its own, which data.sampler joins";
        checks.push(Check::not_compared("the text of data.corpus", reason));
    }
    if let Some(expected) = golden.find("loss") {
        checks.push(comparison.check("loss", Kind::Loss, &observed.losses[..1], expected));
    }
    if let Some(allowed) = comparison.widened() {
        let reason = format!(
            "the reference's loss differs from the loss of its own logits in float64: it was rounded, and so were the gradients, which must agree to {allowed:.0e} of their norm"
        );
        checks.push(Check::not_compared("the last digits of gradients", reason));
    }
    checks.extend(gradients(OF_PARAMETERS[0], &observed.gradients[0], golden, comparison));
    checks.extend(without_reference(&observed.gradients[0], golden));
    checks.extend(clipping(&observed, cell, golden, comparison));
    checks.extend(continuation);
    if updated {
        checks.extend(after_updates(&mut training, cell, golden, comparison, &observed));
    }
    checks
}

/// [batch, sequence, vocab]
pub fn logits(network: &Decoder, cell: &Cell, reference: &Reference) -> Vec<f64> {
    let _region = autocast(cell.precision.region());
    let tokens = reference.batch(cell).tokens;
    let hidden = network.hidden(&tokens, None).inner();
    let hidden = match tokens.virtual_rows {
        None => hidden,
        Some(rows) => hidden.select(0, rows.others()),
    };
    let logits: Tensor<2> = network.logits(hidden);
    wide(logits.into_data())
}

/// Every gradient that the reference holds under `prefix`; one that we do not have fails.
fn gradients(prefix: &str, ours: &Named, golden: &Golden, comparison: Comparison) -> Vec<Check> {
    let compare = |(parameter, reference): (&str, &ReferenceTensor)| {
        let name = format!("{prefix}.{parameter}");
        match find(ours, parameter) {
            Some(ours) => comparison.check(&name, Kind::ModelGradient, ours, reference),
            None => Check::failed(name, "the model has no gradient of this name"),
        }
    };
    golden.under(prefix).into_iter().map(compare).collect()
}

/// Names the gradients that a reference with gradients lacks.
fn without_reference(ours: &Named, golden: &Golden) -> Option<Check> {
    let known = golden.under(OF_PARAMETERS[0]);
    let lacking = ours.iter().filter(|(name, _)| !known.iter().any(|(known, _)| known == name));
    let lacking: Vec<&str> = lacking.map(|(name, _)| name.as_str()).collect();
    (!known.is_empty() && !lacking.is_empty()).then(|| {
        let name = format!("gradients of {} parameters", lacking.len());
        Check::not_compared(name, format!("the reference has none of {}", lacking.join(", ")))
    })
}

/// The factor by which `train.clip_norm` scales the first step's gradients.
fn clipping(observed: &Observed, cell: &Cell, golden: &Golden, comparison: Comparison) -> Option<Check> {
    let limit = cell.train.clip_norm?;
    let name = "factor that clips the first gradients";
    let reference = golden.under(OF_PARAMETERS[0]);
    if reference.len() != observed.gradients[0].len() {
        return Some(Check::not_compared(name, "without all gradients the reference has no norm of them"));
    }
    let squares = reference.iter().flat_map(|(_, values)| &values.data).map(|g| g * g);
    let expected = (limit / (squares.sum::<f64>().sqrt() + 1e-6)).min(1.0);
    let difference = comparison.difference(Kind::ModelGradient, &observed.clipping[..1], &[expected], &[0.0]);
    Some(Check { name: name.into(), outcome: Outcome::Compared(difference) })
}

/// The greedy continuation: the number of tokens that differ, which must be none.
fn continuation(network: &Decoder, cell: &Cell, reference: &Reference) -> Option<Check> {
    let prompts: Vec<Vec<u32>> = reference.prompts.iter().map(|(prompt, _)| prompt.clone()).collect();
    let (prompt, expected) = reference.prompts.first()?;
    let request = Request { tokens: expected.len() - prompt.len(), choice: Choice::Greedy, ends: Vec::new() };
    let name = format!("greedy continuation, {} tokens", request.tokens);
    let compute = cell.precision.compute;
    if compute != Compute::Fp32 {
        let reason =
            format!("where two tokens are nearly as likely, rounding to {} decides", compute.into_str());
        return Some(Check::not_compared(name, reason));
    }
    let ours = generate(network, &prompts, &request, &|_| false, &cell.device_id().burn());
    // Without a token all differ.
    let ours = ours.unwrap_or_else(|_| vec![vec![u32::MAX; expected.len()]; prompts.len()]).concat();
    let expected: Vec<u32> = reference.prompts.iter().flat_map(|(_, tokens)| tokens.clone()).collect();
    let differing: Vec<f64> = ours.iter().zip(&expected).map(|(a, b)| f64::from(u8::from(a != b))).collect();
    Some(Check::new(name, &differing, &vec![0.0; expected.len()], Tolerance::EXACT))
}

/// Losses of the steps, gradients at the last one and what they changed of every parameter.
fn after_updates(
    training: &mut Training<'_, Decoder>,
    cell: &Cell,
    golden: &Golden,
    comparison: Comparison,
    observed: &Observed,
) -> Vec<Check> {
    let name = format!("losses of {STEPS} steps");
    let [_, last, after] = OF_PARAMETERS;
    if let Some(reason) = updates::differ(cell, &observed.clipping) {
        let groups = [last, after].map(|prefix| (format!("{prefix}.*"), golden.under(prefix).len()));
        let losses = (name, usize::from(golden.has(&["losses"])));
        let there = [losses].into_iter().chain(groups).filter(|(_, count)| *count > 0);
        return there
            .map(|(name, count)| match count {
                1 => Check::not_compared(name, reason.clone()),
                _ => Check::not_compared(format!("{name}, {count} tensors"), reason.clone()),
            })
            .collect();
    }
    let mut checks = Vec::new();
    let parameters_after = golden.under(after);
    if golden.has(&["losses"]) || !parameters_after.is_empty() {
        training.begin(STEPS);
        let before = training.parameters();
        match updates::run(training) {
            Err(reason) => checks.push(Check::failed(name, reason)),
            Ok(losses) => {
                let reference = golden.find("losses");
                checks.extend(
                    reference.map(|reference| comparison.check(&name, Kind::Loss, &losses, reference)),
                );
                let after_steps = training.parameters();
                let ours = Changes { before, after: after_steps, last: &observed.gradients[1] };
                let change = |(parameter, reference): (&str, &ReferenceTensor)| {
                    let name = format!("{after}.{parameter}");
                    match ours.compare(parameter, reference, golden, comparison) {
                        Ok(difference) => Check { name, outcome: Outcome::Compared(difference) },
                        Err(reason) => Check::failed(name, reason),
                    }
                };
                checks.extend(parameters_after.into_iter().map(change));
            }
        }
    }
    let place = checks.len().min(1);
    checks.splice(place..place, gradients(last, &observed.gradients[1], golden, comparison));
    checks
}

#[cfg(test)]
#[path = "language_tests.rs"]
mod tests;

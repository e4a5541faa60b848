//! A gradient scaler's trace, `golden.json`: the scale after each step of a given pattern of overflows.

use std::path::Path;

use burn::tensor::Tensor;
use miette::{Result, miette};
use serde::Deserialize;

use super::settings::variants;
use super::{Check, Options, Tolerance};
use crate::precision::GradScaler;

pub const FILE: &str = "golden.json";

/// What `torch.amp.GradScaler` did.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trace {
    init_scale: f64,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: usize,
    /// By step: whether a gradient is infinite.
    overflow: Vec<bool>,
    scale_after: Vec<f64>,
    /// Whether the optimizer stepped.
    stepped: Vec<bool>,
}

/// Replays the trace.
///
/// # Errors
/// A damaged file, or settings that it does not have.
pub fn verify(folder: &Path, options: &Options) -> Result<Vec<Check>> {
    let path = folder.join(FILE);
    let bytes = std::fs::read(&path).map_err(|e| miette!("cannot read {}: {e}", path.display()))?;
    let trace: Trace = serde_json::from_slice(&bytes).map_err(|e| {
        miette!(
            help = "it has init_scale, growth_factor, backoff_factor, growth_interval, and for each step \
                    overflow, scale_after and stepped",
            "{} is not a gradient scaler's trace: {e}",
            path.display()
        )
    })?;
    let Trace { init_scale, growth_factor, backoff_factor, growth_interval, .. } = trace;
    let steps = trace.overflow.len();
    if steps == 0 || [trace.scale_after.len(), trace.stepped.len()] != [steps; 2] {
        return Err(miette!(
            "{} has {steps} steps of overflow, {} of scale_after and {} of stepped: they must be equally many, \
             and one at least",
            path.display(),
            trace.scale_after.len(),
            trace.stepped.len()
        ));
    }
    let recipe = format!(
        "title = \"gradient scaler\"\n[model]\nkind = \"swiglu\"\nhidden_size = 1\nintermediate_size = 1\n\
         num_hidden_layers = 1\n[train]\nbatch_size = 1\nseq_len = 1\noptimizer = {{ kind = \"sgd\", lr = 0.1 }}\n\
         [precision]\ncompute = \"fp16\"\n[precision.scaler]\nkind = \"dynamic\"\ninit_scale = {init_scale:?}\n\
         growth_factor = {growth_factor:?}\nbackoff_factor = {backoff_factor:?}\n\
         growth_interval = {growth_interval}\n"
    );
    let cell = variants(recipe, &["device"], &options.settings)?.remove(0).cell;
    let device = cell.device_id().burn();
    let mut scaler = GradScaler::new(cell.precision.scaler.expect("it is in the recipe"), &device);
    let (mut scales, mut applied) = (Vec::new(), Vec::new());
    for overflow in &trace.overflow {
        let squares = Tensor::from_floats([if *overflow { f32::INFINITY } else { 1.0 }], &device);
        let stats = scaler.update(scaler.unscale(squares, None).applied);
        let stats: Vec<f64> = stats.into_data().iter::<f64>().collect();
        applied.push(stats[0]);
        scales.push(stats[1]);
    }
    let stepped: Vec<f64> = trace.stepped.iter().map(|stepped| f64::from(u8::from(*stepped))).collect();
    let exact = |name, ours: &[f64], theirs: &[f64]| Check::new(name, ours, theirs, Tolerance::EXACT);
    Ok(vec![
        exact(format!("whether each of {steps} steps was applied"), &applied, &stepped),
        exact(format!("scale after each of {steps} steps"), &scales, &trace.scale_after),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Setting;
    use crate::verify::{passes, table};

    fn fixture() -> String {
        std::fs::read_to_string("tests/fixtures/grad_scaler/golden.json").unwrap()
    }

    fn verified(text: &str, settings: &[&str]) -> Result<Vec<Check>> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let settings: Vec<Setting> =
            ["device=cpu"].iter().chain(settings).map(|setting| setting.parse().unwrap()).collect();
        super::super::verify(folder.path(), &Options { settings, atol: None })
    }

    #[test]
    fn every_step_is_pytorchs() {
        let checks = verified(&fixture(), &[]).unwrap();
        assert!(passes(&checks) && checks.len() == 2, "{}", table(&checks));
        let wrong = fixture().replacen("32768.0", "32769.0", 1);
        assert!(!passes(&verified(&wrong, &[]).unwrap()));
        let wrong = fixture().replacen("\"stepped\": [true", "\"stepped\": [false", 1);
        assert!(!passes(&verified(&wrong, &[]).unwrap()));
    }

    #[test]
    fn a_damaged_trace_is_an_error() {
        let error = |text: &str, settings: &[&str], part: &str| {
            let error = verified(text, settings).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        error("{", &[], "is not a gradient scaler's trace");
        error("{\"r\": 4}", &[], "unknown field `r`");
        error(&fixture().replacen("[false, ", "[", 1), &[], "39 steps of overflow");
        error(&fixture().replace("0.5", "1.5"), &[], "does not make the scale smaller");
        error(&fixture(), &["train.clip_norm=1"], "`train.clip_norm` is fixed by this reference");
    }
}

//! `runner verify`: compares what this machine computes with reference values, by value.

mod adapter;
mod changes;
mod check;
mod golden;
mod grad_scaler;
mod language;
mod reference;
mod rounding;
mod settings;
mod swiglu;
mod table;
mod tolerance;
mod undetermined;
mod updates;

use std::path::Path;

use itertools::Itertools;
use miette::{Result, miette};

use crate::common::refusal::{Refusal, unless_refused};
use crate::recipe::Setting;
pub use crate::row::Record;
pub use check::{Check, Outcome, count};
pub use golden::{Golden, ReferenceTensor};
pub use table::{passes, table};
pub use tolerance::{Tolerance, tolerance};

/// How to verify.
#[derive(Clone, Debug)]
pub struct Options {
    /// In place of the reference's own, where its values hold for them: the device too.
    pub settings: Vec<Setting>,
    /// Replaces the table's absolute tolerance.
    pub atol: Option<f64>,
}

/// What a quantity is; the tolerance depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of one operator.
    Output,
    Gradient,
    /// Of a whole language model.
    Logits,
    Loss,
    ModelGradient,
    /// Of a parameter, by optimizer steps.
    Change,
}

#[cfg(test)]
mod pairs_tests;
#[cfg(test)]
mod reference_tests;

/// Compares everything the folder has reference values for; anything else in it fails.
///
/// # Errors
/// When the folder or its values cannot be read, or settings do not go with them.
pub fn verify(folder: &Path, options: &Options) -> Result<Vec<Check>> {
    let trace = folder.join(grad_scaler::FILE).exists();
    if trace && !folder.join(golden::FILE).exists() {
        return grad_scaler::verify(folder, options);
    }
    let golden = Golden::load(folder)?;
    let (mut checks, known): (_, fn(&Golden, &str) -> bool) = if golden.has(&swiglu::NAMES) {
        (swiglu::verify(&golden, options)?, |_, name| swiglu::NAMES.contains(&name))
    } else if reference::is_known(&golden) {
        let checks = unless_refused(|| language::verify(folder, &golden, options));
        (checks.map_err(|Refusal(reason)| miette!("{reason}"))??, language::knows)
    } else {
        return Err(miette!(
            help = "runner verify knows language models (config.json, model.safetensors, and a golden.safetensors with input_ids, labels, logits, loss, grad.*), the SwiGLU operator (x, W, V, U, y, grad_y, dx, dW, dV, dU) and a gradient scaler's golden.json",
            "{} holds no reference values that this version knows; it has: {}",
            folder.display(),
            golden.tensors.keys().join(", ")
        ));
    };
    let unknown = golden.tensors.keys().filter(|name| !known(&golden, name));
    checks.extend(unknown.map(|name| Check::failed(name, "this version knows no quantity of this name")));
    checks.extend(golden.unread.iter().map(|(name, dtype)| {
        Check::failed(
            name,
            format!("its values are {dtype:?}; store them as F32, F64, BF16, F16, I64 or I32"),
        )
    }));
    if trace {
        let unread = || {
            let reason =
                "next to golden.safetensors this version reads the numbers of an adapter's parameters alone";
            vec![Check::failed(grad_scaler::FILE, reason)]
        };
        checks.extend(adapter::checks(folder).unwrap_or_else(unread));
    }
    Ok(checks)
}

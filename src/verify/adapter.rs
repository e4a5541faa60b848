//! What `golden.json` says of an adapter whose values are in `golden.safetensors`: its rank, and how many parameters there
//! are.

use std::fs;
use std::path::Path;

use burn::tensor::DType;
use serde::Deserialize;

use super::grad_scaler::FILE;
use super::{Check, Tolerance};
use crate::model::config::from_hugging_face;
use crate::model::on_language;
use crate::params::peft;
use crate::params::tuning::TuningConfig;

/// The folder of an adapter, in that of its model.
pub const FOLDER: &str = "adapter";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    r: u64,
    alpha: f64,
    trainable: u64,
    total: u64,
}

/// Each number against ours; `None` where the file says something else.
pub fn checks(folder: &Path) -> Option<Vec<Check>> {
    let counts: Counts = serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()?;
    let lora = peft::read(&folder.join(FOLDER)).ok()?;
    let (rank, alpha) = (lora.rank, lora.alpha);
    let tuning = TuningConfig::Lora(lora).tuning(0);
    let model = from_hugging_face(folder).ok()?;
    let table = on_language!(&model, model => model.table(DType::F32, &tuning))?;
    let numbers = [
        ("rank", rank as f64, counts.r as f64),
        ("alpha", alpha, counts.alpha),
        ("trained parameters", table.elements(|entry| entry.trainable) as f64, counts.trainable as f64),
        ("parameters", table.elements(|_| true) as f64, counts.total as f64),
    ];
    let none = Tolerance { absolute: 0.0, of_largest: 0.0, relative: 0.0 };
    Some(numbers.map(|(name, ours, theirs)| Check::new(name.into(), &[ours], &[theirs], none)).into())
}

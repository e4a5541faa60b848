//! A reference with an adapter in its folder: the recipe's section for it, its first values, and what `golden.json` says
//! of it.

use std::fs;
use std::path::Path;

use burn::tensor::DType;
use serde::Deserialize;

use super::changes::find;
use super::grad_scaler::FILE;
use super::settings::quoted;
use super::{Check, Golden, ReferenceTensor, Tolerance};
use crate::model::config::from_hugging_face;
use crate::params::named::Named;
use crate::params::peft;
use crate::params::table::Entry;
use crate::params::tuning::{Lora, Prefix, Prompt, TuningConfig};
use crate::recipe::{Cell, own_parameters};

/// The folder of an adapter, in that of its model.
pub const FOLDER: &str = "adapter";

/// What names of parameters before the first step begin with, which the folder's files hold too.
pub const FIRST: &str = "init";

/// The recipe's section of the adapter in this folder, which drops nothing; empty where there is none.
///
/// # Errors
/// When it cannot be read.
pub fn section(folder: &Path) -> Result<String, String> {
    let packs = packs(folder);
    let folder = folder.join(FOLDER);
    if !folder.exists() {
        return Ok(String::new());
    }
    let method = peft::method(&folder)?;
    let keys = match &method {
        TuningConfig::Lora(lora) => lora_keys(lora),
        TuningConfig::Prompt(Prompt(keys)) | TuningConfig::Prefix(Prefix(keys)) => {
            format!("num_virtual_tokens = {}", keys.num_virtual_tokens)
        }
        _ => unreachable!("no other method has a folder"),
    };
    let method: &str = if packs { "qlora" } else { (&method).into() };
    let folder = quoted(&folder.display().to_string());
    Ok(format!("[tuning]\nmethod = \"{method}\"\n{keys}\nadapter = {folder}\n"))
}

fn lora_keys(lora: &Lora) -> String {
    let Lora { rank, alpha, use_rslora, use_dora, .. } = lora;
    let bias = <&str>::from(lora.bias).to_string();
    let texts = [
        ("target_modules", Some(&lora.target_modules)),
        ("layers_to_transform", lora.layers_to_transform.as_ref()),
        ("rank_pattern", lora.rank_pattern.as_ref()),
        ("alpha_pattern", lora.alpha_pattern.as_ref()),
        ("modules_to_save", lora.modules_to_save.as_ref()),
        ("bias", Some(&bias)),
    ];
    let text = |(key, text): (&str, Option<&String>)| Some(format!("{key} = {}\n", quoted(text?)));
    let texts: String = texts.into_iter().filter_map(text).collect();
    format!("rank = {rank}\nalpha = {alpha:?}\nuse_rslora = {use_rslora}\nuse_dora = {use_dora}\n{texts}")
}

/// Parameters that the reference holds from before the first step, which must be equal as they are stored.
pub fn first_values(ours: &Named, cell: &Cell, golden: &Golden) -> Vec<Check> {
    // Half of the last bit.
    let relative = match cell.precision.stored() {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 0.0,
    };
    let rounded = Tolerance { absolute: 0.0, of_largest: relative, relative };
    let compare = |(parameter, reference): (&str, &ReferenceTensor)| {
        let name = format!("{FIRST}.{parameter}");
        match find(ours, parameter) {
            Some(ours) => Check::new(name, ours, &reference.data, rounded),
            None => Check::failed(name, "the model has no parameter of this name"),
        }
    };
    golden.under(FIRST).into_iter().map(compare).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    r: Option<u64>,
    alpha: Option<f64>,
    num_virtual_tokens: Option<u64>,
    trainable: u64,
    total: u64,
    /// 4 where the weights of blocks' linear layers are stored so.
    #[serde(default)]
    bits: Option<u32>,
}

fn counts(folder: &Path) -> Option<Counts> {
    serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
}

/// Whether the weights of blocks' linear layers are stored in 4 bits.
pub fn packs(folder: &Path) -> bool {
    counts(folder).is_some_and(|counts| counts.bits == Some(4))
}

/// Each number of `golden.json` against ours; `None` where the file says something else.
pub fn checks(folder: &Path) -> Option<Vec<Check>> {
    let counts = counts(folder)?;
    let method = peft::method(&folder.join(FOLDER)).ok()?;
    let model = from_hugging_face(folder).ok()?;
    let tuning = method.tuning(0, &|| own_parameters(&model));
    let lora = if let TuningConfig::Lora(lora) = &method { Some(lora) } else { None };
    let tokens = tuning.virtual_tokens.map(|tokens| tokens.count() as f64);
    let table = model.table(DType::F32, &tuning)?;
    let elements = |of: fn(&Entry) -> bool| Some(table.elements(of) as f64);
    let numbers = [
        ("rank", lora.map(|lora| lora.rank as f64), counts.r.map(|r| r as f64)),
        ("alpha", lora.map(|lora| lora.alpha), counts.alpha),
        ("virtual tokens", tokens, counts.num_virtual_tokens.map(|tokens| tokens as f64)),
        ("trained parameters", elements(|entry| entry.trainable), Some(counts.trainable as f64)),
        ("parameters", elements(|_| true), Some(counts.total as f64)),
    ];
    let check = |(name, ours, theirs): (&str, Option<f64>, Option<f64>)| match (ours, theirs) {
        (None, None) => None,
        (Some(ours), Some(theirs)) => Some(Check::new(name, &[ours], &[theirs], Tolerance::EXACT)),
        _ => Some(Check::failed(name, "the adapter or golden.json does not have it")),
    };
    Some(numbers.into_iter().filter_map(check).collect())
}

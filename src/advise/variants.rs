//! [`variants`]: what may be trained in the place of a cell's own: AdamW with other state, and other methods of tuning.

use serde_json::{Value, json};

use super::fidelity::master_and_moments;
use super::precisions::precisions;
use super::space::{candidates, keeps};
use crate::common::{Compute, DeviceId};
use crate::device::Target;
use crate::keys::Settings;
use crate::ops::Level;
use crate::precision::Precision;
use crate::recipe::{Cell, keys, own_parameters};
use crate::residence::Memory;

/// AdamW by the bits of its moments.
const ADAMW: [&str; 3] = ["adamw", "adamw_bf16", "adamw8bit"];
/// The methods of tuning that are searched where none is named.
const METHODS: [&str; 2] = ["lora", "qlora"];
/// How many times as large the learning rate of an adapter is as that of all parameters.
const RATE_OF_ADAPTERS: f64 = 10.0;

/// Which variants are searched.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Keys, or sections, that stay as the cell has them.
    pub kept: Vec<String>,
    /// Kinds of optimizers; none: the cell's own, and where that is AdamW, also with moments of fewer or more bits.
    pub optimizers: Vec<String>,
    /// Methods of tuning; none: the cell's own, LoRA and QLoRA.
    pub methods: Vec<String>,
}

impl Asked {
    fn keeps(&self, section: &str) -> bool {
        self.kept.iter().any(|kept| keeps(kept, section))
    }
}

/// The cell, and what may be trained in its place on the target: each has the cell's sequences, and is permitted where blocks
/// and optimizer are on the device.
///
/// # Errors
/// A kind of optimizer, or a method, that there is not.
pub fn variants(cell: &Cell, target: &Target, asked: &Asked) -> Result<Vec<Cell>, String> {
    let mut all = vec![cell.clone()];
    for tuned in methods(cell, target, asked)? {
        for updated in optimizers(&tuned, asked)? {
            let types = types(&updated, target, asked.keeps("precision"));
            all.extend(types.into_iter().flat_map(|precision| {
                let typed = Cell { precision, ..updated.clone() };
                let split = remainders(&typed, asked);
                [Some(typed), split].into_iter().flatten()
            }));
        }
    }
    let mut distinct: Vec<Cell> = Vec::new();
    for variant in all {
        // An adapter has few parameters: their master copies cost nothing.
        let lacks_master = variant.tuning != cell.tuning && !master_and_moments(&variant).0;
        let needless = lacks_master && remainders(&variant, asked).is_some();
        if !needless && !distinct.contains(&variant) {
            distinct.push(variant);
        }
    }
    Ok(distinct)
}

/// The cell with each method of tuning.
///
/// # Errors
/// A method that is named, and that there is not or that cannot train this model.
fn methods(cell: &Cell, target: &Target, asked: &Asked) -> Result<Vec<Cell>, String> {
    let mut all = vec![cell.clone()];
    let trains = cell.model.language().is_some() && cell.train.optimizer.rule().is_some();
    if !trains || asked.keeps("tuning") {
        return Ok(all);
    }
    let named: Vec<&str> = asked.methods.iter().map(|method| method.trim()).collect();
    let known = keys::kinds("tuning", "method");
    if let Some(other) = named.iter().find(|method| !known.contains(*method)) {
        return Err(format!("--methods {other}: the methods are {}", known.join(", ")));
    }
    let own: &str = (&cell.tuning).into();
    let searched = if named.is_empty() { METHODS.to_vec() } else { named };
    for method in searched.into_iter().filter(|method| *method != own) {
        match with_method(cell, method) {
            Some(tuned) => {
                let refusal = tuned.refusal().filter(|_| !asked.methods.is_empty());
                if let Some(rule) = refusal.filter(|_| candidates(&tuned, target, &asked.kept).is_empty()) {
                    return Err(format!("--methods {method}: {}", rule.message));
                }
                all.push(tuned);
            }
            None if asked.methods.is_empty() => {}
            None => {
                return Err(format!(
                    "--methods {method}: it does not fit the model, or has keys without a default; write a recipe with it"
                ));
            }
        }
    }
    Ok(all)
}

/// The cell with a method of tuning. Where the model's layers have other names than LoRA's defaults, all of them are adapted.
fn with_method(cell: &Cell, method: &str) -> Option<Cell> {
    let tuned = |targets: Option<&str>| {
        let mut json = cell.to_json();
        json["tuning"] = json!({ "method": method });
        if let Some(targets) = targets {
            json["tuning"]["target_modules"] = targets.into();
        }
        // Operators whose weights have adapters, or are in 4 bits, have no levels.
        json["checkpoint"]["level"] = Level::Keep.number().into();
        if cell.tuning.is_full() && method != "full" {
            let rate = &mut json["train"]["optimizer"]["lr"];
            *rate = rate.as_f64().map_or(Value::Null, |lr| rounded(lr * RATE_OF_ADAPTERS).into());
        }
        from_json(cell, &json)
    };
    let fits = |tuned: &Cell| {
        let layers = tuned.model.linear_layers();
        tuned.tuning.check(&layers, &|| own_parameters(&tuned.model)).is_ok()
    };
    tuned(None).filter(fits).or_else(|| tuned(Some("all-linear")).filter(fits))
}

/// To three digits: no recipe has 0.00010000000000000002.
fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

/// The cell with each kind of optimizer.
fn optimizers(cell: &Cell, asked: &Asked) -> Result<Vec<Cell>, String> {
    let own =
        cell.settings().get("train.optimizer.kind").and_then(Value::as_str).unwrap_or("none").to_string();
    let mut kinds: Vec<&str> = asked.optimizers.iter().map(|kind| kind.trim()).collect();
    if kinds.is_empty() {
        // Of an adapter's state there is nothing to save.
        let searches =
            cell.tuning.is_full() && ADAMW.contains(&own.as_str()) && !asked.keeps("train.optimizer");
        kinds = if searches { ADAMW.to_vec() } else { vec![&own] };
    }
    let known = || keys::kinds("train.optimizer", "kind").join(", ");
    let with = |kind: &&str| {
        with_optimizer(cell, kind).ok_or_else(|| {
            format!("--optimizers {kind}: no such optimizer can replace the recipe's; there are {}", known())
        })
    };
    kinds.iter().map(with).collect()
}

/// The cell with an optimizer of another kind. Keys that both kinds have keep their values. `None` where there is no such
/// kind, or one of its keys has no value.
pub fn with_optimizer(cell: &Cell, kind: &str) -> Option<Cell> {
    const OPTIMIZER: &str = "train.optimizer";
    let has = |name: &str| {
        let path = format!("{OPTIMIZER}.{name}");
        keys::all()
            .iter()
            .any(|entry| entry.path == path && entry.section.kind.is_none_or(|kinds| kinds.has(kind)))
    };
    let mut json = cell.to_json();
    let optimizer = json["train"]["optimizer"].as_object_mut()?;
    optimizer.retain(|name, _| has(name));
    optimizer.insert("kind".into(), kind.into());
    from_json(cell, &json)
}

/// The number types of the variant: those of the [same](precisions) weights, and where products are in bf16, weights that are
/// stored so.
fn types(cell: &Cell, target: &Target, keep: bool) -> Vec<Precision> {
    let mut all = precisions(cell, target, keep);
    let is_mixed = |precision: &Precision| precision.autocast && precision.compute == Compute::Bf16;
    let on_gpu = cell.device_id() != DeviceId::Cpu && cell.model.language().is_some();
    if !keep && on_gpu && cell.train.optimizer.rule().is_some() && all.iter().any(is_mixed) {
        all.push(Precision { compute: Compute::Bf16, autocast: false, scaler: None });
    }
    all
}

/// The cell with 16 bits beside each weight of 16 bits; `None` where it has them, or its optimizer cannot.
fn remainders(cell: &Cell, asked: &Asked) -> Option<Cell> {
    const KEY: &str = "store_param_remainders";
    let settings: Settings = cell.settings();
    let kind = settings.get("train.optimizer.kind").and_then(Value::as_str)?;
    let can = ADAMW.contains(&kind)
        && cell.precision.compute == Compute::Bf16
        && !cell.precision.autocast
        && !asked.keeps("train.optimizer")
        && !cell.train.optimizer.keeps_remainders();
    if !can {
        return None;
    }
    let mut json = cell.to_json();
    json["train"]["optimizer"][KEY] = true.into();
    let mut split = from_json(cell, &json)?;
    // A master on the host has all bits.
    split.offload.optimizer = Memory::Device;
    Some(split)
}

/// The cell of a JSON, with what no JSON has of another.
fn from_json(cell: &Cell, json: &Value) -> Option<Cell> {
    let mut read = Cell { capability: cell.capability, ..Cell::from_json(json).ok()? };
    read.measure.repeats = cell.measure.repeats;
    read.train.graph_is_open = cell.train.graph_is_open;
    Some(read)
}

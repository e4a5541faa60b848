//! [`recipe`]: a plan as a recipe of its own, short, with the reason for the value of each key that the search chose.

use itertools::Itertools;
use serde_json::{Value, json};

use super::model::Named;
use crate::advise::master_and_moments;
use crate::data::Rows;
use crate::ops::Level;
use crate::recipe::{Cell, own_parameters, without_nulls};
use crate::residence::{Memory, ResidentBlocks};

/// Sections and keys in the order in which a reader wants them; others come behind.
const ORDER: [&str; 20] = [
    "model",
    "data",
    "tuning",
    "precision",
    "checkpoint",
    "offload",
    "train",
    "eval",
    "save",
    "measure",
    "method",
    "kind",
    "preset",
    "weights",
    "strategy",
    "compute",
    "seq_len",
    "batch_size",
    "accumulation_steps",
    "optimizer",
];

/// The recipe of a cell. `named`: the model by whose name it was asked for, and whether its sizes are to stand beside its weights.
pub fn recipe(cell: &Cell, title: &str, named: Option<(&Named, bool)>) -> String {
    let mut text = format!("title = {}\n", toml::Value::from(title));
    let table = without_nulls(&cell.written());
    let value = |value: &Value| toml::Value::try_from(value).expect("JSON without null").to_string();
    for (name, section) in sorted(&table) {
        let Value::Object(keys) = section else {
            // A GPU where there is one, as the plan has it.
            if name != "device" {
                text += &format!("{name} = {}\n", value(section));
            }
            continue;
        };
        if keys.iter().all(|(key, setting)| is_default(name, key, setting)) {
            continue;
        }
        text += &format!("\n[{name}]\n");
        if let Some((named, checked)) = named.filter(|_| name == "model") {
            text += &named.lines(checked);
            if cell.data.is_random() {
                text += "\n# [data]\n# corpus = \"my.jsonl\"    # what is trained on; without it the tokens are random\n";
            }
            continue;
        }
        for (key, setting) in
            sorted(section).into_iter().filter(|(key, setting)| !is_default(name, key, setting))
        {
            let line = format!("{key} = {}", value(setting));
            let why = reason(cell, &format!("{name}.{key}"));
            text += &why.map_or(format!("{line}\n"), |why| format!("{line:32}  # {why}\n"));
        }
    }
    text
}

fn sorted(table: &Value) -> Vec<(&String, &Value)> {
    let place = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
    let entries = table.as_object().into_iter().flatten();
    // What is no section stands before the first one.
    entries.sorted_by_key(|(key, value)| (value.is_object(), place(key))).collect()
}

/// A choice that a recipe makes without saying so, which [`Cell::written`] writes all the same.
fn is_default(section: &str, key: &str, value: &Value) -> bool {
    match (section, key) {
        ("data", "train_split") => value == "train",
        ("data", "eval_split") => value == "valid",
        ("train", "schedule") => value == &json!({ "kind": "constant" }),
        ("tuning", "method") => value == "full",
        ("offload", "strategy") => value == "none",
        ("measure", "steps") => value == 15,
        _ => false,
    }
}

/// Why the cell has the value of a key.
fn reason(cell: &Cell, key: &str) -> Option<String> {
    let Cell { train, offload, .. } = cell;
    let all = train.batch_size * train.accumulation_steps;
    Some(match key {
        "precision.compute" if cell.precision.autocast => "products on tensor cores".into(),
        "precision.compute" if cell.precision.stored_bytes() == 2 => {
            "weights, activations and gradients in 16 bits: half of the memory".into()
        }
        "precision.autocast" => "weights, their updates and the sums between blocks stay in fp32".into(),
        "precision.scaler" => "gradients of fp16 vanish without a scale".into(),
        "checkpoint.level" if cell.checkpoint.level == Level::Elementwise => {
            "the MLP's element-wise results are computed again in backward".into()
        }
        "checkpoint.level" => "the MLP's results are computed again in backward".into(),
        "checkpoint.blocks" if cell.checkpoint.blocks == 1 => {
            "only the input of each block waits for backward".into()
        }
        "checkpoint.blocks" => "only the input of so many blocks waits for backward".into(),
        "train.batch_size" if train.accumulation_steps > 1 => "sequences that fit at once".into(),
        "train.batch_size" => "sequences of a step: all fit at once".into(),
        "train.accumulation_steps" => format!("micro-batches of a step of {all} sequences"),
        "train.graph" if train.graph => "the host launches forward and backward by one call".into(),
        "train.graph" => "a graph would need more memory, or gain nothing".into(),
        "train.optimizer" => update(cell),
        "tuning.method" => tuning(cell),
        "offload.strategy" if all_stay(cell) => {
            "each block is updated while backward of the others goes on".into()
        }
        "offload.strategy" => "blocks live on the host, and are copied while others compute".into(),
        "offload.resident_blocks" if all_stay(cell) => "all blocks stay on the GPU".into(),
        "offload.resident_blocks" => match offload.resident_blocks {
            ResidentBlocks::Count(_) => "as many blocks as have room stay on the GPU".into(),
            ResidentBlocks::Auto => return None,
        },
        "offload.activations" => "inputs of blocks wait for backward on the host".into(),
        "offload.optimizer" if offload.optimizer == Memory::Host => {
            "master weights and moments in fp32 are on the host, which updates them".into()
        }
        "data.template" => "random weights have no template of their own".into(),
        "data.sampler" if cell.data.sampler().sampler.rows() == Rows::Packed => {
            "samples fill each sequence, and attend to themselves alone".into()
        }
        "measure.memory_limit" => "the run is held to so much device memory".into(),
        "measure.host_memory_limit" => "the run is held to so much host memory".into(),
        _ => return None,
    })
}

/// Whether no block moves, although the strategy could move them.
fn all_stay(cell: &Cell) -> bool {
    cell.offload.resident_blocks == ResidentBlocks::Count(cell.operators().layers())
}

fn update(cell: &Cell) -> String {
    let (master, moments) = master_and_moments(cell);
    let kept = match moments {
        Some(8) => "moments in 8 bits: 2 bytes a parameter in the place of 8",
        Some(16) => "moments in bf16: 4 bytes a parameter in the place of 8",
        _ => {
            return if cell.train.optimizer.keeps_remainders() {
                "16 bits beside each weight are its fp32 master".into()
            } else {
                "moments in fp32".into()
            };
        }
    };
    let rest = match (cell.train.optimizer.keeps_remainders(), master) {
        (true, _) => "; 16 bits beside each weight are its fp32 master",
        (false, true) => "",
        (false, false) => "; there is no fp32 master",
    };
    format!("{kept}{rest}")
}

fn tuning(cell: &Cell) -> String {
    let all = own_parameters(&cell.model).elements(|_| true) as f64;
    let packed = if cell.tuning.packs() { ", and weights of blocks take 4 bits" } else { "" };
    let trained = cell.operators().trained() as f64;
    format!("{:.2} % of the parameters are trained{packed}", 100.0 * trained / all)
}

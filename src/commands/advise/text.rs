//! Advice as text: the fastest ways that fit, the command that runs the best, and why the others do not fit.

use std::collections::BTreeMap;

use miette::Result;

use crate::advise::{Advice, Limits, Plan, is_unscaled};
use crate::common::Bytes;
use crate::common::text::{rate, seconds, table, value};
use crate::ops::Level;
use crate::precision::ScalerConfig;
use crate::recipe::Cell;
use crate::residence::{Memory, ResidentBlocks, Strategy};

/// Where the device is only described.
const UNTIMED: &str = "no times: they need the device; `runner advise` without --for on its machine measures its rates and orders by \
    them, and for a card by its name (`runner devices --cards`) they follow from its data sheet. Here what copies less over the bus comes first, then what computes less, and then what launches fewer kernels.\n";

/// The command that runs a plan within limits.
type Command<'c> = &'c dyn Fn(&Plan, Limits) -> Result<String>;

/// # Errors
/// Those of `command`.
pub fn advice(title: &str, advice: &Advice, limits: Limits, top: usize, command: Command) -> Result<String> {
    let Advice { fitting, others } = advice;
    let host =
        limits.host_memory.map_or(String::new(), |host| format!(" and {} of the host's memory", Bytes(host)));
    let within = format!("{}{host}", Bytes(limits.memory));
    let mut text = format!("{title}\n");
    match fitting.first() {
        Some(best) => {
            text += &format!(
                "{} of {} ways to train it fit into {within}; {}:\n{}\n",
                fitting.len(),
                fitting.len() + others.len(),
                if best.time.is_some() {
                    "the fastest by the model of time"
                } else {
                    "those with the least work"
                },
                plans(fitting.iter().take(top)),
            );
            text += unscaled(fitting.iter().take(top));
            if best.time.is_none() {
                text += UNTIMED;
            }
            text += &format!("to run the first:\n  {}\n", command(best, limits)?);
        }
        None => text += &none_fits(others, limits, &within, command)?,
    }
    if !others.is_empty() {
        text += &format!(
            "why the others do not fit, by the least that each group needs:\n{}\n",
            refused(others, limits)
        );
    }
    Ok(text)
}

fn none_fits(others: &[Plan], limits: Limits, within: &str, command: Command) -> Result<String> {
    let Some(least) = others.first() else {
        return Ok("no way to train it on this device is a valid recipe\n".into());
    };
    let lacks = least.lacks(limits);
    let enough = Limits {
        memory: limits.memory.max(least.memory()),
        host_memory: limits.host_memory.map(|host| host.max(least.host_memory())),
    };
    let mut needs = Vec::new();
    if lacks.memory {
        needs.push(format!("{} of the device's memory", Bytes(enough.memory)));
    }
    if lacks.host_memory {
        needs.push(format!("{} of the host's", Bytes(least.host_memory())));
    }
    Ok(format!(
        "none of {} ways to train it fits into {within}; the least that is enough is {}:\n{}\n{}to run it:\n  {}\n",
        others.len(),
        needs.join(" and "),
        plans(std::iter::once(least)),
        unscaled(std::iter::once(least)),
        command(least, enough)?,
    ))
}

fn plans<'p>(plans: impl Iterator<Item = &'p Plan>) -> String {
    let plans: Vec<&Plan> = plans.collect();
    let timed = plans.iter().any(|plan| plan.time.is_some());
    let texts = ["", "micro-batches", "precision", "recomputed", "blocks", "optimizer"];
    let times: &[&str] = if timed { &["step", "tokens/s"] } else { &[] };
    let header = [&texts, times, &["memory", "host"]].concat();
    let line = |(i, plan): (usize, &&Plan)| {
        let cell = &plan.cell;
        let mut line = vec![
            (i + 1).to_string(),
            micro_batches(cell),
            precision(cell),
            recomputed(cell),
            blocks(cell),
            format!("{}, {}", optimizer(cell), place(cell.offload.optimizer)),
        ];
        line.extend(plan.seconds().map(seconds));
        line.extend(plan.tokens_per_second().map(rate));
        line.extend([plan.memory(), plan.host_memory()].map(|bytes| Bytes(bytes).to_string()));
        line
    };
    table(&header, plans.iter().enumerate().map(line).collect(), texts.len())
}

/// What is wrong with plans that train in fp16 without a scaler; empty if none does.
fn unscaled<'p>(mut plans: impl Iterator<Item = &'p Plan>) -> &'static str {
    match plans.any(|plan| is_unscaled(&plan.cell)) {
        true => {
            "As in the recipe, fp16 without a scale loses small gradients: below 6e-8 they become 0. Add precision.scaler = \
             { kind = \"dynamic\" }.\n"
        }
        false => "",
    }
}

fn micro_batches(cell: &Cell) -> String {
    let as_graph = if cell.train.graph { ", as a graph" } else { "" };
    format!("{} of {}{as_graph}", cell.train.accumulation_steps, cell.train.batch_size)
}

fn precision(cell: &Cell) -> String {
    let compute = cell.precision.compute.into_str();
    let products = if cell.precision.autocast { " products" } else { "" };
    let scale = match cell.precision.scaler {
        None => "",
        Some(ScalerConfig::Static(_)) => ", static scale",
        Some(ScalerConfig::Dynamic(_)) => ", dynamic scale",
    };
    format!("{compute}{products}{scale}")
}

fn recomputed(cell: &Cell) -> String {
    let level = cell.checkpoint.level;
    let level = (level != Level::Keep).then(|| format!("level {level}"));
    let blocks = match cell.checkpoint.blocks {
        0 if cell.offload.moves() => Some("blocks that move".to_string()),
        0 => None,
        1 => Some("every block".into()),
        n => Some(format!("{n} blocks at a time")),
    };
    let parts: Vec<String> = level.into_iter().chain(blocks).collect();
    if parts.is_empty() { "-".into() } else { parts.join(", ") }
}

fn blocks(cell: &Cell) -> String {
    let offload = cell.offload;
    if !offload.moves() {
        return "on the device".into();
    }
    let mut text = offload.strategy.to_string();
    if let Strategy::Overlap(overlap) = offload.strategy {
        text += &format!(", {} slots", overlap.buffers);
    }
    match offload.resident_blocks {
        ResidentBlocks::Count(0) => {}
        ResidentBlocks::Count(count) => text += &format!(", {count} resident"),
        ResidentBlocks::Auto => text += ", resident as fit",
    }
    if offload.activations == Memory::Host {
        text += ", inputs on the host";
    }
    text
}

/// Its kind.
fn optimizer(cell: &Cell) -> String {
    cell.settings().get("train.optimizer.kind").map_or_else(String::new, value)
}

fn place(memory: Memory) -> &'static str {
    match memory {
        Memory::Device => "device",
        Memory::Host => "host",
    }
}

/// The way that needs the least, of each group with the same strategy, place of the optimizer and recomputation of blocks.
fn refused(others: &[Plan], limits: Limits) -> String {
    let mut groups: BTreeMap<[String; 3], (usize, &Plan)> = BTreeMap::new();
    for plan in others {
        let cell = &plan.cell;
        let again = if cell.checkpoint.blocks > 0 || cell.offload.moves() { "recomputed" } else { "kept" };
        let group =
            [cell.offload.strategy.to_string(), place(cell.offload.optimizer).into(), again.to_string()];
        groups.entry(group).or_insert((0, plan)).0 += 1;
    }
    let lines = groups.into_iter().map(|([strategy, optimizer, again], (count, least))| {
        let lacks = least.lacks(limits);
        let why = match (lacks.memory, lacks.host_memory) {
            (true, true) => "both",
            (true, false) => "the device",
            (false, _) => "the host",
        };
        vec![
            strategy,
            optimizer,
            again,
            count.to_string(),
            Bytes(least.memory()).to_string(),
            Bytes(least.host_memory()).to_string(),
            why.into(),
            largest(least),
        ]
    });
    let header = [
        "strategy",
        "optimizer",
        "activations",
        "ways",
        "least memory",
        "its host",
        "too small",
        "most of it",
    ];
    table(&header, lines.collect(), 3)
}

/// The class with the most bytes of a plan's memory on the device.
fn largest(plan: &Plan) -> String {
    let (name, bytes) = plan.estimate.classes().into_iter().max_by_key(|(_, bytes)| *bytes).expect("five");
    format!("{name} {}", Bytes(bytes))
}

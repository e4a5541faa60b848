//! Advice as text: the fastest ways that fit, why the others do not, and the command that runs the best.

use std::collections::BTreeMap;

use miette::Result;

use crate::advise::{Advice, Limits, Plan};
use crate::recipe::Cell;
use crate::residence::{Memory, ResidentBlocks, Strategy};
use crate::words::Bytes;
use crate::words::text::{seconds, significant, table, value};

/// The command that runs a plan within limits.
type Command<'c> = &'c dyn Fn(&Plan, Limits) -> Result<String>;

/// # Errors
/// Of the command.
pub fn advice(title: &str, advice: &Advice, limits: Limits, top: usize, command: Command) -> Result<String> {
    let Advice { fitting, others } = advice;
    let host =
        limits.host_memory.map_or(String::new(), |host| format!(" and {} of the host's memory", Bytes(host)));
    let within = format!("{}{host}", Bytes(limits.memory));
    let mut text = format!("{title}\n");
    match fitting.first() {
        Some(best) => {
            text += &format!(
                "{} of {} ways to train it fit into {within}; the fastest by the model of time:\n{}\n",
                fitting.len(),
                fitting.len() + others.len(),
                plans(fitting.iter().take(top)),
            );
            text += &format!("to run the first:\n  {}\n", command(best, limits)?);
        }
        None => text += &none_fits(others, limits, &within, command)?,
    }
    if !others.is_empty() {
        text +=
            &format!("why others do not fit, by what they need at the least:\n{}\n", refused(others, limits));
    }
    Ok(text)
}

fn none_fits(others: &[Plan], limits: Limits, within: &str, command: Command) -> Result<String> {
    let Some(least) = others.first() else {
        return Ok("the rules of recipes allow no way to train it on this device\n".into());
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
        "none of {} ways to train it fits into {within}; the least that would do is {}:\n{}\nto run it:\n  {}\n",
        others.len(),
        needs.join(" and "),
        plans(std::iter::once(least)),
        command(least, enough)?,
    ))
}

fn plans<'p>(plans: impl Iterator<Item = &'p Plan>) -> String {
    let header = [
        "",
        "micro-batches",
        "precision",
        "recomputed",
        "blocks",
        "optimizer",
        "step",
        "tokens/s",
        "memory",
        "host",
    ];
    let lines = plans.enumerate().map(|(i, plan)| {
        let Plan { cell, time, .. } = plan;
        vec![
            (i + 1).to_string(),
            format!("{} of {}", cell.train.accumulation_steps, cell.train.batch_size),
            precision(cell),
            recomputed(cell),
            blocks(cell),
            format!("{}, {}", optimizer(cell), place(cell.offload.optimizer)),
            seconds(time.total()),
            significant(plan.tokens_per_second()),
            Bytes(plan.memory()).to_string(),
            Bytes(plan.host_memory()).to_string(),
        ]
    });
    table(&header, lines.collect(), 6)
}

fn precision(cell: &Cell) -> String {
    let compute = cell.precision.compute.into_str();
    if cell.precision.autocast { format!("{compute} products") } else { compute.into() }
}

fn recomputed(cell: &Cell) -> String {
    let level = match cell.to_json()["checkpoint"]["level"].as_f64() {
        Some(level) if level > 0.0 => format!("level {level}"),
        _ => String::new(),
    };
    let blocks = match cell.checkpoint.blocks {
        _ if cell.offload.moves() && cell.checkpoint.blocks == 0 => "blocks that move".to_string(),
        0 => String::new(),
        1 => "every block".into(),
        n => format!("{n} blocks at a time"),
    };
    match (level.is_empty(), blocks.is_empty()) {
        (true, true) => "-".into(),
        (false, false) => format!("{level}, {blocks}"),
        _ => level + &blocks,
    }
}

fn blocks(cell: &Cell) -> String {
    let offload = cell.offload;
    if !offload.moves() {
        return "on the device".into();
    }
    let slots = if let Strategy::Overlap(overlap) = offload.strategy {
        format!(", {} slots", overlap.buffers)
    } else {
        String::new()
    };
    let resident = match offload.resident_blocks {
        ResidentBlocks::Count(0) => String::new(),
        ResidentBlocks::Count(count) => format!(", {count} resident"),
        ResidentBlocks::Auto => ", resident as fit".into(),
    };
    let inputs = if offload.activations == Memory::Host { ", inputs on the host" } else { "" };
    format!("{}{slots}{resident}{inputs}", offload.strategy)
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

/// By where blocks and the optimizer are and whether blocks are computed again: the way that needs the least.
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
        let largest = largest(least);
        vec![
            strategy,
            optimizer,
            again,
            count.to_string(),
            Bytes(least.memory()).to_string(),
            Bytes(least.host_memory()).to_string(),
            why.into(),
            largest,
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

/// What takes the most of a plan's memory on the device.
fn largest(plan: &Plan) -> String {
    let estimate = plan.estimate;
    let classes = [
        ("weights", estimate.weights),
        ("gradients", estimate.gradients),
        ("optimizer state", estimate.optimizer),
        ("activations", estimate.activations),
        ("workspace", estimate.workspace),
    ];
    let (name, bytes) = classes.into_iter().max_by_key(|(_, bytes)| *bytes).expect("there are five");
    format!("{name} {}", Bytes(bytes))
}

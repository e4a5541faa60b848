//! What other hardware would change: the next larger card, and more memory of the host.

use miette::Result;

use super::question::Question;
use super::text::changes;
use crate::advise::{Advice, Limits, Place, Rates};
use crate::common::{Bytes, DeviceId};
use crate::device::{Slice, Target};
use crate::recipe::Cell;

/// Bytes of host memory by which a machine is extended.
const MORE: u64 = 16 << 30;

/// A line for the next larger card, and one for more host memory; empty where nothing is faster with them.
///
/// # Errors
/// As [`Question::advice`].
pub fn other_hardware(question: &Question, advice: &Advice) -> Result<String> {
    let lines = [larger_card(question, advice)?, more_host_memory(question, advice)?];
    Ok(lines.into_iter().flatten().map(|line| format!("{line}\n")).collect())
}

fn larger_card(question: &Question, advice: &Advice) -> Result<Option<String>> {
    let Some((card, part)) = question.target.card() else { return Ok(None) };
    let (next, whole) = match part == Slice::WHOLE && question.limits.memory * 10 > card.memory() * 8 {
        true => (card.next(), ""),
        false => (Some(card), "all of the "),
    };
    let Some(next) = next else { return Ok(None) };
    let target: Target = next.name.parse().expect("a card of the table");
    let cell = Cell { capability: target.capability(question.cell().device_id()), ..question.cell().clone() };
    let memory = target.info(cell.device_id()).memory_available;
    let rates = question.rates.map(|_| Rates::of_card(next, Slice::WHOLE));
    let limits = Limits { memory, ..question.limits };
    let other = question.advice_at(&cell, Place { target: &target, limits, rates: rates.as_ref() })?;
    let article = if whole.is_empty() { "the " } else { whole };
    Ok(changes(advice, &other)
        .map(|changes| format!("With {article}{} ({}): {changes}.", next.name, Bytes(memory))))
}

fn more_host_memory(question: &Question, advice: &Advice) -> Result<Option<String>> {
    let Some(host) = question.limits.host_memory else { return Ok(None) };
    // On a CPU it is the device's too, unless somebody has limited that.
    let on_cpu = question.cell().device_id() == DeviceId::Cpu;
    let more = if on_cpu && question.limits.memory == host { MORE } else { 0 };
    let limits = Limits { host_memory: Some(host + MORE), memory: question.limits.memory + more };
    let other = question.advice_at(question.cell(), Place { limits, ..question.place() })?;
    Ok(changes(advice, &other).map(|changes| format!("With {} more of host memory: {changes}.", Bytes(MORE))))
}

//! Advice as text: the answer in a sentence, the best way of each group, ways with less memory, and why nothing fits.

use strum::VariantArray;

use super::question::Question;
use super::words::{Words, device, duration};
use crate::advise::{Advice, Fidelity, Limits, Plan, is_unscaled};
use crate::common::Bytes;
use crate::common::text::{rate, seconds, significant, table};

/// Where the device is only described.
const UNTIMED: &str = "no times: they need the device; `runner advise` without --for on its machine measures its rates and orders by \
    them, and for a card by its name (`runner devices --cards`) they follow from its data sheet. Here what copies less over the bus comes first, then what computes less, and then what launches fewer kernels.\n";

/// The plans that are listed, in their order: the best of each group, and behind them those with less memory.
pub fn listed(advice: &Advice, smaller: usize) -> (Vec<&Plan>, Vec<&Plan>) {
    let bests: Vec<&Plan> = advice.groups().collect();
    let is_new = |plan: &&Plan| !bests.iter().any(|best| std::ptr::eq(*best, *plan));
    let is_listed = |fidelity: &&Fidelity| bests.iter().any(|best| best.fidelity == **fidelity);
    let of_group = |fidelity: &Fidelity| {
        let frontier = advice.frontier(*fidelity).into_iter();
        frontier.filter(is_new).take(smaller).collect::<Vec<_>>()
    };
    let rest = match advice.advised().and_then(Plan::seconds) {
        Some(_) => Fidelity::VARIANTS.iter().filter(is_listed).flat_map(of_group).collect(),
        None => advice.fitting.iter().filter(is_new).take(smaller).collect(),
    };
    (bests, rest)
}

/// The answer with its tables.
pub fn advice(question: &Question, advice: &Advice, smaller: usize) -> String {
    let Some(advised) = advice.advised() else { return String::new() };
    let (bests, rest) = listed(advice, smaller);
    let mut text = format!("{}\n", answer(question, advice, advised));
    if let Some(lacks) = &question.lacks {
        text += &format!("As it is, the recipe cannot run there: {lacks}.\n");
    }
    text += &format!("\n{}\n", lines(&bests, 1));
    if !rest.is_empty() {
        let what = if advised.time.is_some() { "Less memory, and less speed:" } else { "With more work:" };
        text += &format!("{what}\n{}\n", lines(&rest, bests.len() + 1));
    }
    text += unscaled(bests.iter().chain(&rest).copied());
    if advised.time.is_none() {
        text += UNTIMED;
    }
    text
}

/// One sentence.
fn answer(question: &Question, advice: &Advice, plan: &Plan) -> String {
    let train = Words(&plan.cell).sentence(question);
    let memory = format!("{} of {}", Bytes(plan.driver_memory), within(question, advice.limits));
    let host = format!("{} of host memory", Bytes(plan.host_memory()));
    match plan.tokens_per_second() {
        Some(speed) => format!(
            "{train}: {} tokens/s, a million tokens in {}, with {memory} and {host}.",
            rate(speed),
            duration(1e6 / speed)
        ),
        None => format!(
            "{train}: of {} ways that fit into {memory} and {host} it is that with the least work:",
            advice.fitting.len()
        ),
    }
}

/// `the 11.0 GiB of the RTX 3060`
fn within(question: &Question, limits: Limits) -> String {
    format!("the {} of {}", Bytes(limits.memory), device(question))
}

fn lines(plans: &[&Plan], first: usize) -> String {
    let timed = plans.iter().any(|plan| plan.time.is_some());
    let texts = ["", "result", "trained by", "weights", "saves memory by", "micro-batches"];
    let times: &[&str] = if timed { &["step", "tokens/s", "1 M tokens"] } else { &[] };
    let header = [&texts, times, &["memory", "host"]].concat();
    let line = |(number, plan): (usize, &&Plan)| {
        let words = Words(&plan.cell);
        let mut line = vec![number.to_string(), plan.fidelity.name().into()];
        line.extend([words.trained_by(), words.weights(), words.saves(), words.micro_batches()]);
        line.extend(plan.seconds().map(seconds));
        line.extend(
            plan.tokens_per_second().into_iter().flat_map(|speed| [rate(speed), duration(1e6 / speed)]),
        );
        line.extend([plan.driver_memory, plan.host_memory()].map(|bytes| Bytes(bytes).to_string()));
        line
    };
    table(&header, (first..).zip(plans).map(line).collect(), texts.len())
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

/// Why nothing fits, and what would. `smaller`: the largest model of the family that fits.
pub fn none_fits(question: &Question, advice: &Advice, smaller: Option<&str>) -> String {
    let Some(least) = advice.others.first() else {
        return "no way to train it on this device is a valid recipe\n".into();
    };
    let limits = advice.limits;
    let lacks = least.lacks(limits);
    let mut needs = Vec::new();
    if lacks.memory {
        needs.push(format!("{} of the device's memory", Bytes(least.memory())));
    }
    if lacks.host_memory {
        needs.push(format!("{} of the host's", Bytes(least.host_memory())));
    }
    let host =
        limits.host_memory.map_or(String::new(), |host| format!(" and {} of host memory", Bytes(host)));
    let model = match smaller {
        Some(model) => format!("The largest model of its family that fits is {model}.\n"),
        None => String::new(),
    };
    format!(
        "No way to train it fits into {}{host}: the least that is enough is {}.\n{model}\n{}\n{}",
        within(question, limits),
        needs.join(" and "),
        lines(&[least], 1),
        unscaled(std::iter::once(least)),
    )
}

/// How speeds of one place are beside those of another, by group: `the same 1,234 (1.2 times)`; `None` where nothing changes.
pub fn changes(before: &Advice, after: &Advice) -> Option<String> {
    let of_group = |fidelity: &Fidelity| {
        let speed = |advice: &Advice| advice.best(*fidelity).and_then(Plan::tokens_per_second);
        let (old, new) = (speed(before), speed(after)?);
        let name = fidelity.name();
        match old {
            None => Some(format!("{name} fits, {} tokens/s", rate(new))),
            Some(old) if new > 1.05 * old => {
                Some(format!("{name} {} tokens/s, {} times as many", rate(new), significant(new / old)))
            }
            Some(_) => None,
        }
    };
    let all: Vec<String> = Fidelity::VARIANTS.iter().filter_map(of_group).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

//! Advice as text: the answer in a sentence, the best way of each group, ways with less memory, and why nothing fits.

use strum::VariantArray;

use super::question::Question;
use super::words::{Words, device, duration};
use crate::advise::{Advice, Fidelity, Lacks, Limits, Plan, is_unscaled};
use crate::common::text::{rate, seconds, significant, table};
use crate::common::{Bytes, DeviceId};
use crate::device::Target;

/// Where the device is only described.
const UNTIMED: &str = "No times: the rates of this device are not known. `runner advise` without --for on its machine measures them; those \
    of a card by its name follow from its data sheet (`runner devices --cards`). What copies less over the bus comes first, then \
    what computes less, then what launches fewer kernels.\n";

/// Where the device is here, and its rates are not known.
const UNMEASURED: &str = "No times: the device's rates could not be measured. `runner devices` says what a GPU lacks; 3 GiB of its memory must be \
    free.\n";

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
    text += &least_that_changes_less(question, advice);
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
        text += if matches!(question.target, Target::Described(_)) { UNTIMED } else { UNMEASURED };
    }
    text
}

/// What the same training, or nearly the same, needs at the least where another one alone fits: of either memory, where the other
/// is enough.
fn least_that_changes_less(question: &Question, advice: &Advice) -> String {
    let changes_less = |plan: &&Plan| plan.fidelity <= Fidelity::Nearly;
    let others = || advice.others.iter().filter(changes_less);
    if advice.fitting.iter().any(|plan| changes_less(&plan)) || others().next().is_none() {
        return String::new();
    }
    let lacking = |memory: bool, host_memory: bool| {
        others().filter(move |plan| plan.lacks(advice.limits) == Lacks { memory, host_memory })
    };
    let device = lacking(true, false).map(Plan::memory).min();
    let host = lacking(false, true).map(Plan::host_memory).min();
    let either = [(device, "the device's memory"), (host, "the host's")];
    let either: Vec<String> = either
        .into_iter()
        .filter_map(|(bytes, whose)| Some(format!("{} of {whose}", Bytes(bytes?))))
        .collect();
    let needs =
        if either.is_empty() { others().next().map_or(String::new(), needs) } else { either.join(", or ") };
    let what = if question.cell().tuning.is_full() {
        "Training all parameters"
    } else {
        "The recipe's own training"
    };
    format!("{what} does not fit: it needs {needs} at the least.\n")
}

/// `10.1 GiB of the device's memory and 44.0 GiB of the host's`
fn needs(plan: &Plan) -> String {
    let host = Bytes(plan.host_memory());
    match plan.cell.device_id() {
        DeviceId::Cpu => format!("{host} of memory"),
        DeviceId::Cuda(_) => {
            format!("{} of the device's memory and {host} of the host's", Bytes(plan.memory()))
        }
    }
}

/// One sentence.
fn answer(question: &Question, advice: &Advice, plan: &Plan) -> String {
    let train = Words(&plan.cell).sentence(question);
    let memory = format!("{} of {}", Bytes(plan.driver_memory), within(question, advice.limits));
    // A CPU's memory is the host's.
    let host = match plan.cell.device_id() {
        DeviceId::Cpu => String::new(),
        DeviceId::Cuda(_) => format!(" and {} of host memory", Bytes(plan.host_memory())),
    };
    match plan.tokens_per_second() {
        Some(speed) => format!(
            "{train}: {} tokens/s, a million tokens in {}, with {memory}{host}.",
            rate(speed),
            duration(1e6 / speed)
        ),
        None => {
            format!("{train}: the least work of {} ways that fit, with {memory}{host}.", advice.fitting.len())
        }
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

/// Why nothing fits, and what would. `shorter`: the longest sequences that fit; `smaller`: the largest model of the family that
/// fits.
pub fn none_fits(
    question: &Question,
    advice: &Advice,
    shorter: Option<usize>,
    smaller: Option<&str>,
) -> String {
    let Some(least) = advice.others.first() else {
        return "no way to train it on this device is a valid recipe\n".into();
    };
    let limits = advice.limits;
    let on_cpu = least.cell.device_id() == DeviceId::Cpu;
    let host = limits.host_memory.filter(|host| !(on_cpu && *host == limits.memory));
    let host = host.map_or(String::new(), |host| format!(" and {} of host memory", Bytes(host)));
    let shorter = shorter.map(|tokens| format!("It fits with sequences of {tokens} tokens or fewer.\n"));
    let model = smaller.map(|model| format!("The largest model of its family that fits is {model}.\n"));
    let model: String = shorter.into_iter().chain(model).collect();
    format!(
        "No way to train it fits into {}{host}: the least that is enough is {}.\n{model}\n{}\n{}",
        within(question, limits),
        needs(least),
        lines(&[least], 1),
        unscaled(std::iter::once(least)),
    )
}

/// How many times as fast another place must be to be named: about the error of predicted times.
const MORE: f64 = 1.1;

/// How speeds of one place are beside those of another, by group: `1,234 tokens/s of the same training, 1.2 times as many`; `None`
/// where nothing changes.
pub fn changes(before: &Advice, after: &Advice) -> Option<String> {
    let of_group = |fidelity: &Fidelity| {
        let speed = |advice: &Advice| advice.best(*fidelity).and_then(Plan::tokens_per_second);
        let (old, new) = (speed(before), speed(after)?);
        let name = fidelity.name();
        match old {
            None => Some(format!("{name} training fits, {} tokens/s", rate(new))),
            Some(old) if new > MORE * old => {
                let times = significant(new / old);
                Some(format!("{} tokens/s of {name} training, {times} times as many", rate(new)))
            }
            Some(_) => None,
        }
    };
    let all: Vec<String> = Fidelity::VARIANTS.iter().filter_map(of_group).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

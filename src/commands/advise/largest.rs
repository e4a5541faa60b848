//! `--largest`: how long sequences, how large micro-batches or which of several models can be.

use itertools::Itertools;
use miette::{Result, miette};
use strum::VariantArray;

use super::model::of_family;
use super::question::Question;
use super::words::{Words, device, duration, model};
use super::{AdviseArgs, notes};
use crate::advise::{Advice, Fidelity, Plan, advise, largest_that_fits, some_fit};
use crate::common::Bytes;
use crate::common::text::{rate, table};
use crate::model::Model;
use crate::recipe::Cell;

/// The answer with a line for each group, or for each model.
///
/// # Errors
/// As [`Question::new`], and where nothing fits.
pub fn largest(args: &AdviseArgs, what: &str) -> Result<String> {
    match what {
        "train.seq_len" | "train.batch_size" => {
            let question = Question::new(args, &args.model)?;
            Ok(of_key(&question, what)? + &notes(args, &question))
        }
        models if !models.contains("train.") => of_models(args, models),
        _ => Err(miette!(
            help = "write --largest train.seq_len, --largest train.batch_size, or models separated by commas",
            "--largest {what}: this key has no largest value that memory decides"
        )),
    }
}

/// Of each group with room for more than one that changes less, the largest value of a key with the fastest way that fits.
///
/// # Errors
/// As [`Question::advice`].
pub fn largest_values(question: &Question, key: &str) -> Result<Vec<(usize, Plan)>> {
    let mut found: Vec<(usize, Plan)> = Vec::new();
    for fidelity in Fidelity::VARIANTS {
        let with = |value: usize| sized(question.cell(), key, value);
        let variants = |value: usize| question.variants(&with(value), &question.target).unwrap_or_default();
        let Some(value) = largest_that_fits(most(question.cell(), key), |value| {
            some_fit(&with(value), &variants(value), question.place(), &kept(question, key), Some(*fidelity))
        }) else {
            continue;
        };
        let cell = with(value);
        let all = question.variants(&cell, &question.target)?;
        let advice = advise(&cell, &all, question.place(), &kept(question, key));
        let is_larger = found.last().is_none_or(|(last, _)| value > *last);
        found.extend(advice.best(*fidelity).filter(|_| is_larger).map(|best| (value, best.clone())));
    }
    Ok(found)
}

/// The answer with a line for each of these.
fn of_key(question: &Question, key: &str) -> Result<String> {
    let lines = largest_values(question, key)?;
    let Some((value, best)) = lines.first() else {
        let help = "runner advise without --largest says what the least needs";
        return Err(miette!(help = help, "no value of {key} fits into {}", Bytes(question.limits.memory)));
    };
    let words = Words(&best.cell);
    let all = match key == "train.seq_len" && *value == most(question.cell(), key) {
        true => ", as many as the model has positions: with it",
        false => " is the largest with which",
    };
    let answer = format!(
        "{key} = {value}{all} {} {}{}.",
        match best.fidelity {
            Fidelity::Same => "the same training of",
            Fidelity::Nearly => "nearly the same training of",
            Fidelity::Other => "another training of",
        },
        format_args!(
            "{} fits into {} of {}",
            model(question),
            Bytes(question.limits.memory),
            device(question)
        ),
        best.tokens_per_second().map_or(String::new(), |speed| {
            format!(": {} tokens/s by {}", rate(speed), words.trained_by())
        }),
    );
    let shown = lines.iter().map(|(value, plan)| line(value.to_string(), plan)).collect();
    Ok(format!("{answer}\n\n{}\n", lines_of(key, shown)))
}

/// A micro-batch is as large as it is asked for; sequences that are longer may be fewer at once.
fn kept(question: &Question, key: &str) -> Vec<String> {
    let sizes = ["train.batch_size".to_string(), "train.accumulation_steps".to_string()];
    let more = (key == "train.batch_size").then_some(sizes);
    question.asked.kept.iter().cloned().chain(more.into_iter().flatten()).collect()
}

fn sized(cell: &Cell, key: &str, value: usize) -> Cell {
    let mut cell = cell.clone();
    match key {
        "train.seq_len" => cell.train.seq_len = value,
        _ => cell.train.batch_size = value,
    }
    cell
}

/// The most that a key may be.
fn most(cell: &Cell, key: &str) -> usize {
    let positions = cell.model.decoder().map_or(1 << 20, |shape| shape.max_positions);
    match key {
        "train.seq_len" => positions.saturating_sub(cell.tuning().virtual_count()),
        _ => 1 << 20,
    }
}

/// A line for each model: the best way of the group that changes the least.
fn of_models(args: &AdviseArgs, models: &str) -> Result<String> {
    let mut all = Vec::new();
    for name in std::iter::once(args.model.as_str()).chain(models.split(',').map(str::trim)).unique() {
        let question = Question::new(args, name)?;
        let advice = question.advice()?;
        all.push((question, advice));
    }
    all.sort_by_key(|(question, _)| std::cmp::Reverse(question.cell().model.parameters()));
    let fits = |(_, advice): &&(Question, Advice)| advice.advised().is_some();
    let Some((question, advice)) = all.iter().find(fits) else {
        let help = "runner advise with each of them says what the least needs";
        return Err(miette!(help = help, "none of the models fits"));
    };
    let best = advice.advised().expect("it fits");
    let speed = best.tokens_per_second().map_or(String::new(), |speed| format!(", {} tokens/s", rate(speed)));
    let answer = format!(
        "{} is the largest that fits into {} of {}: with {}{speed} in steps of {} x {} tokens.",
        model(question),
        Bytes(question.limits.memory),
        device(question),
        Words(&best.cell).trained_by(),
        best.cell.train.batch_size * best.cell.train.accumulation_steps,
        best.cell.train.seq_len,
    );
    let of_model = |(question, advice): &(Question, Advice)| match advice.advised() {
        Some(plan) => line(model(question), plan),
        None => {
            let least =
                advice.others.first().map_or("-".into(), |plan| format!("needs {}", Bytes(plan.memory())));
            let mut line = vec![model(question), "none fits".into(), least];
            line.resize(HEADER.len(), "-".into());
            line
        }
    };
    let table = lines_of("model", all.iter().map(of_model).collect());
    Ok(format!("{answer}\n\n{table}\n{}", notes(args, question)))
}

/// The columns behind the first.
const HEADER: [&str; 8] =
    ["", "result", "trained by", "micro-batches", "tokens/s", "1 M tokens", "memory", "host"];

fn line(first: String, plan: &Plan) -> Vec<String> {
    let words = Words(&plan.cell);
    let speed = plan.tokens_per_second();
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let mut line = vec![first, plan.fidelity.name().into(), words.trained_by(), words.micro_batches()];
    line.extend([or_none(speed.map(rate)), or_none(speed.map(|speed| duration(1e6 / speed)))]);
    line.extend([plan.driver_memory, plan.host_memory()].map(|bytes| Bytes(bytes).to_string()));
    line
}

fn lines_of(first: &str, lines: Vec<Vec<String>>) -> String {
    let mut header = HEADER.to_vec();
    header[0] = first;
    table(&header, lines, 4)
}

/// The longest sequences with which anything fits, where those of the question are too long; `None` where none are short enough.
pub fn sequences_that_fit(question: &Question) -> Option<usize> {
    let key = "train.seq_len";
    largest_that_fits(question.cell().train.seq_len, |tokens| {
        let cell = sized(question.cell(), key, tokens);
        let variants = question.variants(&cell, &question.target).unwrap_or_default();
        some_fit(&cell, &variants, question.place(), &question.asked.kept, None)
    })
}

/// The largest preset of the family of the model that fits in its place; `None` where none does.
///
/// # Errors
/// As [`Question::advice`].
pub fn model_that_fits(question: &Question) -> Result<Option<&'static str>> {
    let cell = question.cell();
    let Some(kind) = cell.model.kind() else { return Ok(None) };
    let sized = |name: &'static str| {
        let model: Model = toml::from_str(&format!("[{kind}]\npreset = \"{name}\"")).ok()?;
        (model.parameters() < cell.model.parameters()).then_some((name, model))
    };
    let smaller = of_family(kind).filter_map(sized);
    for (name, model) in smaller.sorted_by_key(|(_, model)| std::cmp::Reverse(model.parameters())) {
        let positions = model.decoder().map_or(usize::MAX, |shape| shape.max_positions);
        let mut other = Cell { model, ..cell.clone() };
        other.train.seq_len = cell.train.seq_len.min(positions);
        let variants = question.variants(&other, &question.target)?;
        if some_fit(&other, &variants, question.place(), &question.asked.kept, None) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

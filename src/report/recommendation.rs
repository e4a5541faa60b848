//! The answer to the recipe's question: what was learned, which method to take at the largest size, and what holds at the others.

use itertools::Itertools;

use super::differences::{Differences, are_of_one_build, is_slower, takes_longer};
use super::families::{families, unlike};
use super::labels::FEW;
use super::learned::Lack;
use super::table::{Comparison, Group};
use super::trade::{NEAR, memory, on, trade};
use super::{answers, ladder, learned, loading, offload, pareto, pipeline, quality, ranks, shapes, updates};
use crate::words::text::{percent, rate, ratio, sentence, verb};

/// A method that learns less well is told where it saves more memory than this share.
const SAVED: f64 = 0.02;
/// Test sets whose answers are told.
const SETS: usize = 2;

/// Two or three sentences with numbers; none where nothing was measured.
pub fn sentences(comparison: &Comparison, differences: &Differences) -> Vec<String> {
    if let Some(sentence) = ladder::sentence(comparison) {
        return vec![sentence];
    }
    if comparison.compares_samplers() {
        return loading::answer(comparison);
    }
    let (good, lost) = learned::as_good(comparison);
    let mut out: Vec<String> = answers::sentences(comparison).into_iter().take(SETS).collect();
    out.extend(learned::told(comparison, &good, &lost));
    if comparison.methods.len() == 1 {
        out.extend(quality::sentences(comparison));
    }
    let groups = comparison.groups();
    let measured = |group: &&Group| {
        good.contains(&group.method) && group.lines.iter().any(|&i| comparison.lines[i].measured().is_some())
    };
    let device_of = |group: &Group| comparison.recipe.devices.get(group.lines[0]);
    // Each device has an answer of its own.
    for device in groups.iter().map(device_of).unique() {
        let of_device = groups.iter().filter(|group| device_of(group) == device);
        let of_device: Vec<&Group> = of_device.filter(measured).collect();
        let Some(problem) = largest(comparison, &of_device) else { continue };
        let of_problem = of_device.iter().copied().filter(|group| group.problem == problem);
        // Steps that end before the update are no choice where others have it.
        let updates = |group: &&Group| comparison.lines[group.lines[0]].cell.train.optimizer.rule().is_some();
        let (whole, without): (Vec<&Group>, Vec<&Group>) = of_problem.partition(updates);
        let (candidates, without) = if whole.is_empty() { (without, whole) } else { (whole, without) };
        match candidates.len() + without.len() {
            1 => out.extend(alone(comparison, &of_device)),
            _ => out.extend(trades(comparison, &candidates, !lost.is_empty(), !without.is_empty())),
        }
        out.extend(saved(comparison, &candidates, &lost));
        out.extend(of_speed_without_update(comparison, &candidates, &without));
        out.extend(faster_elsewhere(comparison, &candidates, &of_device));
    }
    out.extend(shapes::sentences(comparison, differences));
    out.extend(offload::gain(comparison));
    out.extend(offload::against_floor(comparison));
    out.extend(offload::hidden_updates(comparison));
    out.extend(updates::sentence(comparison));
    out.extend(pipeline::sentence(comparison));
    out.extend(ranks::sentence(comparison));
    out
}

/// The trade of time and memory within each family of methods that learn alike. What others learn is another question, which
/// time and memory do not answer.
fn trades(
    comparison: &Comparison,
    candidates: &[&Group],
    of_good: bool,
    are_with_update: bool,
) -> Vec<String> {
    let families = families(comparison, candidates);
    let several = families.len() > 1 || candidates.len() > families.iter().map(|of| of.members.len()).sum();
    let compared = families.iter().filter(|of| of.members.len() > 1 || !several);
    let mut out: Vec<String> =
        compared.flat_map(|family| trade(comparison, family, of_good, are_with_update)).collect();
    if out.is_empty() {
        out.extend(families.first().and_then(|family| alone(comparison, &family.members)));
    }
    let is_compared = learned::is_evaluated(comparison) || answers::are_asked(comparison);
    out.extend(unlike(comparison, candidates).filter(|_| !is_compared));
    out
}

/// The speed of the fastest way as a part of that of forward and backward alone, where both were measured.
fn of_speed_without_update(comparison: &Comparison, whole: &[&Group], without: &[&Group]) -> Option<String> {
    let (speed, fastest) = most_tokens(comparison, whole)?;
    let (most, reference) = most_tokens(comparison, without)?;
    let parallel = |group: &Group| &comparison.lines[group.lines[0]].cell.parallel;
    let comparable = speed <= most && parallel(fastest) == parallel(reference);
    if !comparable || !are_of_one_build(comparison, [&fastest.lines, &reference.lines]) {
        return None;
    }
    let name = comparison.said(fastest.method);
    Some(format!(
        "{} {} {} of the speed of forward and backward alone: {} has {} tokens a second.",
        sentence(&name),
        verb(&name, "has", "have"),
        percent(speed / most),
        comparison.said(reference.method),
        comparison.written_of_group("tokens_per_second", reference)?
    ))
}

/// A group of another problem with clearly more tokens a second, where problems are batches of one network.
fn faster_elsewhere(comparison: &Comparison, answered: &[&Group], all: &[&Group]) -> Option<String> {
    let cell = |group: &Group| comparison.lines[group.lines[0]].cell;
    let (most, fastest) = most_tokens(comparison, answered)?;
    let alike: Vec<&Group> = all.iter().copied().filter(|of| cell(of).model == cell(fastest).model).collect();
    let (more, other) = most_tokens(comparison, &alike)?;
    let is_more = more > NEAR * most && takes_longer(comparison, &fastest.lines, &other.lines);
    let there = alike.iter().filter(|of| of.problem == other.problem && of.method != other.method);
    let alone = there.into_iter().all(|of| is_slower(comparison, of, other));
    (is_more && alike.len() == all.len() && other.problem != fastest.problem).then(|| {
        let written = comparison.written_of_group("tokens_per_second", other).unwrap_or_default();
        if !alone {
            let label = comparison.problem_label(other.problem);
            return format!("The most tokens a second of all are trained on at {label}: {written}.");
        }
        let name = comparison.name_of_group(other);
        let trains = verb(&name, "trains", "train");
        format!("{} {trains} on the most tokens a second of all: {written}.", sentence(&name))
    })
}

/// The group with the most tokens a second.
fn most_tokens<'g>(comparison: &Comparison, of: &[&'g Group]) -> Option<(f64, &'g Group)> {
    let timed =
        of.iter().filter_map(|group| Some((comparison.of_group("tokens_per_second", group)?, *group)));
    timed.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The problem with the most work at which most of the methods were measured.
fn largest(comparison: &Comparison, candidates: &[&Group]) -> Option<usize> {
    let count = |problem: usize| candidates.iter().filter(|group| group.problem == problem).count();
    let most = candidates.iter().map(|group| count(group.problem)).max()?;
    let full = candidates.iter().filter(|group| 2 * count(group.problem) > most);
    let work = |group: &Group| comparison.lines[group.lines[0]].cell.flops().forward;
    full.max_by(|a, b| work(a).total_cmp(&work(b))).map(|group| group.problem)
}

/// The rate, time and memory of each problem, where there is no choice of methods.
fn alone(comparison: &Comparison, groups: &[&Group]) -> Option<String> {
    let of_group = |group: &&Group| {
        let cell = comparison.lines[group.lines[0]].cell;
        // Samples differ in length, unless they are packed.
        let sampler = cell.data.sampler().sampler;
        let full = !sampler.keeps_samples() || sampler.is_packed();
        let sequences = comparison.of_group("tokens_per_second", group)? / cell.train.seq_len as f64;
        let sequences = if full { format!(" ({} sequences)", rate(sequences)) } else { String::new() };
        let written = |column: &str| comparison.written_of_group(column, group).unwrap_or_default();
        Some(format!(
            "{}: {} tokens a second{sequences}, {} a step, in {}",
            comparison.name_of_group(group),
            written("tokens_per_second"),
            written("step_s_median"),
            memory(written)
        ))
    };
    let parts: Vec<String> = groups.iter().filter_map(of_group).take(FEW).collect();
    (!parts.is_empty()).then(|| format!("{}.", sentence(&parts.join("; "))))
}

/// `QLoRA, which is not as good as LoRA, needs 28 % less memory: 2.24 GiB, in 1.31x its time.` Of the methods that learn less
/// well, the one with the least memory, if it has less than all that learn as well.
fn saved(comparison: &Comparison, good: &[&Group], lost: &[usize]) -> Option<String> {
    let base = *good.iter().find(|group| comparison.is_baseline(group.lines[0]))?;
    let bytes = |group: &Group| comparison.of_group("live_peak_bytes", group);
    let time = |group: &Group| comparison.of_group(pareto::time(comparison), group);
    let groups = comparison.groups();
    let lack = |of: &Group| Lack::of(comparison, of.method);
    let of_problem = groups
        .iter()
        .filter(|of| of.problem == base.problem && lost.contains(&of.method) && lack(of) != Lack::Diverged);
    let least = of_problem.filter(|of| bytes(of).is_some()).min_by(|a, b| {
        let [a, b] = [a, b].map(|group| bytes(group).unwrap_or(f64::INFINITY));
        a.total_cmp(&b)
    })?;
    let saves =
        good.iter().filter_map(|group| bytes(group)).all(|of| bytes(least) < Some(of * (1.0 - SAVED)));
    let (name, base_name, times) =
        (comparison.said(least.method), comparison.said(base.method), ratio(time(least)? / time(base)?));
    let clear = is_slower(comparison, least, base) || is_slower(comparison, base, least);
    let price = match clear {
        _ if !are_of_one_build(comparison, [&least.lines, &base.lines]) => String::new(),
        true => format!(", in {times} its time"),
        false => format!(", in a time that is not clearly different ({times})"),
    };
    let quality = match lack(least) {
        Lack::NotClear => "may not be",
        _ => verb(&name, "is not", "are not"),
    };
    saves.then(|| {
        format!(
            "{}, which {quality} as good as {base_name}, {} {} less memory than {base_name}: {}{price}.",
            sentence(&(on(comparison, base) + &name)),
            verb(&name, "needs", "need"),
            percent(1.0 - bytes(least).unwrap_or_default() / bytes(base).unwrap_or_default()),
            memory(|column| comparison.written_of_group(column, least).unwrap_or_default()),
        )
    })
}

#[cfg(test)]
#[path = "recommendation_tests.rs"]
mod tests;

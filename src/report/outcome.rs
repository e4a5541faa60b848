//! What runs learned, in a sentence or two of an answer: right answers, held-out perplexity, tokens a second of samplers and of
//! a ladder, time to an equal training loss.

use itertools::Itertools;

use super::answers::{self, Pooled};
use super::frame::EQUAL_LOSS;
use super::interval::Ratio;
use super::learning::is_evaluated;
use super::line::Line;
use super::pipeline::{Pipelined, idle, seconds};
use super::table::{Comparison, Group};
use super::units::Unit;
use crate::common::text::percent;

/// Test sets in an answer.
const SETS: usize = 2;

/// Sentences about the measured methods of one size; none where steps alone were measured.
pub fn sentences(comparison: &Comparison, groups: &[&Group]) -> Vec<String> {
    let mut out = answered(comparison, groups);
    if !comparison.recipe.report.ladder.is_empty() {
        out.extend(ladder(comparison));
        out.extend(equal_loss(comparison));
    } else if comparison.compares_samplers() {
        out.extend(padding(comparison));
        out.extend(most_tokens(comparison, groups));
        out.extend(equal_loss(comparison));
    } else {
        out.extend(perplexity(comparison, groups));
        out.extend(schedules(comparison));
    }
    out
}

/// Steps of pipelines over what their schedules predict, and the one that is least idle.
fn schedules(comparison: &Comparison) -> Option<String> {
    let all = comparison.lines.iter().filter_map(|line| Some((line, Pipelined::new(line)?))).collect_vec();
    let over = |of: &Pipelined| seconds(&of.measured) / seconds(&of.predicted);
    let by_over = |a: &&(&Line, Pipelined), b: &&(&Line, Pipelined)| over(&a.1).total_cmp(&over(&b.1));
    let by_idle = |a: &&(&Line, Pipelined), b: &&(&Line, Pipelined)| {
        idle(&a.1.measured).total_cmp(&idle(&b.1.measured))
    };
    let (least, most) = (all.iter().min_by(by_over)?, all.iter().max_by(by_over)?);
    let (line, best) = all.iter().min_by(by_idle)?;
    Some(format!(
        "a step takes {:.2} ({}) to {:.2} times ({}) what its schedule predicts; the least idle is {}, {} of the step.",
        over(&least.1),
        comparison.name(least.0),
        over(&most.1),
        comparison.name(most.0),
        comparison.name(line),
        percent(idle(&best.measured))
    ))
}

/// `lr 0.01 answered 94.0 % of “test” rightly after training (95 % interval 91.2 % to 96.0 %) and 2.00 % before it.`: of each
/// test set, the method with the most right answers, and the baseline if that is another.
fn answered(comparison: &Comparison, groups: &[&Group]) -> Vec<String> {
    let pooled: Vec<(&Group, Pooled)> = groups
        .iter()
        .flat_map(|group| answers::pooled(comparison, group).into_iter().map(move |of| (*group, of)))
        .collect();
    let of_set = |set: &String| {
        let all = pooled.iter().filter(|(_, of)| of.set == *set);
        let best = all.clone().max_by(|a, b| a.1.after.accuracy().total_cmp(&b.1.after.accuracy()))?;
        let is_base = |group: &Group| group.lines.iter().any(|&line| comparison.is_baseline(line));
        let base = all.clone().find(|(group, _)| is_base(group) && group.method != best.0.method);
        let name = |group: &Group| comparison.said(group.method);
        let [low, high] = best.1.after.interval().map(share);
        let right = share(best.1.after.accuracy());
        let before = best.1.before.map(|before| format!(" and {} before it", share(before.accuracy())));
        let when = if before.is_some() { " after training" } else { "" };
        let before = before.unwrap_or_default();
        let base = base
            .map(|(group, of)| format!("; {} answered {}", name(group), share(of.after.accuracy())))
            .unwrap_or_default();
        Some(format!(
            "{} answered {right} of “{set}” rightly{when} (95 % interval {low} to {high}){before}{base}.",
            name(best.0)
        ))
    };
    pooled.iter().map(|(_, of)| &of.set).unique().take(SETS).filter_map(of_set).collect()
}

fn share(value: f64) -> String {
    Unit::FineShare.write(value)
}

/// The lowest and the highest held-out perplexity after the last step, and the baseline's; of a single method that before
/// training.
fn perplexity(comparison: &Comparison, groups: &[&Group]) -> Option<String> {
    if !is_evaluated(comparison) {
        return None;
    }
    let written = |group: &Group| comparison.written_of_group("eval_perplexity", group).unwrap_or_default();
    let name = |group: &Group| comparison.said(group.method);
    let value = |group: &Group| comparison.of_group("eval_perplexity", group);
    let evaluated = groups.iter().copied().filter(|group| value(group).is_some()).collect_vec();
    let seeds = evaluated.iter().map(|group| group.lines.len()).max()?;
    let seeds = if seeds > 1 { format!(" (medians of {seeds} seeds)") } else { " (1 seed)".into() };
    let by_value = |a: &&&Group, b: &&&Group| value(a).unwrap_or(0.0).total_cmp(&value(b).unwrap_or(0.0));
    let (least, most) = (evaluated.iter().min_by(by_value)?, evaluated.iter().max_by(by_value)?);
    if evaluated.len() == 1 {
        let first = least.lines.iter().find_map(|&i| comparison.lines[i].measured()?.evaluations.first());
        let before = first.filter(|of| of.step == 0).map(|of| Unit::Perplexity.write(of.perplexity()));
        let before = before.map_or(String::new(), |before| format!(", {before} before training"));
        return Some(format!(
            "held-out perplexity is {} after the last step{before}{seeds}.",
            written(least)
        ));
    }
    let base = evaluated.iter().find(|group| group.lines.iter().any(|&line| comparison.is_baseline(line)));
    let base = base.map(|base| (base, "the baseline"));
    let others = base.into_iter().chain([(most, "the highest")]);
    let others =
        others.filter(|(group, _)| group.method != least.method).unique_by(|(group, _)| group.method);
    let others =
        others.map(|(group, which)| format!("; {} with {}, {which}", written(group), name(group))).join("");
    Some(format!(
        "held-out perplexity after the last step is {} with {}, the lowest{others}{seeds}.",
        written(least),
        name(least)
    ))
}

/// How much of the baseline's work is padding.
fn padding(comparison: &Comparison) -> Option<String> {
    let share = |i: usize| comparison.frame.get("padding_share", i).unwrap_or_default();
    let base = comparison.having("padding_share").find(|&i| comparison.is_baseline(i) && share(i) > 0.0)?;
    let written = comparison.frame.written("padding_share", base)?;
    Some(format!("with {}, {written} of all tokens are padding.", comparison.name(&comparison.lines[base])))
}

/// The sampler with the most real tokens a second.
fn most_tokens(comparison: &Comparison, groups: &[&Group]) -> Option<String> {
    let rate = |group: &Group| comparison.of_group("tokens_per_second", group);
    let first = groups.iter().max_by(|a, b| rate(a).unwrap_or(0.0).total_cmp(&rate(b).unwrap_or(0.0)))?;
    let base = groups.iter().find(|group| group.lines.iter().any(|&line| comparison.is_baseline(line)))?;
    let written = comparison.written_of_group("tokens_per_second", first)?;
    let name = comparison.said(first.method);
    let against = (first.method != base.method)
        .then(|| Ratio::new(comparison, "tokens_per_second", first, base))
        .flatten()
        .map(|ratio| format!(", {}", ratio.times(&format!("as many as {}", comparison.said(base.method)))));
    Some(format!("{name} trains on the most real tokens a second: {written}{}.", against.unwrap_or_default()))
}

/// What all rungs gain together, and which one gains most.
fn ladder(comparison: &Comparison) -> Option<String> {
    let stages = &comparison.recipe.report.ladder;
    let groups = comparison.groups();
    let of = |line: usize| groups.iter().find(|group| group.lines.contains(&line));
    let measured =
        comparison.having("tokens_per_second").take(stages.len()).filter_map(|i| Some((i, of(i)?)));
    let measured = measured.collect_vec();
    let (first, last) = (measured.first()?, measured.last()?);
    let gain = |own: &Group, before: &Group| Ratio::new(comparison, "tokens_per_second", own, before);
    let steps = measured.windows(2).filter_map(|pair| Some((gain(pair[1].1, pair[0].1)?, pair[1].0)));
    let (most, rung) = steps.max_by(|a, b| a.0.value.total_cmp(&b.0.value))?;
    Some(format!(
        "all rungs together train on {}, {} instead of {}; {} gains most, {}.",
        gain(last.1, first.1)?.times(&format!("the real tokens a second of {}", stages[first.0].name)),
        comparison.frame.written("tokens_per_second", last.0)?,
        comparison.frame.written("tokens_per_second", first.0)?,
        stages[rung].name,
        most.times("those of the rung before")
    ))
}

/// Which cell is the first to reach the training loss that all reach, and when the baseline, or a ladder's first rung, does.
fn equal_loss(comparison: &Comparison) -> Option<String> {
    let time = |i: usize| comparison.frame.get(EQUAL_LOSS, i);
    let reached: Vec<usize> = comparison.having(EQUAL_LOSS).collect();
    let &fastest =
        reached.iter().min_by(|a, b| time(**a).unwrap_or(0.0).total_cmp(&time(**b).unwrap_or(0.0)))?;
    let &base = reached.iter().find(|&&i| comparison.is_baseline(i))?;
    let loss =
        reached.iter().filter_map(|&i| comparison.frame.get("train_loss_final", i)).fold(0.0, f64::max);
    let written = |i: usize| comparison.frame.written(EQUAL_LOSS, i).unwrap_or_default();
    let name = |i: usize| comparison.name(&comparison.lines[i]);
    let against =
        if fastest == base { String::new() } else { format!("; {} after {}", name(base), written(base)) };
    Some(format!(
        "{} is the first at a training loss of {loss:.2} nats, which all that ran reach: after {}{against}.",
        name(fastest),
        written(fastest)
    ))
}

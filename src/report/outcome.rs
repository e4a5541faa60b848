//! What runs learned, in a sentence or two of an answer: right answers, held-out perplexity, tokens a second of samplers and of
//! a ladder, time to an equal training loss.

use polars::prelude::ChunkAgg;

use super::answers;
use super::frame::EQUAL_LOSS;
use super::interval::Ratio;
use super::learning::is_evaluated;
use super::prelude::*;

/// Test sets in an answer.
const SETS: usize = 2;

/// Sentences about the measured methods of one size; none where steps alone were measured.
pub fn sentences(comparison: &Comparison, groups: &[&Group]) -> Vec<String> {
    let more = if !comparison.recipe.report.ladder.is_empty() {
        vec![ladder(comparison), equal_loss(comparison)]
    } else if comparison.compares_samplers() {
        // What is learned of other text says more than when training was as far.
        let learned = perplexity(comparison, groups).or_else(|| equal_loss(comparison));
        vec![padding(comparison, groups), most_tokens(comparison, groups), learned]
    } else {
        vec![perplexity(comparison, groups), schedules(comparison)]
    };
    answered(comparison, groups).into_iter().chain(more.into_iter().flatten()).collect()
}

/// Steps of pipelines over what their schedules predict, and the one that is least idle.
fn schedules(comparison: &Comparison) -> Option<String> {
    let over = comparison.rising("pipeline_over_predicted");
    let (least, most) = (*over.first()?, *over.last()?);
    let least_idle = *comparison.rising("pipeline_measured_idle").first()?;
    let name = |line: usize| comparison.name(&comparison.lines[line]);
    let over = |line: usize| comparison.frame.get("pipeline_over_predicted", line);
    Some(format!(
        "a step takes {:.2} ({}) to {:.2} times ({}) what its schedule predicts; the least idle is {}, {} of the step.",
        over(least)?,
        name(least),
        over(most)?,
        name(most),
        name(least_idle),
        comparison.frame.written("pipeline_measured_idle", least_idle)?
    ))
}

/// `lr 0.01 answered 94.0 % of “test” rightly after training (95 % interval 91.2 % to 96.0 %) and 2.00 % before it.`: of each
/// test set, the method with the most right answers, and the baseline if that is another.
fn answered(comparison: &Comparison, groups: &[&Group]) -> Vec<String> {
    let of_group = |group| answers::pooled(comparison, group).into_iter().map(move |asked| (group, asked));
    let pooled = groups.iter().copied().flat_map(of_group).collect_vec();
    let of_set = |set: &str| {
        let all = pooled.iter().filter(|(_, of)| of.set == set);
        let (group, best) =
            all.clone().max_by(|a, b| a.1.after.accuracy().total_cmp(&b.1.after.accuracy()))?;
        let base = all.clone().find(|(base, _)| comparison.is_base(base) && base.method != group.method);
        let name = |group: &Group| comparison.said(group.method);
        let [low, high] = best.after.interval().map(share);
        let before = best.before.map(|before| format!(" and {} before it", share(before.accuracy())));
        let base =
            base.map(|(group, of)| format!("; {} answered {}", name(group), share(of.after.accuracy())));
        Some(format!(
            "{} answered {} of “{set}” rightly{} (95 % interval {low} to {high}){}{}.",
            name(group),
            share(best.after.accuracy()),
            if before.is_some() { " after training" } else { "" },
            before.unwrap_or_default(),
            base.unwrap_or_default()
        ))
    };
    pooled.iter().map(|(_, of)| of.set).unique().take(SETS).filter_map(of_set).collect()
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
    let evaluated = comparison.ranked("eval_perplexity", groups.iter().copied());
    let (first, most) = (*evaluated.first()?, *evaluated.last()?);
    let base = groups
        .iter()
        .find(|group| comparison.is_base(group) && evaluated.iter().any(|of| of.lines == group.lines));
    // What is lower than the baseline by chance is no better.
    let least = base.copied().filter(|base| !is_lower(comparison, first, base)).unwrap_or(first);
    let ended = |group: &&Group| {
        group.lines.iter().filter(|line| comparison.frame.get("eval_loss", **line).is_some()).count()
    };
    let seeds = medians_of(evaluated.iter().map(ended)).unwrap_or_else(|| "1 seed".into());
    let seeds = format!(" ({seeds})");
    if evaluated.len() == 1 {
        let first = least.lines.iter().find_map(|&i| comparison.lines[i].measured()?.evaluations.first());
        let before = first.filter(|of| of.step == 0).map(|of| Unit::Perplexity.write(of.perplexity()));
        let before = before.map_or(String::new(), |before| format!(", {before} before training"));
        return Some(format!(
            "held-out perplexity is {} after the last step{before}{seeds}.",
            written(least)
        ));
    }
    let lowest = match least.method == first.method {
        true => "the lowest",
        false => "than which none is lower with every seed",
    };
    let others = base.map(|base| (*base, "the baseline")).into_iter().chain([(most, "the highest")]);
    let others =
        others.filter(|(group, _)| group.method != least.method).unique_by(|(group, _)| group.method);
    let others = others.map(|(group, which)| format!("; {} with {}, {which}", written(group), name(group)));
    Some(format!(
        "held-out perplexity after the last step is {} with {}, {lowest}{}{seeds}.",
        written(least),
        name(least),
        others.collect::<String>()
    ))
}

/// Of how many seeds the methods' values are the medians, where one has several.
pub(super) fn medians_of(seeds: impl Iterator<Item = usize>) -> Option<String> {
    let (least, most) = seeds.minmax().into_option()?;
    match most {
        ..=1 => None,
        _ if least == most => Some(format!("medians of {most} seeds")),
        _ => Some(format!("medians of {least} to {most} seeds")),
    }
}

/// Whether a group's held-out loss is lower than another's at each size, and so each seed, that both have.
fn is_lower(comparison: &Comparison, group: &Group, other: &Group) -> bool {
    let loss =
        |line: &usize| Some((comparison.lines[*line].shape, comparison.frame.get("eval_loss", *line)?));
    let others: Vec<(usize, f64)> = other.lines.iter().filter_map(loss).collect();
    group
        .lines
        .iter()
        .filter_map(loss)
        .all(|(shape, loss)| others.iter().filter(|(of, _)| *of == shape).all(|(_, other)| loss < *other))
}

/// How much of the baseline's work is padding.
fn padding(comparison: &Comparison, groups: &[&Group]) -> Option<String> {
    const SHARE: &str = "padding_share";
    let base = *groups.iter().find(|group| comparison.is_base(group))?;
    comparison.of_group(SHARE, base).filter(|share| *share > 0.0)?;
    let written = comparison.written_of_group(SHARE, base)?;
    Some(format!("with {}, {written} of all tokens are padding.", comparison.said(base.method)))
}

/// The sampler with the most real tokens a second.
fn most_tokens(comparison: &Comparison, groups: &[&Group]) -> Option<String> {
    let first = *comparison.ranked("tokens_per_second", groups.iter().copied()).last()?;
    let base = groups.iter().find(|group| comparison.is_base(group))?;
    let written = comparison.written_of_group("tokens_per_second", first)?;
    let against = (first.method != base.method)
        .then(|| Ratio::new(comparison, "tokens_per_second", first, base))
        .flatten()
        .map(|ratio| format!(", {}", ratio.times(&format!("as many as {}", comparison.said(base.method)))));
    let name = comparison.said(first.method);
    Some(format!("{name} trains on the most real tokens a second: {written}{}.", against.unwrap_or_default()))
}

/// What all rungs gain together, and which one gains most.
fn ladder(comparison: &Comparison) -> Option<String> {
    const RATE: &str = "tokens_per_second";
    let stages = &comparison.recipe.report.ladder;
    let mut rungs = comparison.groups();
    rungs.retain(|group| comparison.of_group(RATE, group).is_some());
    rungs.sort_by_key(|group| group.lines[0]);
    let (first, last) = (rungs.first()?, rungs.last()?);
    let name = |group: &Group| stages.get(group.lines[0]).map(|stage| &stage.name);
    let steps = rungs
        .windows(2)
        .filter_map(|pair| Some((Ratio::new(comparison, RATE, &pair[1], &pair[0])?, &pair[1])));
    let (most, rung) = steps.max_by(|a, b| a.0.value.total_cmp(&b.0.value))?;
    let all = Ratio::new(comparison, RATE, last, first)?;
    Some(format!(
        "all rungs together train on {}, {} instead of {}; {} gains most, {}.",
        all.times(&format!("the real tokens a second of {}", name(first)?)),
        comparison.written_of_group(RATE, last)?,
        comparison.written_of_group(RATE, first)?,
        name(rung)?,
        most.times("the rung before")
    ))
}

/// Which cell is the first to reach the training loss that all reach, and when the baseline, or a ladder's first rung, does.
fn equal_loss(comparison: &Comparison) -> Option<String> {
    let fastest = *comparison.rising(EQUAL_LOSS).first()?;
    let base = comparison.having(EQUAL_LOSS).find(|&i| comparison.is_baseline(i))?;
    let losses = comparison.frame.of_rows("train_loss_final", comparison.having(EQUAL_LOSS));
    let written = |i: usize| comparison.frame.written(EQUAL_LOSS, i).unwrap_or_default();
    let name = |i: usize| comparison.name(&comparison.lines[i]);
    let against =
        if fastest == base { String::new() } else { format!("; {} after {}", name(base), written(base)) };
    Some(format!(
        "{} is the first at a training loss of {:.2} nats, which all that ran reach: after {}{against}.",
        name(fastest),
        losses.max()?,
        written(fastest)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_may_have_different_numbers_of_seeds() {
        let of = |seeds: &[usize]| medians_of(seeds.iter().copied());
        assert_eq!(of(&[1, 1]), None);
        assert_eq!(of(&[3, 3]).unwrap(), "medians of 3 seeds");
        assert_eq!(of(&[3, 1]).unwrap(), "medians of 1 to 3 seeds");
    }
}

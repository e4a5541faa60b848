//! [`Verdict`]: the answer to a recipe's question in at most three sentences, from rows alone: what each method costs and
//! saves against the baseline of its precision, and from which size it pays.

mod budgets;
mod class;

use std::collections::BTreeMap;

use super::interval::Ratio;
use super::outcome;
use super::prelude::*;
use crate::common::Bytes;
use crate::common::text::sentence;
use class::{Class, Rival};

/// Sentences of an answer.
const MOST: usize = 3;
/// The compared size, and the methods at it.
pub struct Verdict<'c> {
    comparison: &'c Comparison<'c>,
    /// Measured cells of one method, by problem.
    groups: BTreeMap<usize, Vec<Group>>,
    pub problem: usize,
    classes: Vec<Class<'c>>,
}

impl<'c> Verdict<'c> {
    /// `None` where nothing was measured.
    pub fn new(comparison: &'c Comparison<'c>) -> Option<Self> {
        let is_measured = |group: &Group| comparison.of_group("step_s_median", group).is_some();
        let measured = comparison.chosen().into_iter().filter(is_measured);
        let groups: BTreeMap<usize, Vec<Group>> =
            measured.into_group_map_by(|group| group.problem).into_iter().collect();
        // Where methods are compared, if there is such a size.
        let compared = groups.values().filter(|of| !Class::all(comparison, of).is_empty()).collect_vec();
        let all = groups.values().collect_vec();
        let problem = largest(comparison, if compared.is_empty() { &all } else { &compared })?;
        let classes = Class::all(comparison, &groups[&problem]);
        Some(Self { comparison, groups, problem, classes })
    }

    /// At most three sentences.
    pub fn sentences(&self) -> Vec<String> {
        let mut out = outcome::sentences(self.comparison, &self.of_problem().collect_vec());
        if let Some(within) = self.within_budgets() {
            out.extend(within);
        } else if self.comparison.recipe.report.ladder.is_empty() {
            let more = match self.classes.as_slice() {
                _ if self.comparison.compares_samplers() => self.smallest().into_iter().collect(),
                [] => self.alone().into_iter().collect(),
                [class] => self.of_class(class),
                classes if classes.len() < MOST => self.in_short(classes),
                _ => self.ends(),
            };
            out.extend(more);
        }
        out.truncate(MOST);
        out.into_iter().map(|text| marked_once(&sentence(&text))).collect()
    }

    /// Measured methods at the compared size.
    pub fn of_problem(&self) -> impl Iterator<Item = &Group> {
        self.groups[&self.problem].iter()
    }

    /// The groups that an answer names, by their first lines: baselines first.
    pub fn named(&self) -> Vec<usize> {
        if let Some(named) = self.named_within_budgets() {
            return named;
        }
        let bases = self.classes.iter().map(|class| class.base.lines[0]);
        let rivals = self.classes.iter().flat_map(|class| {
            let front = class.front();
            [class.chosen(), front.first().copied(), front.last().copied()].into_iter().flatten()
        });
        bases.chain(rivals.map(|rival| rival.group.lines[0])).unique().collect()
    }

    /// `at batch size 16, `; empty where there is one size.
    fn at(&self) -> String {
        self.size(self.problem).map_or(String::new(), |label| format!("at {label}, "))
    }

    /// A size among several.
    fn size(&self, problem: usize) -> Option<String> {
        let label = self.comparison.problem_label(problem);
        (self.comparison.problems() > 1 && !label.is_empty()).then_some(label)
    }

    /// The cost of the least memory, what saves some at no or little cost, and which to take or what other sizes show.
    fn of_class(&self, class: &Class) -> Vec<String> {
        let take = class.take(self.limit());
        // Where a method is recommended, other sizes matter if it pays at some of them alone.
        let sizes = class.mentioned().into_iter().filter_map(|rival| self.over_sizes(class, rival));
        let sizes = sizes.filter(|(_, pays)| take.is_none() || *pays).map(|(text, _)| text).collect_vec();
        let last = take.into_iter().chain(sizes).join("; ");
        let mut out = class.texts(MOST);
        out.extend((!last.is_empty()).then_some(last));
        out[0].insert_str(0, &self.at());
        out.into_iter().map(|text| format!("{text}.")).collect()
    }

    /// One sentence for each of two baselines, and as many methods in all as an answer has sentences.
    fn in_short(&self, classes: &[Class]) -> Vec<String> {
        let sentence = |(place, class): (usize, &Class)| {
            let (at, methods) = if place == 0 { (self.at(), MOST - 1) } else { (String::new(), 1) };
            format!("{at}{}{}.", class.name(classes), class.texts(methods).join("; "))
        };
        classes.iter().enumerate().map(sentence).collect()
    }

    /// The fastest method and the one with the least memory, where more baselines than sentences would be named.
    fn ends(&self) -> Vec<String> {
        let ((fastest, rate, memory), count) = (self.least("step_s_median"), self.of_problem().count());
        let fastest = format!("{}of {count} ways {fastest} is the fastest: {rate} in {memory}.", self.at());
        [fastest].into_iter().chain(self.smallest()).collect()
    }

    /// The method with the least memory, of several.
    fn smallest(&self) -> Option<String> {
        let (smallest, rate, memory) = self.least("live_peak_bytes");
        let several = self.of_problem().count() > 1;
        several.then(|| format!("{smallest} needs the least memory: {memory}, at {rate}."))
    }

    /// The method with the least of a column, its rate, and its memory.
    fn least(&self, column: &str) -> (String, String, String) {
        let group = self.comparison.ranked(column, self.of_problem())[0];
        (self.comparison.said(group.method), self.rate(group), memory(self.comparison, group))
    }

    /// `204,800 tokens/s (1 process)`, of what is no language model `20.0 ms a step`.
    fn rate(&self, group: &Group) -> String {
        let written = |column: &str| self.comparison.written_of_group(column, group).unwrap_or_default();
        let rate = match self.comparison.of_group("tokens_per_second", group) {
            Some(_) => format!("{} tokens/s", written("tokens_per_second")),
            None => format!("{} a step", written("step_s_median")),
        };
        match self.comparison.over_processes("step_s_median", &group.lines).len() {
            1 => format!("{rate} (1 process)"),
            _ => rate,
        }
    }

    /// The rate and memory of each size, where there is no choice of methods.
    fn alone(&self) -> Option<String> {
        let of_group = |group: &Group| {
            let written = |column: &str| self.comparison.written_of_group(column, group);
            let memory = memory(self.comparison, group);
            let tokens = written("tokens_per_second").map(|rate| format!("{rate} tokens/s"));
            let step = format!("{} a step", written("step_s_median")?);
            let numbers = tokens.into_iter().chain([step, memory]).join(", ");
            Some(format!("{}: {numbers}", self.comparison.name_of_group(group)))
        };
        let text = self.groups.values().flatten().filter_map(of_group).take(MOST).join("; ");
        (!text.is_empty()).then(|| format!("{text}."))
    }

    /// The memory limit that all cells of the size have: memory below it is free.
    fn limit(&self) -> Option<Bytes> {
        let cell = |group: &Group| self.comparison.lines[group.lines[0]].cell;
        self.of_problem().map(|group| cell(group).measure.memory_limit).all_equal_value().ok().flatten()
    }

    /// `over 3 sizes level 1 takes 1.07 at batch size 8 to 1.16 times as long at batch size 4`, and from which one on
    /// it is shorter; whether there is such a size.
    fn over_sizes(&self, class: &Class, rival: &Rival) -> Option<(String, bool)> {
        let comparison = self.comparison;
        let ratios = self.groups.iter().filter_map(|(&problem, groups)| {
            let find = |method: usize| groups.iter().find(|of| of.method == method);
            let (own, base) = (find(rival.group.method)?, find(class.base.method)?);
            let ratio = Ratio::of_times(comparison, own, base)?;
            Some((work(comparison, own), ratio, comparison.problem_label(problem)))
        });
        let ratios = ratios.sorted_by(|a, b| a.0.total_cmp(&b.0)).collect_vec();
        let ends = ratios.iter().minmax_by(|a, b| a.1.value.total_cmp(&b.1.value));
        let ((_, least, at_least), (_, most, at_most)) = ends.into_option()?;
        if ratios.len() < 2 || at_least.is_empty() {
            return None;
        }
        let shorter = ratios.iter().map(|(_, ratio, _)| ratio.is_shorter()).collect_vec();
        let first = shorter.iter().position(|shorter| *shorter).filter(|&first| first > 0);
        let first = first.filter(|&first| shorter[first..].iter().all(|shorter| *shorter));
        let pays = first.map(|first| format!(", and less time from {} on", ratios[first].2));
        let text = format!(
            "over {} sizes {} takes {least} at {at_least} to {} at {at_most}{}",
            ratios.len(),
            comparison.said(rival.group.method),
            most.times("as long"),
            pays.as_deref().unwrap_or_default()
        );
        Some((text, pays.is_some()))
    }
}

/// `in 9.12 GiB of tensors (10.1 GiB by the driver)`
fn memory(comparison: &Comparison, group: &Group) -> String {
    let written = |column: &str| comparison.written_of_group(column, group);
    let tensors = written("live_peak_bytes").unwrap_or_default();
    match written("driver_peak_bytes") {
        Some(driver) => format!("{tensors} of tensors ({driver} by the driver)"),
        None => tensors,
    }
}

/// A sentence says once that its ratios are of one process.
fn marked_once(sentence: &str) -> String {
    const MARK: &str = " (1 process)";
    match sentence.rsplit_once(MARK) {
        Some((before, after)) if before.contains(MARK) => {
            format!("{} (1 process each){after}", before.replace(MARK, ""))
        }
        _ => sentence.into(),
    }
}

/// Operations of a step, as the row counts them.
fn work(comparison: &Comparison, group: &Group) -> f64 {
    let of_line = |&line: &usize| {
        let measured = comparison.lines[line].measured()?;
        Some(measured.flops_per_second * measured.step.median)
    };
    group.lines.iter().find_map(of_line).unwrap_or_default()
}

/// The problem with the most work at which most of the methods were measured.
fn largest(comparison: &Comparison, problems: &[&Vec<Group>]) -> Option<usize> {
    let most = problems.iter().map(|groups| groups.len()).max()?;
    let full = problems.iter().filter(|groups| 2 * groups.len() > most).filter_map(|groups| groups.last());
    full.max_by(|a, b| work(comparison, a).total_cmp(&work(comparison, b))).map(|group| group.problem)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;

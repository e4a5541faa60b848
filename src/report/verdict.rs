//! [`Verdict`]: the answer to a recipe's question in at most three sentences, from rows alone: what each method costs and
//! saves against the baseline of its precision, and from which size it pays.

mod class;

use std::collections::BTreeMap;

use itertools::Itertools;

use super::interval::Ratio;
use super::outcome;
use super::table::{Comparison, Group};
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
    problem: usize,
    classes: Vec<Class<'c>>,
}

impl<'c> Verdict<'c> {
    /// `None` where nothing was measured.
    pub fn new(comparison: &'c Comparison<'c>) -> Option<Self> {
        let is_measured = |group: &Group| comparison.of_group("step_s_median", group).is_some();
        let mut groups: BTreeMap<usize, Vec<Group>> = BTreeMap::new();
        for group in comparison.groups().into_iter().filter(is_measured) {
            groups.entry(group.problem).or_default().push(group);
        }
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
        if self.comparison.recipe.report.ladder.is_empty() && !self.comparison.compares_samplers() {
            out.extend(match self.classes.as_slice() {
                [] => self.alone(),
                [class] => self.of_class(class),
                classes if classes.len() < MOST => self.in_short(classes),
                _ => self.ends(),
            });
        }
        out.truncate(MOST);
        out.into_iter().map(|text| marked_once(&sentence(&text))).collect()
    }

    /// The compared size.
    pub fn problem(&self) -> usize {
        self.problem
    }

    /// Measured methods at the compared size.
    pub fn of_problem(&self) -> impl Iterator<Item = &Group> {
        self.groups[&self.problem].iter()
    }

    /// The groups that an answer names, by their first lines: baselines first.
    pub fn named(&self) -> Vec<usize> {
        let bases = self.classes.iter().map(|class| class.base.lines[0]);
        let rivals = self.classes.iter().flat_map(|class| {
            let front = class.front();
            [class.chosen(), front.first().copied(), front.last().copied()].into_iter().flatten()
        });
        bases.chain(rivals.map(|rival| rival.group.lines[0])).unique().collect()
    }

    /// `at batch size 16, `; empty where there is one size.
    fn at(&self) -> String {
        let label = self.comparison.problem_label(self.problem);
        match self.comparison.problems() == 1 || label.is_empty() {
            true => String::new(),
            false => format!("at {label}, "),
        }
    }

    /// The cost of the least memory, what saves some at no or little cost, and which to take or what other sizes show.
    fn of_class(&self, class: &Class) -> Vec<String> {
        let at = self.at();
        let told = class.told();
        let mut out: Vec<String> =
            told.iter().enumerate().map(|(place, rival)| class.text(rival, place == 0)).collect();
        if let Some(first) = out.first_mut() {
            *first = format!("{at}{first}");
        }
        let take = class.take(self.limit());
        // Where a method is recommended, other sizes matter if it pays at some of them alone.
        let sizes = told.iter().filter_map(|rival| self.over_sizes(class, rival));
        let sizes = sizes.filter(|(_, pays)| take.is_none() || *pays).map(|(text, _)| text).collect_vec();
        let last = take.into_iter().chain(sizes).join("; ");
        out.extend((!last.is_empty()).then_some(last));
        out.into_iter().map(|text| format!("{text}.")).collect()
    }

    /// One sentence for each of two baselines, and as many methods in all as an answer has sentences.
    fn in_short(&self, classes: &[Class]) -> Vec<String> {
        let sentence = |(place, class): (usize, &Class)| {
            let at = if place == 0 { self.at() } else { String::new() };
            let methods = if place == 0 { MOST - 1 } else { 1 };
            let texts = class.told().into_iter().take(methods).enumerate();
            let texts = texts.map(|(place, rival)| class.text(rival, place == 0)).join("; ");
            format!("{at}{}{texts}.", class.name(classes))
        };
        classes.iter().enumerate().map(sentence).collect()
    }

    /// The fastest method and the one with the least memory, where more baselines than sentences would be named.
    fn ends(&self) -> Vec<String> {
        let comparison = self.comparison;
        let name = |group: &Group| comparison.said(group.method);
        let count = self.of_problem().count();
        let fastest = self.least("step_s_median").map(|group| {
            let (at, rate, memory) = (self.at(), self.rate(group), memory(comparison, group));
            format!("{at}of {count} ways {} is the fastest: {rate} in {memory}.", name(group))
        });
        let smallest = self.least("live_peak_bytes").map(|group| {
            let (rate, memory) = (self.rate(group), memory(comparison, group));
            format!("{} needs the least memory: {memory}, at {rate}.", name(group))
        });
        fastest.into_iter().chain(smallest).collect()
    }

    /// The method with the least of a column, at the compared size.
    fn least(&self, column: &str) -> Option<&Group> {
        let number = |group: &Group| self.comparison.of_group(column, group).unwrap_or(f64::INFINITY);
        self.of_problem().min_by(|a, b| number(a).total_cmp(&number(b)))
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
    fn alone(&self) -> Vec<String> {
        let of_group = |group: &Group| {
            let written = |column: &str| self.comparison.written_of_group(column, group);
            let memory = memory(self.comparison, group);
            let tokens =
                written("tokens_per_second").map_or(String::new(), |rate| format!("{rate} tokens/s, "));
            let (name, step) = (self.comparison.name_of_group(group), written("step_s_median")?);
            Some(format!("{name}: {tokens}{step} a step, {memory}"))
        };
        let text = self.groups.values().flatten().filter_map(of_group).take(MOST).join("; ");
        if text.is_empty() { Vec::new() } else { vec![format!("{text}.")] }
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
        let mut ratios = self.groups.iter().filter_map(|(&problem, groups)| {
            let find = |method: usize| groups.iter().find(|of| of.method == method);
            let (own, base) = (find(rival.group.method)?, find(class.base.method)?);
            Some((work(comparison, own), problem, Ratio::of_times(comparison, own, base)?))
        });
        let mut ratios: Vec<(f64, usize, Ratio)> = ratios.by_ref().collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let by_ratio = |a: &&(f64, usize, Ratio), b: &&(f64, usize, Ratio)| a.2.value.total_cmp(&b.2.value);
        let (least, most) = (ratios.iter().min_by(by_ratio)?, ratios.iter().max_by(by_ratio)?);
        let name = comparison.said(rival.group.method);
        let label = |problem: usize| comparison.problem_label(problem);
        if ratios.len() < 2 || label(least.1).is_empty() {
            return None;
        }
        let pays = ratios
            .iter()
            .position(|(.., ratio)| ratio.is_shorter())
            .filter(|&first| first > 0 && ratios[first..].iter().all(|(.., ratio)| ratio.is_shorter()));
        let pays = pays.map(|first| format!(", and less time from {} on", label(ratios[first].1)));
        let text = format!(
            "over {} sizes {name} takes {} at {} to {} at {}{}",
            ratios.len(),
            least.2,
            label(least.1),
            most.2.times("as long"),
            label(most.1),
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

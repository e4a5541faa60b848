//! [`Class`]: the methods of one size that are compared with one baseline.

use std::cmp::Ordering;

use super::MOST;
use crate::common::Bytes;
use crate::common::text::percent;
use crate::report::interval::Ratio;
use crate::report::labels;
use crate::report::pareto::{self, AS_MUCH};
use crate::report::prelude::*;

/// Where these differ, methods learn differently, and time and memory do not say which one to take.
const LEARNING: [&str; 6] =
    ["model", "tuning", "data", "train.optimizer", "train.schedule", "train.clip_norm"];

/// Methods of one size with one baseline, of their precision and kind of update.
pub struct Class<'c> {
    pub base: Group,
    others: Vec<Rival>,
    comparison: &'c Comparison<'c>,
}

/// A method beside its baseline.
#[derive(Clone)]
pub struct Rival {
    pub group: Group,
    /// Times.
    ratio: Ratio,
    /// Bytes of tensors at the peak.
    memory: f64,
}

impl<'c> Class<'c> {
    /// One for each baseline of the problem that another method is compared with; where all methods are baselines of
    /// their own precisions, these are compared.
    pub fn all(comparison: &'c Comparison<'c>, of_problem: &[Group]) -> Vec<Self> {
        let base_of = |group: &Group| {
            let base = group.lines.iter().find_map(|&line| comparison.lines[line].baseline)?;
            of_problem.iter().find(|of| of.lines.contains(&base))
        };
        let bases: Vec<&Group> =
            of_problem.iter().filter_map(base_of).unique_by(|base| base.lines[0]).collect();
        let is = |group: &Group, other: &Group| group.lines[0] == other.lines[0];
        let class = |base: &&Group| {
            let compared = |group: &&Group| base_of(group).is_some_and(|of| is(of, base)) && !is(group, base);
            let is_base = |group: &&Group| bases.iter().any(|base| is(base, group));
            let all = of_problem.iter().filter(compared);
            let (others, own): (Vec<&Group>, Vec<&Group>) = all.partition(is_base);
            let own = if own.is_empty() { others } else { own };
            let rivals = own.into_iter().filter_map(|group| Rival::new(comparison, group, base));
            let others: Vec<Rival> = rivals.collect();
            (!others.is_empty()).then(|| Self { base: (*base).clone(), others, comparison })
        };
        // What the recipe compares first comes first.
        let classes = bases.iter().filter_map(class);
        classes.sorted_by_key(|class| class.base.lines[0]).collect()
    }

    /// `with precision bf16, `: what this baseline has that others do not.
    pub fn name(&self, all: &[Self]) -> String {
        let settings = |class: &Self| &self.comparison.lines[class.base.lines[0]].settings;
        let differs = |key: &&String| !all.iter().map(|class| settings(class).get(*key)).all_equal();
        let keys: Vec<String> = self.comparison.recipe.swept.iter().filter(differs).cloned().collect();
        let label = labels::in_full(&keys, settings(self));
        if label.is_empty() { label } else { format!("with {label}, ") }
    }

    fn base_memory(&self) -> f64 {
        self.comparison.of_group("live_peak_bytes", &self.base).unwrap_or_default()
    }

    /// Methods that no other one, nor the baseline, beats in time and memory at once, by rising time.
    pub fn front(&self) -> Vec<&Rival> {
        let all = [&self.base].into_iter().chain(self.others.iter().map(|rival| &rival.group));
        let rival = |group: &Group| self.others.iter().find(|rival| rival.group.lines == group.lines);
        pareto::front(self.comparison, all).into_iter().filter_map(rival).collect()
    }

    /// The method with the least memory at no cost; else the one with the least product of time and memory, if that is less
    /// than the baseline's.
    pub fn chosen(&self) -> Option<&Rival> {
        let front = self.front();
        let free = front.iter().rev().find(|rival| rival.ratio.is_no_cost()).copied();
        let product = |rival: &&Rival| rival.ratio.value * rival.memory;
        free.or_else(|| {
            let best = front.into_iter().min_by(|a, b| product(a).total_cmp(&product(b)))?;
            (product(&best) < self.base_memory()).then_some(best)
        })
    }

    /// The methods that the answer tells of: the least memory, and a cheaper way to save, or the fastest; else the one that is
    /// nearest to the baseline.
    pub fn mentioned(&self) -> Vec<&Rival> {
        let front = self.front();
        let is_less = |rival: &&&Rival| rival.memory < AS_MUCH * self.base_memory();
        let least = front.last().filter(is_less).copied();
        let fastest = front.first().filter(|rival| rival.ratio.value < 1.0).copied();
        let all = [least, self.chosen(), fastest].into_iter().flatten().unique_by(|rival| rival.group.method);
        let mut all: Vec<&Rival> = all.take(MOST - 1).collect();
        if all.is_empty() {
            let nearest = |a: &&Rival, b: &&Rival| a.ratio.value.total_cmp(&b.ratio.value);
            all.extend(self.others.iter().min_by(nearest));
        }
        all
    }

    /// A text of each of them, of so many at most.
    pub fn texts(&self, most: usize) -> Vec<String> {
        let mentioned = self.mentioned().into_iter().take(most).enumerate();
        mentioned.map(|(place, rival)| self.text(rival, place == 0)).collect()
    }

    /// `level 1 makes a step 1.16 ± 0.02 times as long as level 0 and saves 4.50 MiB (20 %)`; the baseline is named in the first one.
    fn text(&self, rival: &Rival, first: bool) -> String {
        let name = self.comparison.said(rival.group.method);
        let change = self.change(rival);
        let is_free = rival.ratio.is_no_cost() && !rival.ratio.is_shorter();
        if is_free && rival.memory < AS_MUCH * self.base_memory() {
            return format!("{name} {change} at no cost ({})", rival.ratio.times("the time"));
        }
        let what = if self.comparison.with_samplers() { "the time of a real token" } else { "a step" };
        let base = || format!("as long as {}", self.comparison.said(self.base.method));
        let as_base = if first { base() } else { "as long".into() };
        format!("{name} makes {what} {} and {change}", rival.ratio.times(&as_base))
    }

    /// What a method saves of tensors, and by the driver where that is known.
    fn change(&self, rival: &Rival) -> String {
        let part = |column: &str| {
            let [own, base] = [&rival.group, &self.base].map(|of| self.comparison.of_group(column, of));
            let (own, base) = own.zip(base)?;
            let bytes = Bytes((own - base).abs() as u64);
            Some((bytes, percent(own / base - 1.0), own.total_cmp(&base)))
        };
        let Some((bytes, share, side)) = part("live_peak_bytes") else { return String::new() };
        let text = match side {
            Ordering::Equal => return "needs as much memory".into(),
            Ordering::Less => format!("saves {bytes} ({share})"),
            Ordering::Greater => format!("needs {bytes} more ({share})"),
        };
        match part("driver_peak_bytes").filter(|(.., of_driver)| *of_driver == side) {
            Some((bytes, share, _)) => format!("{text} of tensors, {bytes} ({share}) by the driver"),
            None => text,
        }
    }

    /// `take level 0.5; level 1 where its last 1.50 MiB decide`: only where the times of all have an interval and all learn alike.
    pub fn take(&self, limit: Option<Bytes>) -> Option<String> {
        let settings = |group: &Group| &self.comparison.lines[group.lines[0]].settings;
        let learns = |group: &Group| {
            let of = settings(group).iter().filter(|(key, _)| LEARNING.iter().any(|of| key.starts_with(of)));
            of.map(|(key, value)| (key.clone(), value.clone())).collect_vec()
        };
        let alike = self.others.iter().all(|rival| learns(&rival.group) == learns(&self.base));
        if !alike || !self.others.iter().all(|rival| rival.ratio.is_known()) {
            return None;
        }
        let front = self.front();
        let name = |rival: &Rival| self.comparison.said(rival.group.method);
        if let Some(limit) = limit {
            let fastest = front.first().filter(|rival| rival.ratio.is_shorter())?;
            return Some(format!(
                "all are held to {limit}, and memory below that is free: take {}",
                name(fastest)
            ));
        }
        let chosen = front.iter().rev().find(|rival| rival.ratio.is_no_cost())?;
        let least = front.last().filter(|least| least.group.method != chosen.group.method);
        let least = least.map_or(String::new(), |least| {
            let bytes = Bytes((chosen.memory - least.memory) as u64);
            format!("; {} where its last {bytes} decide", name(least))
        });
        Some(format!("take {}{least}", name(chosen)))
    }
}

impl Rival {
    fn new(comparison: &Comparison, group: &Group, base: &Group) -> Option<Self> {
        let ratio = Ratio::of_times(comparison, group, base)?;
        let memory = comparison.of_group("live_peak_bytes", group)?;
        Some(Self { group: group.clone(), ratio, memory })
    }
}

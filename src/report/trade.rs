//! Time against memory among the methods of one size: the fastest, the one with the least memory and its price, and which one to
//! take where.

use itertools::Itertools;

use super::choices::{SAVED, choices};
use super::differences::{are_of_one_build, is_slower};
use super::families::Family;
use super::labels::FEW;
use super::line::Line;
use super::pareto;
use super::table::{Comparison, Group};
use crate::measure::RankRecord;
use crate::row::Row;
use crate::words::Bytes;
use crate::words::text::{names, percent, ratio, sentence, verb};

/// The most that a step which needs less memory may be longer and still count as equal. Beyond, what may be chance may as well
/// be the price.
pub const NEAR: f64 = 1.1;
/// A step that is longer by less is as long to a reader, also where the difference is no chance.
const SAME: f64 = 1.01;

/// The fastest method of a family, the one with the least memory, and which to take by the free memory. `of_good`: only those
/// that learn as well as the baseline are in it; `are_with_update`: others at this size have none.
pub fn trade(comparison: &Comparison, family: &Family, of_good: bool, are_with_update: bool) -> Vec<String> {
    let trade = Trade::new(comparison, family, of_good, are_with_update);
    let front = trade.front();
    let (Some([quickest, fastest]), Some([_, least])) = (front.first(), front.last()) else {
        return Vec::new();
    };
    // Memory below a limit that all have is free.
    let limit = trade.limit();
    let fastest = if limit.is_some() { quickest } else { fastest };
    let first = [trade.fastest(quickest, fastest)];
    let first = first.into_iter().chain(against_baseline(comparison, trade.candidates, fastest)).join(" ");
    if let Some(limit) = limit {
        let take =
            format!("All are held to {limit}, and memory below that is free: take {}.", trade.name(fastest));
        return vec![first, take];
    }
    if least.method == fastest.method {
        let there = if at(comparison, fastest).is_empty() { "" } else { " there" };
        let less = if of_good { "None of the others" } else { "No other method" };
        let with = if trade.are_with_update { " with an update" } else { "" };
        let like = if family.name.is_empty() { String::new() } else { format!(" with {}", family.name) };
        let driver = |of: &Group| trade.value("driver_peak_bytes", of);
        let of_tensors = trade.candidates.iter().any(|of| driver(of) < driver(fastest));
        let memory = if of_tensors { "memory for tensors" } else { "memory" };
        let take = format!("{less}{like}{with} needs less {memory}{there}: take {}.", trade.name(fastest));
        return vec![first, take];
    }
    vec![first, trade.least(least, fastest), trade.choice(&front)]
}

/// `at batch size 4, `: the problem of a group, if there are several.
fn at(comparison: &Comparison, group: &Group) -> String {
    let label = comparison.problem_label(group.problem);
    match comparison.problems() == 1 || label.is_empty() {
        true => String::new(),
        false => format!("at {label}, "),
    }
}

/// The same where each device has an answer of its own, which names it.
pub fn on(comparison: &Comparison, group: &Group) -> String {
    if comparison.recipe.devices.is_empty() { String::new() } else { at(comparison, group) }
}

/// The methods of one size, of which one is to be taken.
struct Trade<'c> {
    comparison: &'c Comparison<'c>,
    candidates: &'c [&'c Group],
    of_good: bool,
    are_with_update: bool,
    /// The column of times, and what they are of.
    time: &'static str,
    of_what: &'static str,
    /// `with bf16, at batch size 4, `
    at: String,
    /// `with bf16, `, and the problem where each device has an answer of its own.
    on: String,
}

impl<'c> Trade<'c> {
    fn new(
        comparison: &'c Comparison<'c>,
        family: &'c Family<'c>,
        of_good: bool,
        are_with_update: bool,
    ) -> Self {
        let time = pareto::time(comparison);
        let of_what = if time == "step_s_median" { "a step" } else { "a real token" };
        let candidates = family.members.as_slice();
        let with = if family.name.is_empty() { String::new() } else { format!("with {}, ", family.name) };
        let (at, on) = (at(comparison, candidates[0]), on(comparison, candidates[0]));
        let [at, on] = [at, on].map(|place| format!("{with}{place}"));
        Self { comparison, candidates, of_good, are_with_update, time, of_what, at, on }
    }

    /// The limit of the device's memory that all candidates have, if there are several and they have one.
    fn limit(&self) -> Option<Bytes> {
        let mut limits = self.candidates.iter().map(|of| self.line(of).cell.measure.memory_limit);
        limits
            .next()
            .flatten()
            .filter(|first| self.candidates.len() > 1 && limits.all(|of| of == Some(*first)))
    }

    fn value(&self, column: &str, of: &Group) -> f64 {
        self.comparison.of_group(column, of).unwrap_or(f64::INFINITY)
    }

    fn written(&self, column: &str, of: &Group) -> String {
        self.comparison.written_of_group(column, of).unwrap_or_default()
    }

    fn name(&self, of: &Group) -> String {
        self.comparison.said(of.method)
    }

    fn line(&self, of: &Group) -> &'c Line<'c> {
        &self.comparison.lines[of.lines[0]]
    }

    fn ranks(&self, of: &Group) -> &'c [RankRecord] {
        self.line(of).measured().map_or(&[], |measured| &measured.ranks)
    }

    fn is_of_one_build(&self, a: &Group, b: &Group) -> bool {
        are_of_one_build(self.comparison, [&a.lines, &b.lines])
    }

    /// Whether a is not clearly slower than b. Of times of different builds nothing is known.
    fn is_alike(&self, a: &Group, b: &Group) -> bool {
        self.is_of_one_build(a, b) && !is_slower(self.comparison, a, b)
    }

    fn longer(&self, group: &Group, than: &Group) -> f64 {
        self.value(self.time, group) / self.value(self.time, than)
    }

    /// Of those that are as fast as the first of them, or slower by what may be chance: the first, and the one with the least
    /// memory.
    fn front(&self) -> Vec<[Group; 2]> {
        let near = |group: &Group, first: &Group| {
            let longer = self.longer(group, first);
            longer <= SAME || longer <= NEAR && self.is_alike(group, first)
        };
        let mut front: Vec<[Group; 2]> = Vec::new();
        for group in pareto::front_of(self.comparison, self.candidates.iter().map(|group| (*group).clone())) {
            match front.last_mut().filter(|[first, _]| near(&group, first)) {
                Some([_, least]) => *least = group,
                None => front.push([group.clone(), group]),
            }
        }
        front
    }

    /// ` (not clearly less than b and c)`: what may be as fast.
    fn rivals(&self, fastest: &Group) -> String {
        let few = |names_of: Vec<String>| match names_of.len() > FEW {
            true => format!("{} others", names_of.len()),
            false => names(&names_of),
        };
        let of = |which: &dyn Fn(&Group) -> bool| -> Option<String> {
            let some: Vec<String> =
                self.candidates.iter().filter(|of| which(of)).map(|of| self.name(of)).collect();
            (!some.is_empty()).then(|| few(some))
        };
        let rivals = of(&|of| of.method != fastest.method && self.is_alike(of, fastest));
        let of_other_builds = of(&|of| !self.is_of_one_build(of, fastest));
        let equal = [
            rivals.map(|rivals| format!("not clearly less than {rivals}")),
            of_other_builds.map(|others| format!("not compared with {others}, of another build")),
        ];
        let equal = equal.into_iter().flatten().join("; ");
        if equal.is_empty() { equal } else { format!(" ({equal})") }
    }

    fn fastest(&self, quickest: &Group, fastest: &Group) -> String {
        let [name, first] = [fastest, quickest].map(|of| self.name(of));
        let what = match quickest.method == fastest.method {
            true => format!("{name} {} the least time{}", verb(&name, "takes", "take"), self.rivals(fastest)),
            false => format!(
                "{first} {} the least time{}, {} {}; of those that take at most 1 % longer, or 10 % and not clearly so, \
                 {name} {} the least memory",
                verb(&first, "takes", "take"),
                self.rivals(quickest),
                self.written(self.time, quickest),
                self.of_what,
                verb(&name, "needs", "need"),
            ),
        };
        // A sampler's tokens are counted over the whole run, and its steps one by one.
        let of_run = match self.time == "step_s_median" {
            false => " over the whole run",
            true if self.line(fastest).waited() => {
                " over the whole run, in which the device also waited for its host"
            }
            true => "",
        };
        sentence(&format!(
            "{}{}{what}: {} {}, {} tokens a second{of_run}, in {}{}.",
            match (self.of_good, self.are_with_update) {
                (true, false) => "of these, ",
                (true, true) => "of these with an update, ",
                (false, true) => "of the methods with an update, ",
                (false, false) => "",
            },
            self.at,
            self.written(self.time, fastest),
            self.of_what,
            self.written("tokens_per_second", fastest),
            self.memory(fastest),
            self.and_host(fastest)
        ))
    }

    fn least(&self, least: &Group, fastest: &Group) -> String {
        let (name, times) = (self.name(fastest), ratio(self.longer(least, fastest)));
        let price = match (is_slower(self.comparison, least, fastest), self.is_alike(least, fastest)) {
            (true, _) => format!("{times} the time of {name}"),
            (false, true) => format!("a time that is not clearly longer than that of {name} ({times})"),
            (false, false) => format!("{times} the time of {name}, which another build measured"),
        };
        let saved = 1.0 - self.value("live_peak_bytes", least) / self.value("live_peak_bytes", fastest);
        format!(
            "{} {} the least memory{}: {}, {} less, for {price}{}.",
            sentence(&format!("{}{}", self.on, self.name(least))),
            verb(&self.name(least), "needs", "need"),
            if self.of_good || self.are_with_update { " of them" } else { "" },
            self.memory(least),
            percent(saved),
            self.and_host(least)
        )
    }

    fn choice(&self, front: &[[Group; 2]]) -> String {
        let room = |of: &Group| {
            let bytes = self.written("live_peak_bytes", of);
            format!("{} where {bytes} are free for tensors{}", self.name(of), self.on_each(of))
        };
        let point = |of: &Group| [self.value(self.time, of), self.value("live_peak_bytes", of)].map(f64::ln);
        let points: Vec<[f64; 2]> = front.iter().map(|[_, of]| point(of)).collect();
        let chosen = match choices(&points).as_slice() {
            [only] => self.name(&front[*only][1]),
            several => several.iter().map(|i| room(&front[*i][1])).join(", else "),
        };
        sentence(&format!("{}take {chosen}.", self.on))
    }

    fn memory(&self, of: &Group) -> String {
        format!("{}{}{}", memory(|column| self.written(column, of)), self.on_each(of), self.together(of))
    }

    /// ` on each GPU`, of a group of several ranks: memory is that of the rank with the most.
    fn on_each(&self, of: &Group) -> String {
        let Some(least) = self.ranks(of).iter().map(|rank| rank.memory.live_peak).min() else {
            return String::new();
        };
        let place = if self.line(of).row.is_some_and(Row::is_on_cpu) { "rank" } else { "GPU" };
        let most = self.comparison.of_group("live_peak_bytes", of).unwrap_or_default();
        match least as f64 >= most * (1.0 - SAVED) {
            true => format!(" on each {place}"),
            false => format!(" on the {place} with the most"),
        }
    }

    /// `, 63.0 MiB together`: ranks on one CPU share its memory.
    fn together(&self, of: &Group) -> String {
        let on_cpu = self.line(of).row.is_some_and(Row::is_on_cpu);
        let sum: u64 = self.ranks(of).iter().map(|rank| rank.memory.live_peak).sum();
        if on_cpu && sum > 0 { format!(", {} together", Bytes(sum)) } else { String::new() }
    }

    /// `, and 23.0 GiB of the host's memory for all ranks`
    fn and_host(&self, of: &Group) -> String {
        let of_rank =
            |rank: &RankRecord| [rank.memory.pinned, rank.memory.host].into_iter().flatten().sum::<u64>();
        let of_ranks = self.ranks(of).iter().map(of_rank);
        let columns = ["pinned_bytes", "host_bytes"];
        let (bytes, whose) = match of_ranks.len() {
            0 => (columns.iter().filter_map(|column| self.comparison.of_group(column, of)).sum(), ""),
            _ => (of_ranks.sum::<u64>() as f64, " for all ranks"),
        };
        match bytes > 0.0 {
            true => format!(", and {} of the host's memory{whose}", Bytes(bytes as u64)),
            false => String::new(),
        }
    }
}

/// `9.12 GiB of tensors (10.1 GiB by the driver)`, of written columns.
pub fn memory(written: impl Fn(&str) -> String) -> String {
    let (tensors, driver) = (written("live_peak_bytes"), written("driver_peak_bytes"));
    if driver.is_empty() { tensors } else { format!("{tensors} of tensors ({driver} by the driver)") }
}

/// How many times the fastest group's time its baseline takes, where that is one of the candidates.
fn against_baseline(comparison: &Comparison, candidates: &[&Group], fastest: &Group) -> Option<String> {
    let base = fastest.lines.iter().find_map(|&line| comparison.lines[line].baseline)?;
    let base = candidates.iter().find(|group| group.lines.contains(&base))?;
    let time = |group: &Group| comparison.of_group(pareto::time(comparison), group);
    let (name, times) = (comparison.said(base.method), ratio(time(base)? / time(fastest)?));
    is_slower(comparison, base, fastest).then(|| format!("The baseline, {name}, takes {times} that time."))
}

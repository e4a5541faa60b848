//! Time against memory among the methods of one size: the fastest, the one with the least memory and its price, and which one to
//! take where.

use itertools::Itertools;

use super::answers;
use super::differences::{are_of_one_build, is_slower};
use super::labels::FEW;
use super::pareto;
use super::table::{Comparison, Group};
use crate::measure::{Measurement, RankRecord};
use crate::row::Row;
use crate::words::Bytes;
use crate::words::text::{names, percent, ratio, sentence, verb};

/// The most that a step which needs less memory may be longer and still count as equal. Beyond, what may be chance may as well
/// be the price.
pub const NEAR: f64 = 1.1;
/// A step that is longer by less is as long to a reader, also where the difference is no chance.
const SAME: f64 = 1.01;
/// A run whose steps took longer by more in the mean than in the median has waited.
const WAITED: f64 = 1.05;
/// Methods to choose among by the free memory.
const CHOICES: usize = 4;
/// What saves less than this share of the memory is no choice: nobody has just that much.
const SAVED: f64 = 0.01;

/// ` on each GPU`, of a group of several ranks: memory is that of the rank with the most.
fn on_each(comparison: &Comparison, group: &Group) -> String {
    let line = &comparison.lines[group.lines[0]];
    let Some(least) = ranks(comparison, group).iter().map(|rank| rank.memory.live_peak).min() else {
        return String::new();
    };
    let place = if line.row.is_some_and(Row::is_on_cpu) { "rank" } else { "GPU" };
    let most = comparison.of_group("live_peak_bytes", group).unwrap_or_default();
    match least as f64 >= most * (1.0 - SAVED) {
        true => format!(" on each {place}"),
        false => format!(" on the {place} with the most"),
    }
}

/// `, 63.0 MiB together`: ranks on one CPU share its memory.
fn together(comparison: &Comparison, group: &Group) -> String {
    let on_cpu = comparison.lines[group.lines[0]].row.is_some_and(Row::is_on_cpu);
    let sum: u64 = ranks(comparison, group).iter().map(|rank| rank.memory.live_peak).sum();
    if on_cpu && sum > 0 { format!(", {} together", Bytes(sum)) } else { String::new() }
}

fn ranks<'c>(comparison: &'c Comparison, group: &Group) -> &'c [RankRecord] {
    comparison.lines[group.lines[0]].measured().map_or(&[], |measured| &measured.ranks)
}

/// The fastest method, the one with the least memory, and which to take by the free memory. `of_good`: only those that learn as
/// well as the baseline are candidates.
pub fn trade(comparison: &Comparison, candidates: &[&Group], of_good: bool) -> Vec<String> {
    let problem = candidates[0].problem;
    let time = pareto::time(comparison);
    let value = |column: &str, of: &Group| comparison.of_group(column, of).unwrap_or(f64::INFINITY);
    let written = |column: &str, of: &Group| comparison.written_of_group(column, of).unwrap_or_default();
    let memory = |of: &Group| {
        let (most, of_all) = (on_each(comparison, of), together(comparison, of));
        format!("{}{most}{of_all}", memory(|column| written(column, of)))
    };
    let name = |of: &Group| comparison.said(of.method);
    let slower = |a: &Group, b: &Group| is_slower(comparison, a, b);
    // Of times of different builds nothing is known.
    let alike = |a: &Group, b: &Group| are_of_one_build(comparison, [&a.lines, &b.lines]) && !slower(a, b);
    let of_what = if time == "step_s_median" { "a step" } else { "a real token" };
    let label = comparison.problem_label(problem);
    let at = match comparison.problems() == 1 || label.is_empty() {
        true => String::new(),
        false => format!("at {label}, "),
    };
    let longer = |group: &Group, than: &Group| value(time, group) / value(time, than);
    let near = |group: &Group, first: &Group| {
        let longer = longer(group, first);
        longer <= SAME || longer <= NEAR && alike(group, first)
    };
    // Of those that are as fast as the first of them, or slower by what may be chance: the first, and the one with the least
    // memory.
    let mut front: Vec<[Group; 2]> = Vec::new();
    for group in pareto::front_of(comparison, candidates.iter().map(|group| (*group).clone())) {
        match front.last_mut().filter(|[first, _]| near(&group, first)) {
            Some([_, least]) => *least = group,
            None => front.push([group.clone(), group]),
        }
    }
    let (Some([quickest, fastest]), Some([_, least])) = (front.first(), front.last()) else {
        return Vec::new();
    };
    let rivals = candidates.iter().filter(|of| of.method != fastest.method && alike(of, fastest));
    let rivals: Vec<String> = rivals.map(|of| name(of)).collect();
    let of_other_builds =
        candidates.iter().filter(|of| !are_of_one_build(comparison, [&of.lines, &fastest.lines]));
    let of_other_builds: Vec<String> = of_other_builds.map(|of| name(of)).collect();
    let few = |rivals: &[String]| match rivals.len() > FEW {
        true => format!("{} others", rivals.len()),
        false => names(rivals),
    };
    let equal = [
        (!rivals.is_empty()).then(|| format!("not clearly less than {}", few(&rivals))),
        (!of_other_builds.is_empty())
            .then(|| format!("not compared with {}, of another build", few(&of_other_builds))),
    ];
    let equal = equal.into_iter().flatten().join("; ");
    let equal = if equal.is_empty() { equal } else { format!(" ({equal})") };
    let what = match quickest.method == fastest.method {
        true => format!("{} {} the least time{equal}", name(fastest), verb(&name(fastest), "takes", "take")),
        false => format!(
            "{} {} the least time, {} {of_what}, but {} not clearly faster than all others; of those that take at \
             most 1 % longer, or 10 % and not clearly so, {} {} the least memory",
            name(quickest),
            verb(&name(quickest), "takes", "take"),
            written(time, quickest),
            verb(&name(quickest), "is", "are"),
            name(fastest),
            verb(&name(fastest), "needs", "need"),
        ),
    };
    let among = if of_good { "of these, " } else { "" };
    let and_host = |of: &Group| {
        let columns = ["pinned_bytes", "host_bytes"];
        let of_rank =
            |rank: &RankRecord| [rank.memory.pinned, rank.memory.host].into_iter().flatten().sum::<u64>();
        let of_ranks = ranks(comparison, of).iter().map(of_rank);
        let (bytes, whose) = match of_ranks.len() {
            0 => (columns.iter().filter_map(|column| comparison.of_group(column, of)).sum(), ""),
            _ => (of_ranks.sum::<u64>() as f64, " for all ranks"),
        };
        match bytes > 0.0 {
            true => format!(", and {} of the host's memory{whose}", Bytes(bytes as u64)),
            false => String::new(),
        }
    };
    // A sampler's tokens are counted over the whole run, and its steps one by one.
    let of_run = match time == "step_s_median" {
        false => " over the whole run",
        true if waits(comparison, fastest) => {
            " over the whole run, in which the device also waited for its host"
        }
        true => "",
    };
    let first = sentence(&format!(
        "{among}{at}{what}: {} {of_what}, {} tokens a second{of_run}, in {}{}.",
        written(time, fastest),
        written("tokens_per_second", fastest),
        memory(fastest),
        and_host(fastest)
    ));
    let first = [first].into_iter().chain(against_baseline(comparison, candidates, fastest)).join(" ");
    let compared =
        of_good || comparison.having("eval_perplexity").next().is_some() || answers::are_asked(comparison);
    let unlike = if compared { String::new() } else { unlike(comparison, candidates) };
    if least.method == fastest.method {
        let there = if at.is_empty() { "" } else { " there" };
        let take = format!("No other method needs less memory{there}: take {}.", name(fastest));
        return vec![first, take + &unlike];
    }
    let saved = 1.0 - value("live_peak_bytes", least) / value("live_peak_bytes", fastest);
    let times = ratio(longer(least, fastest));
    let price = match (slower(least, fastest), alike(least, fastest)) {
        (true, _) => format!("{times} the time of {}", name(fastest)),
        (false, true) => {
            format!("a time that is not clearly longer than that of {} ({times})", name(fastest))
        }
        (false, false) => format!("{times} the time of {}, which another build measured", name(fastest)),
    };
    // Each device has an answer of its own, which names it.
    let on = if comparison.recipe.devices.is_empty() { "" } else { &at };
    let named = sentence(&format!("{on}{}", name(least)));
    let second = format!(
        "{named} {} the least memory{}: {}, {} less, for {price}{}.",
        verb(&name(least), "needs", "need"),
        if of_good { " of them" } else { "" },
        memory(least),
        percent(saved),
        and_host(least)
    );
    let room = |of: &Group| {
        let bytes = written("live_peak_bytes", of);
        format!("{} where {bytes} are free for tensors{}", name(of), on_each(comparison, of))
    };
    let points: Vec<[f64; 2]> =
        front.iter().map(|[_, of]| [value(time, of), value("live_peak_bytes", of)].map(f64::ln)).collect();
    let chosen = match choices(&points).as_slice() {
        [only] => name(&front[*only][1]),
        several => several.iter().map(|i| room(&front[*i][1])).join(", else "),
    };
    let take = sentence(&format!("{on}take {chosen}.{unlike}"));
    vec![first, second, take]
}

/// Whether steps on a GPU took clearly longer over the whole run than their median by device events says.
fn waits(comparison: &Comparison, group: &Group) -> bool {
    let of_run = |measured: &Measurement| Some(measured.run_seconds? / measured.step.seconds.len() as f64);
    let line = &comparison.lines[group.lines[0]];
    let on_gpu = line.row.is_some_and(|row| !row.is_on_cpu());
    line.measured()
        .filter(|_| on_gpu)
        .is_some_and(|m| of_run(m).is_some_and(|of_run| of_run > WAITED * m.step.median))
}

/// `9.12 GiB of tensors (10.1 GiB by the driver)`, of written columns.
pub fn memory(written: impl Fn(&str) -> String) -> String {
    let (tensors, driver) = (written("live_peak_bytes"), written("driver_peak_bytes"));
    if driver.is_empty() { tensors } else { format!("{tensors} of tensors ({driver} by the driver)") }
}

/// Settings that change what is learned.
const LEARNING: [(&str, &str); 3] =
    [("precision.compute", "precision"), ("train.optimizer.kind", "optimizer"), ("tuning.method", "tuning")];

/// What the candidates differ in that changes what they learn, where nothing compares that.
fn unlike(comparison: &Comparison, candidates: &[&Group]) -> String {
    let differs = |key: &str| {
        !candidates.iter().map(|group| comparison.lines[group.lines[0]].settings.get(key)).all_equal()
    };
    let cell = |group: &&Group| comparison.lines[group.lines[0]].cell;
    let learn = candidates.iter().all(|group| cell(group).train.optimizer.rule().is_some());
    let of: Vec<&str> = LEARNING.iter().filter(|(key, _)| differs(key)).map(|(_, name)| *name).collect();
    match of.is_empty() || !learn {
        true => String::new(),
        false => format!(" The methods differ in {}; what they learn was not compared.", names(&of)),
    }
}

/// How many times the fastest group's time its baseline takes, where that is one of the candidates.
fn against_baseline(comparison: &Comparison, candidates: &[&Group], fastest: &Group) -> Option<String> {
    let base = fastest.lines.iter().find_map(|&line| comparison.lines[line].baseline)?;
    let base = candidates.iter().find(|group| group.lines.contains(&base))?;
    let time = |group: &Group| comparison.of_group(pareto::time(comparison), group);
    let (name, times) = (comparison.said(base.method), ratio(time(base)? / time(fastest)?));
    is_slower(comparison, base, fastest).then(|| format!("The baseline, {name}, takes {times} that time."))
}

/// The points of a front, logarithms of time and memory by rising time, that a reader chooses among. Of those that save
/// enough of the one before: the first, the last, and those between with which the time is the least in the mean over the
/// memories that may be free.
fn choices(points: &[[f64; 2]]) -> Vec<usize> {
    let mut clear: Vec<usize> = Vec::new();
    for (i, [_, memory]) in points.iter().enumerate() {
        if clear.last().is_none_or(|before| memory - points[*before][1] <= (1.0 - SAVED).ln()) {
            clear.push(i);
        }
    }
    let last = clear.len() - 1;
    if clear.len() <= CHOICES {
        return clear;
    }
    let with = |between: Vec<usize>| -> Vec<usize> {
        [vec![0], between, vec![last]].concat().into_iter().map(|i| clear[i]).collect()
    };
    // With less memory than one point needs, and as much as the next one does, that one is taken.
    let time = |chosen: &Vec<usize>| -> f64 {
        let steps = chosen.windows(2).map(|pair| (points[pair[0]], points[pair[1]]));
        steps.map(|([_, memory], [time, next])| (memory - next) * time).sum()
    };
    let all = (1..last).combinations(CHOICES - 2).map(with);
    all.min_by(|a, b| time(a).total_cmp(&time(b))).expect("points between the first and the last")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times 1 to 32 and memories 32 to 1: of the four between, the two after the largest steps of memory.
    #[test]
    fn a_front_of_many_is_told_by_four() {
        let front = [[1.0, 32.0], [2.0, 30.0], [3.0, 8.0], [4.0, 7.5], [5.0, 2.0], [32.0, 1.0]];
        assert_eq!(choices(&front.map(|point| point.map(f64::ln))), [0, 2, 4, 5]);
        assert_eq!(choices(&[[0.0, 1.0], [1.0, 0.0]]), [0, 1]);
        // Half a percent less, and then one in all.
        let hardly = [[1.0, 1.65], [2.0, 1.642], [3.0, 1.633], [4.0, 1.63]];
        assert_eq!(choices(&hardly.map(|point| point.map(f64::ln))), [0, 2]);
    }
}

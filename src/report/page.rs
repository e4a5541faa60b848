//! Page 1 of a report: its table of at most eight methods, its figure, and what each method does.

use itertools::Itertools;
use serde_json::Value;

use super::document::Table;
use super::interval::{Ratio, with_half_width};
use super::learning::is_evaluated;
use super::statistics::half_width;
use super::table::{Comparison, Group};
use super::units::Unit;
use super::verdict::Verdict;
use super::{answers, labels, limits};
use crate::common::Bytes;
use crate::common::text::{self, counted, sentence};
use crate::keys::is_within;
use crate::recipe::keys::{self, is_repetition, is_size};
use crate::row::Status;

/// Rows of the table.
const ROWS: usize = 8;
/// What stands behind a rate that is that of the host.
const WAITS: &str = "*";

/// The methods of the table: at the compared size those that the answer names and the first of the others, in the recipe's order;
/// each size where no methods are compared; the rungs of a ladder.
pub fn shown(comparison: &Comparison, verdict: Option<&Verdict>) -> Vec<Group> {
    let mut groups = comparison.groups();
    groups.sort_by_key(|group| group.lines[0]);
    if comparison.recipe.report.ladder.is_empty()
        && let Some(verdict) = verdict
    {
        let problem = verdict.problem();
        if groups.iter().filter(|group| group.problem == problem).count() > 1 {
            groups.retain(|group| group.problem == problem);
        }
        let named = verdict.named();
        let rank =
            |group: &Group| named.iter().position(|line| *line == group.lines[0]).unwrap_or(named.len());
        groups.sort_by_key(rank);
    }
    groups.truncate(ROWS);
    groups.sort_by_key(|group| group.lines[0]);
    groups
}

/// Methods with memory, rate and ratio of times, of these groups.
pub fn table(comparison: &Comparison, groups: &[Group]) -> Option<Table> {
    let ratios: Vec<Option<Ratio>> = groups.iter().map(|group| ratio(comparison, groups, group)).collect();
    let known = ratios.iter().flatten().any(|ratio| ratio.is_known());
    let names = names(comparison, groups);
    let texts = names.len();
    let mut columns = names;
    columns.extend(numbers(comparison, groups));
    let written = ratios
        .iter()
        .map(|ratio| ratio.map(|ratio| if known { ratio.to_string() } else { ratio.value_alone() }));
    let of = if comparison.recipe.report.ladder.is_empty() { "× time" } else { "× row before" };
    let heading = if known { of.to_string() } else { format!("{of} (1 process)") };
    columns.push((heading, written.collect()));
    columns.extend(learned(comparison, groups));
    columns.retain(|(_, values)| values.iter().any(Option::is_some));
    let row = |i: usize| {
        let value =
            |(_, values): &(String, Vec<Option<String>>)| values[i].clone().unwrap_or_else(|| "–".into());
        columns.iter().map(value).collect()
    };
    Some(Table {
        caption: caption(comparison, groups, &ratios),
        header: columns.iter().map(|(heading, _)| heading.clone()).collect(),
        rows: (0..groups.len()).map(row).collect(),
        texts,
        left_out: 0,
    })
    .filter(|table| !table.rows.is_empty())
}

type Column = (String, Vec<Option<String>>);

fn column(heading: &str, groups: &[Group], value: impl Fn(&Group) -> Option<String>) -> Column {
    (heading.into(), groups.iter().map(value).collect())
}

/// Sizes and methods, as far as they vary.
fn names(comparison: &Comparison, groups: &[Group]) -> Vec<Column> {
    let sizes = groups.iter().map(|group| group.problem).unique().count() > 1;
    let size = column("size", groups, |group| Some(comparison.problem_label(group.problem)));
    let method = column("method", groups, |group| Some(comparison.methods[group.method].clone()));
    let several = comparison.methods.len() > 1 || !sizes;
    sizes.then_some(size).into_iter().chain(several.then_some(method)).collect()
}

/// The column of the rate and its heading: tokens a second of a language model, else the step time.
pub fn rate(comparison: &Comparison) -> (&'static str, &'static str) {
    let is_language = comparison.lines.iter().any(|line| line.settings.contains_key("model.vocab_size"));
    if is_language { ("tokens_per_second", "tokens/s") } else { ("step_s_median", "step time") }
}

/// The name of a row in the figure.
pub fn name(comparison: &Comparison, groups: &[Group], group: &Group) -> String {
    let (size, method) = (comparison.problem_label(group.problem), comparison.methods[group.method].clone());
    let several = groups.iter().map(|group| group.problem).unique().count() > 1;
    match (several, comparison.methods.len() > 1) {
        (false, _) => method,
        (true, false) => size,
        (true, true) => format!("{method}, {size}"),
    }
}

/// Memory of each kind and the rate.
fn numbers(comparison: &Comparison, groups: &[Group]) -> Vec<Column> {
    let written = |name: &'static str| move |group: &Group| comparison.written_of_group(name, group);
    let host = |group: &Group| {
        let parts = ["pinned_bytes", "host_bytes"].map(|name| comparison.of_group(name, group));
        let bytes: f64 = parts.into_iter().flatten().sum();
        (bytes > 0.0).then(|| Bytes(bytes as u64).to_string())
    };
    let (rate, heading) = rate(comparison);
    let driver = comparison.having("driver_peak_bytes").next().is_some();
    vec![
        column("device memory, by the driver", groups, written("driver_peak_bytes")),
        column(if driver { "of it in tensors" } else { "peak memory" }, groups, written("live_peak_bytes")),
        column("host memory", groups, host),
        column(heading, groups, |group| measured_rate(comparison, rate, group)),
    ]
}

/// A rate or time with its interval, or how a cell without one ended.
fn measured_rate(comparison: &Comparison, name: &str, group: &Group) -> Option<String> {
    let lines = || group.lines.iter().map(|&line| &comparison.lines[line]);
    let Some(value) = comparison.of_group(name, group) else {
        return lines().map(super::line::Line::status).find(|status| *status != Status::Ok.to_string());
    };
    let half = half_width(&comparison.over_processes(name, &group.lines));
    let mark = if lines().any(limits::waits_for_host) { WAITS } else { "" };
    Some(with_half_width(comparison.frame.unit(name), value, half) + mark)
}

/// To the baseline, or on a ladder to the row before.
fn ratio(comparison: &Comparison, groups: &[Group], group: &Group) -> Option<Ratio> {
    if !comparison.recipe.report.ladder.is_empty() {
        let place = groups.iter().position(|of| of.lines == group.lines)?;
        let before = groups.get(place.checked_sub(1)?)?;
        return Ratio::new(comparison, "tokens_per_second", group, before);
    }
    let base = group.lines.iter().find_map(|&line| comparison.lines[line].baseline)?;
    let base = comparison.groups().into_iter().find(|of| of.lines.contains(&base))?;
    (base.lines != group.lines).then(|| Ratio::of_times(comparison, group, &base)).flatten()
}

/// Held-out perplexity, and right answers to the first test set, of all seeds together.
fn learned(comparison: &Comparison, groups: &[Group]) -> Vec<Column> {
    let written = |name: &'static str| move |group: &Group| comparison.written_of_group(name, group);
    let perplexity = column("held-out perplexity", groups, written("eval_perplexity"));
    let answered = |group: &Group| answers::pooled(comparison, group).into_iter().next();
    let share = |value: f64| Unit::FineShare.write(value);
    let before = column("right before", groups, |group| Some(share(answered(group)?.before?.accuracy())));
    let right = column("right answers", groups, |group| Some(share(answered(group)?.after.accuracy())));
    is_evaluated(comparison).then_some(perplexity).into_iter().chain([before, right]).collect()
}

fn caption(comparison: &Comparison, groups: &[Group], ratios: &[Option<Ratio>]) -> String {
    let mut parts = Vec::new();
    let one_size = groups.iter().map(|group| group.problem).all_equal();
    let label = groups.first().map(|group| comparison.problem_label(group.problem)).unwrap_or_default();
    if one_size && comparison.problems() > 1 {
        parts.push(format!("At {label}"));
    }
    parts.extend(comparison.size_note().map(|note| sentence(&note)));
    if ratios.iter().any(Option::is_some) {
        parts.push(match comparison.recipe.report.ladder.is_empty() {
            true if comparison.with_samplers() => {
                "× is the ratio of the time of a real token to the baseline's".into()
            }
            true => "× is the ratio of step times to the baseline's".into(),
            false => "× is the ratio of real tokens a second to the row before".into(),
        });
    }
    let processes = |group: &Group| comparison.over_processes("step_s_median", &group.lines).len();
    parts.push(match groups.iter().map(processes).max() {
        Some(2..) => "± is half of a 95 % interval over processes".into(),
        _ => "Each cell ran in 1 process, so no difference in time is claimed".into(),
    });
    let waits =
        |group: &Group| group.lines.iter().any(|&line| limits::waits_for_host(&comparison.lines[line]));
    if groups.iter().any(waits) {
        parts.push(format!("{WAITS}: the device waits for its host"));
    }
    let more = comparison.groups().len() - groups.len();
    if more > 0 {
        parts.push(format!("{} in the appendix", counted(more, "more method")));
    }
    parts.iter().map(|part| format!("{part}.")).join(" ")
}

/// What each technique of these methods does, by the sentence beside its keys; on a ladder what each rung is for.
pub fn techniques(comparison: &Comparison, groups: &[Group]) -> Vec<String> {
    let ladder = &comparison.recipe.report.ladder;
    if !ladder.is_empty() {
        let why = ladder.iter().filter(|stage| !stage.why.is_empty());
        return why.map(|stage| format!("{}: {}", sentence(&stage.name), stage.why)).collect();
    }
    let settings = |group: &Group| &comparison.lines[group.lines[0]].settings;
    let is_technique = |key: &&String| {
        !is_size(key) && !is_repetition(key) && *key != labels::DEVICE && !is_within(key, "measure")
    };
    let keys = comparison.recipe.telling.iter().filter(is_technique);
    let of_key = |key: &String| -> Vec<String> {
        let values =
            groups.iter().filter_map(|group| settings(group).get(key)).unique_by(ToString::to_string);
        let values: Vec<&Value> = values.collect();
        let kinds = values.iter().filter_map(|value| {
            Some(format!(
                "{} {} – {}",
                labels::size_name(key),
                text::value(value),
                kind(key, value.as_str()?)?
            ))
        });
        let kinds = kinds.collect_vec();
        let entry = keys::find(key).filter(|entry| !entry.key.doc.is_empty() && kinds.is_empty());
        let whole = entry.map(|entry| format!("{} – {}", entry.key.label(), entry.key.doc));
        kinds.into_iter().chain(whole).collect()
    };
    let all = keys.flat_map(of_key).unique();
    all.map(|text| sentence(&text.replace('`', ""))).collect()
}

/// The line of documentation of the kind that a key chooses.
fn kind(key: &str, value: &str) -> Option<&'static str> {
    let chosen = keys::sections().find(|section| {
        section.kind.is_some_and(|kind| section.path_of(kind.key) == key && kind.values.contains(&value))
    });
    chosen.map(|section| section.doc).filter(|doc| !doc.is_empty())
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;

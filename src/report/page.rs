//! Page 1 of a report: its table of at most twelve methods, its figure, and what each method does.

use super::interval::{Ratio, with_half_width};
use super::learning::is_evaluated;
use super::prelude::*;
use super::statistics::half_width;
use super::table::budgets;
use super::verdict::Verdict;
use super::{answers, labels, limits};
use crate::common::text::{self, counted, sentence};
use crate::keys::is_within;
use crate::recipe::keys::{self, is_repetition, is_size};

/// Rows of the table.
const ROWS: usize = 12;
/// What stands behind a rate that is that of the host.
const WAITS: &str = "*";
/// What stands behind a method whose learning rate is the lowest or the highest of those tried.
const AT_EDGE: &str = "†";

/// The methods of the table: at the compared size those that the answer names and the first of the others, in the recipe's order;
/// each size where no methods are compared, or where memory limits are; the rungs of a ladder.
pub fn shown(comparison: &Comparison) -> Vec<Group> {
    let mut groups = comparison.chosen();
    groups.sort_by_key(|group| group.lines[0]);
    let verdict = Verdict::new(comparison).filter(|_| !is_ladder(comparison));
    if let Some(verdict) = verdict {
        let problem = verdict.problem;
        let at_one = groups.iter().filter(|group| group.problem == problem).count() > 1;
        if at_one && budgets(comparison.recipe).is_empty() {
            groups.retain(|group| group.problem == problem);
        }
        let named = verdict.named();
        groups.sort_by_key(|group| {
            named.iter().position(|line| *line == group.lines[0]).unwrap_or(named.len())
        });
    }
    groups.truncate(ROWS);
    groups.sort_by_key(|group| group.lines[0]);
    groups
}

fn is_ladder(comparison: &Comparison) -> bool {
    !comparison.recipe.report.ladder.is_empty()
}

/// A heading with a text for each group.
pub type Column = (String, Vec<Option<String>>);

/// Sizes and methods, as far as they vary, with memory, rate, ratio of times and what was learned, of these groups; `None`
/// without a group.
pub fn table(comparison: &Comparison, groups: &[Group]) -> Option<Table> {
    let column = |heading: &str, text: &dyn Fn(&Group) -> Option<String>| -> Column {
        (heading.into(), groups.iter().map(text).collect())
    };
    let sizes = several_sizes(groups);
    let size = column("size", &|group| Some(comparison.problem_label(group.problem)));
    let edge = |group: &Group| if is_at_edge(comparison, group) { AT_EDGE } else { "" };
    let method = column("method", &|group| Some(comparison.methods[group.method].clone() + edge(group)));
    let names = [(sizes, size), (comparison.methods.len() > 1 || !sizes, method)];
    let names = names.into_iter().filter_map(|(varies, column)| varies.then_some(column)).collect_vec();
    let texts = names.len();
    let ratios = groups.iter().map(|group| ratio(comparison, groups, group)).collect_vec();
    let columns = names.into_iter().chain(numbers(comparison, &column, &ratios));
    let caption = caption(comparison, groups, &ratios);
    (!groups.is_empty()).then(|| assembled(caption, columns, (texts, groups.len())))
}

/// The columns that have a text, the first of which are `texts`, with so many rows.
pub fn assembled(
    caption: String,
    columns: impl Iterator<Item = Column>,
    (texts, rows): (usize, usize),
) -> Table {
    let columns = columns.filter(|(_, texts)| texts.iter().any(Option::is_some)).collect_vec();
    let none = || "–".to_string();
    let row = |i: usize| columns.iter().map(|(_, texts)| texts[i].clone().unwrap_or_else(none)).collect();
    let rows = (0..rows).map(row).collect();
    let header = columns.iter().map(|(heading, _)| heading.clone()).collect();
    Table { caption, header, rows, texts, left_out: 0 }
}

/// The column of the memory that methods are compared by, and its heading in a figure.
pub fn memory(comparison: &Comparison) -> (&'static str, &'static str) {
    match comparison.having("driver_peak_bytes").next() {
        Some(_) => ("driver_peak_bytes", "memory, by the driver"),
        None => ("live_peak_bytes", "peak memory"),
    }
}

/// A column of this heading, with the cell of each group.
type MakeColumn<'s> = dyn Fn(&str, &dyn Fn(&Group) -> Option<String>) -> Column + 's;

/// Memory of each kind, rate, ratio, and what was learned: held-out perplexity, and right answers to the first test set, of all
/// seeds together.
fn numbers(comparison: &Comparison, column: &MakeColumn<'_>, ratios: &[Option<Ratio>]) -> Vec<Column> {
    let written =
        |heading: &str, name: &str| column(heading, &|group| comparison.written_of_group(name, group));
    let driver = memory(comparison).0 == "driver_peak_bytes";
    let (rate, heading) = rate(comparison);
    let known = ratios.iter().flatten().any(|ratio| ratio.is_known());
    let against = if is_ladder(comparison) { "× row before" } else { "× time" };
    let against = if known { against.to_string() } else { format!("{against} (1 process)") };
    let ratio = |ratio: Ratio| if known { ratio.to_string() } else { ratio.value_alone() };
    let answered = |group: &Group| answers::pooled(comparison, group).into_iter().next();
    let share = |of: answers::Counted| Some(Unit::FineShare.write(of.accuracy()));
    let perplexity = written("held-out perplexity", "eval_perplexity");
    let mut out = vec![
        written("device memory, by the driver", "driver_peak_bytes"),
        written(if driver { "of it in tensors" } else { "peak memory" }, "live_peak_bytes"),
        written("host memory", "all_host_bytes"),
        column(heading, &|group| measured_rate(comparison, rate, group)),
        (against, ratios.iter().map(|of| of.map(ratio)).collect()),
    ];
    out.extend(is_evaluated(comparison).then_some(perplexity));
    out.push(column("right before", &|group| share(answered(group)?.before?)));
    out.push(column("right answers", &|group| share(answered(group)?.after)));
    out
}

fn is_at_edge(comparison: &Comparison, group: &Group) -> bool {
    comparison.tried.at_edge.contains(&group.method)
}

fn several_sizes(groups: &[Group]) -> bool {
    !groups.iter().map(|group| group.problem).all_equal()
}

/// The column of the rate and its heading: tokens a second of a language model, else the step time.
pub fn rate(comparison: &Comparison) -> (&'static str, &'static str) {
    let is_language = comparison.lines.iter().any(|line| line.settings.contains_key("model.vocab_size"));
    if is_language { ("tokens_per_second", "tokens/s") } else { ("step_s_median", "step time") }
}

/// The name of a row in the figure.
pub fn name(comparison: &Comparison, groups: &[Group], group: &Group) -> String {
    let (size, method) = (comparison.problem_label(group.problem), comparison.methods[group.method].clone());
    match (several_sizes(groups), comparison.methods.len() > 1) {
        (false, _) => method,
        (true, false) => size,
        (true, true) => format!("{method}, {size}"),
    }
}

/// A rate or time with its interval, or how a cell without one ended.
fn measured_rate(comparison: &Comparison, name: &str, group: &Group) -> Option<String> {
    let mut lines = group.lines.iter().map(|&line| &comparison.lines[line]);
    let Some(value) = comparison.of_group(name, group) else {
        return lines.map(Line::status).find(|status| *status != Status::Ok.to_string());
    };
    let half = half_width(&comparison.over_processes(name, &group.lines));
    let mark = if lines.any(limits::waits_for_host) { WAITS } else { "" };
    Some(with_half_width(comparison.frame.unit(name), value, half) + mark)
}

/// To the baseline, or on a ladder to the row before.
fn ratio(comparison: &Comparison, groups: &[Group], group: &Group) -> Option<Ratio> {
    if is_ladder(comparison) {
        let place = groups.iter().position(|of| of.lines == group.lines)?;
        let before = groups.get(place.checked_sub(1)?)?;
        return Ratio::new(comparison, "tokens_per_second", group, before);
    }
    let base = group.lines.iter().find_map(|&line| comparison.lines[line].baseline)?;
    let base = comparison.groups().into_iter().find(|of| of.lines.contains(&base))?;
    (base.lines != group.lines).then(|| Ratio::of_times(comparison, group, &base)).flatten()
}

fn caption(comparison: &Comparison, groups: &[Group], ratios: &[Option<Ratio>]) -> String {
    let at = groups.first().filter(|_| !several_sizes(groups) && comparison.problems() > 1);
    let at = at.map(|group| format!("At {}", comparison.problem_label(group.problem)));
    let ratio = match is_ladder(comparison) {
        true => "× is the ratio of real tokens a second to the row before",
        false if comparison.with_samplers() => "× is the ratio of the time of a real token to the baseline's",
        false => "× is the ratio of step times to the baseline's",
    };
    let ratio = ratios.iter().any(Option::is_some).then(|| ratio.into());
    let processes = |group: &Group| comparison.over_processes("step_s_median", &group.lines).len();
    let interval = match groups.iter().map(processes).max() {
        Some(2..) => "± is half of a 95 % interval over processes",
        _ => "Each cell ran in 1 process, so no difference in time is claimed",
    };
    let mut lines = groups.iter().flat_map(|group| &group.lines).map(|&line| &comparison.lines[line]);
    let waits = lines.any(limits::waits_for_host).then(|| format!("{WAITS}: the device waits for its host"));
    let (chosen, all) = (comparison.chosen().len(), comparison.groups().len());
    let edge = groups.iter().any(|group| is_at_edge(comparison, group));
    let edge = edge.then(|| {
        format!("{AT_EDGE}: its learning rate is the lowest or the highest that was tried, so a better one may lie beyond")
    });
    let more = (chosen > groups.len()).then(|| counted(chosen - groups.len(), "more method"));
    let tried =
        (all > chosen).then(|| counted(all - chosen, "learning rate") + " with higher held-out losses");
    let more = more.into_iter().chain(tried).join(" and ");
    let more = (!more.is_empty()).then(|| format!("In the appendix: {more}"));
    let sizes = comparison.size_note().map(|note| sentence(&note));
    let parts = [at, sizes, ratio, Some(interval.into()), waits, edge, more];
    parts.iter().flatten().map(|part| format!("{part}.")).join(" ")
}

/// What each technique of these methods does, by the sentence beside its keys; on a ladder what each rung is for.
pub fn techniques(comparison: &Comparison, groups: &[Group]) -> Vec<String> {
    if is_ladder(comparison) {
        let why = comparison.recipe.report.ladder.iter().filter(|stage| !stage.why.is_empty());
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
        // Values whose keys are the same stand in one section, and share its sentence.
        let by_sentence = values.filter_map(|value| Some((kind(key, value.as_str()?)?, text::value(value))));
        let by_sentence = by_sentence.collect_vec();
        let sentences = by_sentence.iter().map(|(doc, _)| *doc).unique().map(|doc| {
            let mut values = by_sentence.iter().filter(|(other, _)| *other == doc).map(|(_, value)| value);
            format!("{} {} – {doc}", labels::size_name(key), values.join(", "))
        });
        let sentences = sentences.collect_vec();
        let entry = keys::find(key).filter(|entry| !entry.key.doc.is_empty() && sentences.is_empty());
        let whole = entry.map(|entry| format!("{} – {}", entry.key.label(), entry.key.doc));
        sentences.into_iter().chain(whole).collect()
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

//! The elements of a [`super::document::Document`]: page 1, which is the same for every report, and the appendix.

use itertools::Itertools;

use super::document::{Chart, Document, Element, Table};
use super::learning::is_evaluated;
use super::table::{CellShape, Comparison};
use super::timelines::{self, Timelines};
use super::verdict::Verdict;
use super::{answers, continuations, environment, labels, limits, page, parts, side_by_side, texts};
use crate::common::text::{argument, sentence};

/// The report as it is set.
pub fn document(comparison: &Comparison, mut charts: Vec<Chart>, timelines: Timelines) -> Document {
    let environments = comparison.lines.iter().filter_map(|line| Some(&line.row?.environment));
    let date = environments.clone().map(|e| e.date.clone()).max().unwrap_or_default();
    let devices = environments.map(|e| e.device.name.as_str()).sorted().dedup();
    let measured = devices.chain(date.split('T').next().filter(|day| !day.is_empty())).join(", ");
    let mut elements = first_page(comparison, &mut charts);
    elements.push(Element::Appendix);
    let [more, details] = appendix(comparison, charts, timelines);
    elements.extend(more);
    Document { title: comparison.recipe.title.clone(), measured, date, elements, details }
}

/// The question, the answer, a table, a figure, what each method does, and what this does not show.
fn first_page(comparison: &Comparison, charts: &mut Vec<Chart>) -> Vec<Element> {
    // A number stays with its percent sign.
    let together = |items: Vec<String>| items.iter().map(|item| item.replace(" %", "\u{a0}%")).collect();
    let question = Some(&comparison.recipe.question).filter(|question| !question.is_empty());
    let mut out: Vec<Element> = question.map(Element::paragraph).into_iter().collect();
    let none = || vec!["No cell ran to its end, so there is no answer.".into()];
    let answer = Verdict::new(comparison).map_or_else(none, |verdict| verdict.sentences());
    out.push(Element::Summary { items: together(answer) });
    let shown = page::shown(comparison);
    out.extend(page::table(comparison, &shown).map(Element::Table));
    let learns = is_evaluated(comparison) || !comparison.recipe.report.ladder.is_empty();
    out.extend(first_chart(charts, learns).map(Element::Figure));
    let lists = [
        ("What each method does", page::techniques(comparison, &shown)),
        ("What this does not show", limits::limits(comparison)),
    ];
    for (heading, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
        out.push(Element::heading(heading));
        out.push(Element::List { items: together(items) });
    }
    out
}

/// The first chart that a page has of learning, else of the methods, else any.
fn first_chart(charts: &mut Vec<Chart>, learns: bool) -> Option<Chart> {
    let order = if learns { &["quality", "curves", "methods"][..] } else { &["methods", "curves"] };
    let place = order.iter().find_map(|name| charts.iter().position(|chart| chart.name.starts_with(name)));
    (!charts.is_empty()).then(|| charts.remove(place.unwrap_or(0)))
}

/// Phases, copies, profile, timelines, device, recipe; and the details.
fn appendix(comparison: &Comparison, charts: Vec<Chart>, mut timelines: Timelines) -> [Vec<Element>; 2] {
    let section = |heading: &str, table: &str| Element::section(heading, [comparison.table(table)]);
    let is_ladder = !comparison.recipe.report.ladder.is_empty();
    let mut out = Element::section("All methods", [overview(comparison), sizes(comparison)]);
    out.extend(Element::section("Methods side by side", [side_by_side::table(comparison)]));
    out.extend(section("The phases of a step", "results"));
    out.extend(charts.into_iter().map(Element::Figure));
    out.extend(section("Pipelines", "pipelines"));
    out.extend(is_ladder.then(|| section("Counted at each rung", "ladder")).into_iter().flatten());
    out.extend(texts::elements(comparison));
    out.extend(section("What loading cost", "loading"));
    out.extend(section("What was learned", "learned"));
    out.extend(section("What was trained", "tuning"));
    out.extend(answers::elements(comparison));
    out.extend(continuations::elements(comparison));
    out.extend(section("Gradient scalers", "scalers"));
    out.extend(section("What copies cost", "floor"));
    out.extend(section("Updates on the host", "host_updates"));
    out.extend(timelines.take_compared());
    out.extend(Element::section("Ranks", [comparison.table("scaling"), parts::ranks(comparison)]));
    let (shown, traces) = timelines::elements(comparison, timelines);
    out.extend(shown);
    out.extend(Element::section("Published results", [published(comparison)]));
    out.push(Element::heading("How it was measured"));
    out.extend(parts::ceilings(comparison).map(Element::Table));
    out.push(Element::List { items: environment::items(comparison) });
    let details = [
        Element::section("What crossed the bus", [parts::crossings(comparison)]),
        traces,
        Element::section("Gradients in few bits", [parts::gradients(comparison)]),
        section("Estimate against measured memory", "estimates"),
        Element::section("Cells without a result", [failures(comparison)]),
    ];
    out.push(Element::heading("To reproduce it"));
    let name = comparison.recipe.path.file_name().unwrap_or_default().display();
    out.push(Element::Code { text: format!("runner run {}", argument(&name)) });
    out.push(Element::paragraph(format!("{name} is this recipe:")));
    out.push(Element::Code { text: excerpt(comparison.recipe.text.trim_end()) });
    [out, details.concat()]
}

/// A text as far as two pages have room for it.
fn excerpt(text: &str) -> String {
    const LINES: usize = 170;
    const LETTERS: usize = 600;
    let short = |line: &str| match line.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line.to_string(),
    };
    let rest = (text.lines().count() > LINES).then(|| "… recipe.toml has the rest".to_string());
    text.lines().take(LINES).map(short).chain(rest).join("\n")
}

/// The tables that a LaTeX document takes, with their labels.
pub fn for_latex(comparison: &Comparison) -> Vec<(&'static str, Table)> {
    let tables = [
        ("methods", overview(comparison)),
        ("side_by_side", side_by_side::table(comparison)),
        ("phases", comparison.table("results")),
        ("learned", comparison.table("learned")),
        ("tuning", comparison.table("tuning")),
    ];
    tables.into_iter().filter_map(|(label, table)| Some((label, table?))).collect()
}

/// Every method over a whole step: time, memory of each kind, rates, and ratios.
fn overview(comparison: &Comparison) -> Option<Table> {
    let mut table = comparison.table("overview")?;
    table.caption.extend(comparison.size_note().map(|note| format!(" {}.", sentence(&note))));
    Some(table)
}

/// Every size of each shape, where the labels leave some out.
pub(super) fn sizes(comparison: &Comparison) -> Option<Table> {
    let sizes = &comparison.sizes;
    if sizes.len() == comparison.label_sizes.len() || comparison.shapes.len() < 2 {
        return None;
    }
    let row = |shape: &CellShape| {
        let value = |key: &String| labels::size_value(key, &shape.settings).unwrap_or_else(|| "–".into());
        [shape.label.clone()].into_iter().chain(sizes.iter().map(value)).collect()
    };
    let names = sizes.iter().map(|key| labels::size_name(key));
    let header = ["sizes".into()].into_iter().chain(names).collect();
    let rows = comparison.shapes.iter().map(row).collect();
    Some(Table { caption: "The sizes in full.".into(), header, rows, texts: 1, left_out: 0 })
}

fn published(comparison: &Comparison) -> Option<Table> {
    let mut table = comparison.table("published")?;
    let source = comparison.recipe.report.published_source.trim();
    if !source.is_empty() {
        table.caption.push_str(&format!(" Published: {source}."));
    }
    Some(table)
}

fn failures(comparison: &Comparison) -> Option<Table> {
    let texts = |i: usize| {
        let line = &comparison.lines[i];
        let mut texts = comparison.naming(i);
        texts.extend([("status", line.status()), ("reason", line.reason().into())]);
        (texts, i)
    };
    let lines = (0..comparison.lines.len()).filter(|&i| comparison.lines[i].measured().is_none());
    Table::new("Cells that did not run to their end.", lines.map(texts), &comparison.frame, &[""; 0])
}

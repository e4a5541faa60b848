//! The elements of a [`super::document::Document`]: page 1, which is the same for every report, and the appendix.

use std::collections::BTreeSet;

use itertools::Itertools;

use super::document::{Chart, Document, Element, Table};
use super::learning::is_evaluated;
use super::table::{CellShape, Comparison};
use super::timelines::{self, Timelines};
use super::verdict::Verdict;
use super::{
    answers, continuations, environment, figure, labels, limits, offload, page, pipeline, precision, ranks,
};
use crate::common::text::{argument, sentence};
use crate::row::Status;

/// The report as it is set.
pub fn document(comparison: &Comparison, charts: Vec<Chart>, timelines: Timelines) -> Document {
    let environments = || comparison.lines.iter().filter_map(|line| line.row).map(|row| &row.environment);
    let date = environments().map(|e| e.date.clone()).max().unwrap_or_default();
    let devices: BTreeSet<&str> = environments().map(|e| e.device.name.as_str()).collect();
    let mut measured: Vec<&str> = devices.into_iter().collect();
    measured.extend(date.split('T').next().filter(|day| !day.is_empty()));
    let (elements, details) = elements(comparison, charts, timelines);
    Document {
        title: comparison.recipe.title.clone(),
        measured: measured.join(", "),
        date,
        elements,
        details,
    }
}

/// The elements of HTML and PDF, and the details of HTML alone.
fn elements(
    comparison: &Comparison,
    mut charts: Vec<Chart>,
    timelines: Timelines,
) -> (Vec<Element>, Vec<Element>) {
    let mut out = first_page(comparison, &mut charts);
    out.push(Element::Appendix);
    let (more, details) = appendix(comparison, charts, timelines);
    out.extend(more);
    (out, details)
}

/// The question, the answer, a table, a figure, what each method does, and what this does not show.
fn first_page(comparison: &Comparison, charts: &mut Vec<Chart>) -> Vec<Element> {
    let verdict = Verdict::new(comparison);
    let mut out = Vec::new();
    if !comparison.recipe.question.is_empty() {
        out.push(Element::paragraph(&comparison.recipe.question));
    }
    // A number stays with its percent sign.
    let together = |sentence: String| sentence.replace(" %", "\u{a0}%");
    let answer = verdict
        .as_ref()
        .map_or_else(|| vec!["No cell ran to its end, so there is no answer.".into()], Verdict::sentences);
    out.push(Element::Summary { items: answer.into_iter().map(together).collect() });
    let shown = page::shown(comparison, verdict.as_ref());
    out.extend(page::table(comparison, &shown).map(Element::Table));
    let learns = is_evaluated(comparison) || !comparison.recipe.report.ladder.is_empty();
    out.extend(figure::first(charts, learns).map(Element::Figure));
    let lists = [
        ("What each method does", page::techniques(comparison, &shown)),
        ("What this does not show", limits::limits(comparison)),
    ];
    for (heading, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
        out.push(Element::heading(heading));
        out.push(Element::List { items: items.into_iter().map(together).collect() });
    }
    out
}

/// Phases, copies, profile, timelines, device, recipe; and the details.
fn appendix(
    comparison: &Comparison,
    charts: Vec<Chart>,
    mut timelines: Timelines,
) -> (Vec<Element>, Vec<Element>) {
    let mut out = Element::section("All methods", [overview(comparison), sizes(comparison)]);
    out.extend(Element::section("The phases of a step", [comparison.table("results")]));
    out.extend(charts.into_iter().map(Element::Figure));
    out.extend(Element::section("Pipelines", [pipeline::table(comparison)]));
    out.extend(Element::section("Counted at each rung", [rungs(comparison)]));
    out.extend(Element::section("What loading cost", [comparison.table("loading")]));
    out.extend(Element::section("What was learned", [comparison.table("learned")]));
    out.extend(Element::section("What was trained", [comparison.table("tuning")]));
    out.extend(answers::elements(comparison));
    out.extend(continuations::elements(comparison));
    out.extend(Element::section("Gradient scalers", [comparison.table("scalers")]));
    let (copies, crossed) = offload::elements(comparison);
    out.extend(copies);
    out.extend(timelines.take_compared());
    out.extend(ranks::elements(comparison));
    let (shown, traces) = timelines::elements(comparison, timelines);
    out.extend(shown);
    out.extend(Element::section("Published results", [published(comparison)]));
    out.push(Element::heading("How it was measured"));
    out.push(Element::List { items: environment::items(comparison) });
    let details = [
        crossed,
        traces,
        Element::section("Gradients in few bits", [precision::gradients(comparison)]),
        Element::section("Estimate against measured memory", [comparison.table("estimates")]),
        Element::section("Cells without a result", [failures(comparison)]),
    ];
    let details = details.into_iter().flatten().collect();
    out.push(Element::heading("To reproduce it"));
    let name = comparison.recipe.path.file_name().unwrap_or_default().display();
    out.push(Element::Code { text: format!("runner run {}", argument(&name)) });
    out.push(Element::paragraph(format!("{name} is this recipe:")));
    out.push(Element::Code { text: excerpt(comparison.recipe.text.trim_end()) });
    (out, details)
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

/// Kernels, copies and stalls of each rung of a ladder.
fn rungs(comparison: &Comparison) -> Option<Table> {
    if comparison.recipe.report.ladder.is_empty() {
        return None;
    }
    comparison.table_in_order("ladder", |line| comparison.naming(line))
}

/// The tables that a LaTeX document takes, with their labels.
pub fn for_latex(comparison: &Comparison) -> Vec<(&'static str, Table)> {
    let tables = [
        ("methods", overview(comparison)),
        ("phases", comparison.table("results")),
        ("learned", comparison.table("learned")),
        ("tuning", comparison.table("tuning")),
    ];
    tables.into_iter().filter_map(|(label, table)| Some((label, table?))).collect()
}

/// Every method over a whole step: time, memory of each kind, rates, and ratios.
pub(super) fn overview(comparison: &Comparison) -> Option<Table> {
    let mut table = with_status(comparison, "overview")?;
    table.caption.extend(comparison.size_note().map(|note| format!(" {}.", sentence(&note))));
    Some(table)
}

/// A table of cells with how each of them ended, where not all ended well.
pub(super) fn with_status(comparison: &Comparison, name: &str) -> Option<Table> {
    let all_ok = comparison.lines.iter().all(|line| line.status() == Status::Ok.to_string());
    comparison.table_with(name, |line| {
        let mut texts = comparison.naming(line);
        texts.extend((!all_ok).then(|| ("status", comparison.lines[line].status())));
        texts
    })
}

/// Every size of each shape, where the labels leave some out.
pub(super) fn sizes(comparison: &Comparison) -> Option<Table> {
    let sizes = &comparison.sizes;
    if sizes.len() == comparison.label_sizes.len() || comparison.shapes.len() < 2 {
        return None;
    }
    let row = |shape: &CellShape| {
        let value = |key: &String| labels::size_value(key, &shape.settings).unwrap_or_else(|| "–".into());
        std::iter::once(shape.label.clone()).chain(sizes.iter().map(value)).collect()
    };
    let names = sizes.iter().map(|key| labels::size_name(key));
    Some(Table {
        caption: "The sizes in full.".into(),
        header: std::iter::once("sizes".into()).chain(names).collect(),
        rows: comparison.shapes.iter().map(row).collect(),
        texts: 1,
        left_out: 0,
    })
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

//! The elements of a [`super::document::Document`], in the order of the report.

use std::collections::BTreeSet;

use itertools::Itertools;

use super::differences::Differences;
use super::document::{Chart, Document, Element, Table};
use super::swiglu;
use super::table::{CellShape, Comparison};
use super::timelines::{self, Timelines};
use super::{
    answers, conclusion, continuations, environment, labels, ladder, limits, offload, pipeline, precision,
    ranks, recommendation,
};
use crate::row::Status;
use crate::words::text::{argument, sentence};

/// A table of more rows takes more than half a page.
const LONG: usize = 24;

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
    charts: Vec<Chart>,
    mut timelines: Timelines,
) -> (Vec<Element>, Vec<Element>) {
    let mut out = Vec::new();
    if !comparison.recipe.question.is_empty() {
        out.push(Element::paragraph(&comparison.recipe.question));
    }
    // A number stays with its percent sign.
    let together = |sentence: String| sentence.replace(" %", "\u{a0}%");
    let differences = Differences::new(comparison);
    let answer = match comparison.lines.iter().any(|line| line.measured().is_some()) {
        true => recommendation::sentences(comparison, &differences),
        false => vec!["No cell ran to its end, so there is no answer.".into()],
    };
    // What the answer says is not said again.
    let mut findings = conclusion::sentences(comparison, &differences);
    findings.retain(|finding| !answer.contains(finding));
    let answer = answer.into_iter().chain(differences.caveats(comparison));
    out.push(Element::Summary { items: answer.map(together).collect() });
    out.extend(Element::section("All methods", [overview(comparison), sizes(comparison)]));
    out.push(Element::heading("Findings"));
    out.push(Element::List { items: findings.into_iter().map(together).collect() });
    let compared = timelines.take_compared();
    let is_compared = !compared.is_empty();
    out.extend(compared);
    out.extend(Element::section("Pipelines", [pipeline::table(comparison)]));
    out.extend(ladder::elements(comparison));
    out.extend(charts.into_iter().map(Element::Figure));
    out.extend(Element::section("What loading cost", [comparison.table("loading")]));
    out.extend(Element::section("What was learned", [comparison.table("learned")]));
    out.extend(Element::section("What was trained", [comparison.table("tuning")]));
    out.extend(answers::elements(comparison));
    out.extend(continuations::elements(comparison));
    out.extend(Element::section("Gradient scalers", [comparison.table("scalers")]));
    out.extend(Element::section("The phases of a step", [comparison.table("results")]));
    let (copies, crossed) = offload::elements(comparison);
    let (shown, traces) = timelines::elements(comparison, timelines, is_compared);
    out.extend(copies);
    out.extend(ranks::elements(comparison));
    out.extend(shown);
    out.extend(swiglu::elements(comparison));
    out.extend(Element::section("Published results", [published(comparison)]));
    out.push(Element::Flush);
    out.push(Element::heading("Limits"));
    out.push(Element::paragraph(together(limits::limits(comparison))));
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
    out.push(Element::Code { text: comparison.recipe.text.trim_end().into() });
    (whole(out), details)
}

/// Figures that have no place yet come before what they would cut in pieces: a section with a table of more than a page, or
/// with a derivation.
fn whole(elements: Vec<Element>) -> Vec<Element> {
    let is_heading = |element: &Element| matches!(element, Element::Heading { .. });
    let is_long = |element: &Element| match element {
        Element::Table(table) => table.rows.len() > LONG,
        element => matches!(element, Element::Derivation { .. }),
    };
    let mut out = Vec::new();
    let mut rest = elements.into_iter().peekable();
    while let Some(first) = rest.next() {
        let section: Vec<Element> = rest.peeking_take_while(|element| !is_heading(element)).collect();
        let flush = is_heading(&first) && section.iter().any(is_long);
        out.extend(flush.then_some(Element::Flush).into_iter().chain([first]).chain(section));
    }
    out
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
    if !comparison.shared.is_empty() {
        table.caption.push_str(&format!(" Where a name does not say otherwise: {}.", comparison.shared));
    }
    let recomputed = comparison.lines.iter().filter_map(|line| labels::recomputed(&line.settings)).unique();
    let recomputed =
        recomputed.map(|blocks| format!(" Whatever its name says, a method recomputes blocks {blocks}."));
    table.caption.extend(recomputed);
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

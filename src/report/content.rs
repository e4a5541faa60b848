//! What the report says, in its order: the blocks of a [`super::document::Document`].

use super::charts::Chart;
use super::document::{Block, Table};
use super::swiglu;
use super::table::{Comparison, Shape};
use super::timelines::{self, Timelines};
use super::{conclusion, environment, labels, ladder, offload, precision};
use crate::words::text::sentence;

pub fn blocks(comparison: &Comparison, charts: Vec<Chart>, timelines: Timelines) -> Vec<Block> {
    let mut out = Vec::new();
    if !comparison.recipe.question.is_empty() {
        out.push(Block::paragraph(&comparison.recipe.question));
    }
    // A number stays with its percent sign.
    let together = |sentence: String| sentence.replace(" %", "\u{a0}%");
    out.push(Block::Summary { items: conclusion::sentences(comparison).into_iter().map(together).collect() });
    out.extend(section("Results", [results(comparison), sizes(comparison)]));
    out.extend(ladder::blocks(comparison));
    out.extend(section("What loading cost", [comparison.table("loading")]));
    out.extend(section("What was learned", [comparison.table("learned")]));
    out.extend(section("Gradients in few bits", precision::tables(comparison)));
    if !charts.is_empty() {
        out.push(Block::heading("Charts"));
        out.extend(charts.into_iter().map(Block::Figure));
    }
    out.extend(offload::blocks(comparison));
    out.extend(timelines::blocks(comparison, timelines));
    out.extend(swiglu::blocks(comparison));
    out.extend(section("Beside published results", [published(comparison)]));
    out.extend(section("Estimate against measured memory", [comparison.table("estimates")]));
    out.extend(section("Cells without a result", [failures(comparison)]));
    out.push(Block::heading("How it was measured"));
    out.push(Block::List { items: environment::items(comparison) });
    out.push(Block::heading("To make it again"));
    out.push(Block::Code { text: format!("runner run {}", comparison.recipe.path.display()) });
    out.push(Block::heading("The recipe"));
    out.push(Block::Code { text: comparison.recipe.text.trim_end().into() });
    out
}

/// A heading and the tables below it; nothing without a table.
pub(super) fn section(heading: &str, tables: impl IntoIterator<Item = Option<Table>>) -> Vec<Block> {
    let mut out: Vec<Block> = tables.into_iter().flatten().map(Block::Table).collect();
    if !out.is_empty() {
        out.insert(0, Block::heading(heading));
    }
    out
}

fn results(comparison: &Comparison) -> Option<Table> {
    let mut table = with_status(comparison, "results")?;
    table.caption.extend(labels::size_note(comparison).map(|note| format!(" {}.", sentence(&note))));
    Some(table)
}

/// A table of cells with how each of them ended.
pub(super) fn with_status(comparison: &Comparison, name: &str) -> Option<Table> {
    comparison.table_with(name, |line| {
        let mut texts = comparison.naming(line);
        texts.push(("status", comparison.lines[line].status().into()));
        texts
    })
}

/// Every size of each shape, where the labels leave some out.
pub(super) fn sizes(comparison: &Comparison) -> Option<Table> {
    let sizes = &comparison.sizes;
    if sizes.len() == comparison.label_sizes.len() || comparison.shapes.len() < 2 {
        return None;
    }
    let row = |shape: &Shape| {
        let value = |key: &String| labels::size_value(key, &shape.settings).unwrap_or_else(|| "–".into());
        std::iter::once(shape.label.clone()).chain(sizes.iter().map(value)).collect()
    };
    let names = sizes.iter().map(|key| labels::size_name(key));
    Some(Table {
        caption: "The sizes in full.".into(),
        header: std::iter::once("sizes".into()).chain(names).collect(),
        rows: comparison.shapes.iter().map(row).collect(),
        texts: 1,
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
        let reason = match line.row {
            None => "it has not run yet; the same command runs it",
            Some(row) if row.reason.is_empty() => "no reason was recorded",
            Some(row) => &row.reason,
        };
        let mut texts = comparison.naming(i);
        texts.extend([("status", line.status().into()), ("reason", reason.into())]);
        (texts, i)
    };
    let lines = (0..comparison.lines.len()).filter(|&i| comparison.lines[i].measured().is_none());
    Table::new("Cells that did not run to their end.", lines.map(texts), &comparison.frame, &[""; 0])
}

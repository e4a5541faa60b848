//! What the report says, in its order: the blocks of a [`super::document::Document`].

use super::charts::Chart;
use super::document::{Block, Table};
use super::swiglu;
use super::table::{Comparison, Shape};
use super::timelines::{self, Timelines};
use super::{conclusion, environment, labels, ladder, learning, loading, offload, precision};
use crate::words::text::sentence;

pub fn blocks(comparison: &Comparison, charts: Vec<Chart>, timelines: Timelines) -> Vec<Block> {
    let mut out = Vec::new();
    if !comparison.recipe.question.is_empty() {
        out.push(Block::paragraph(&comparison.recipe.question));
    }
    // A number stays with its percent sign.
    let together = |sentence: String| sentence.replace(" %", "\u{a0}%");
    out.push(Block::Summary { items: conclusion::sentences(comparison).into_iter().map(together).collect() });
    out.extend(section("Results", [Some(results(comparison)), sizes(comparison)]));
    out.extend(ladder::blocks(comparison));
    out.extend(section("What loading cost", [loading::table(comparison)]));
    out.extend(section("What was learned", [learning::table(comparison)]));
    out.extend(section("Gradients in few bits", precision::tables(comparison)));
    if !charts.is_empty() {
        out.push(Block::heading("Charts"));
        out.extend(charts.into_iter().map(Block::Figure));
    }
    out.extend(offload::blocks(comparison));
    out.extend(timelines::blocks(comparison, timelines));
    out.extend(swiglu::blocks(comparison));
    out.extend(section("Beside published results", [published(comparison)]));
    out.extend(section("Estimate against measured memory", [estimates(comparison)]));
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

fn results(comparison: &Comparison) -> Table {
    let samplers = match comparison.with_samplers() {
        true => "; with a sampler it compares the time of all steps for each real token",
        false => "",
    };
    let sizes = labels::size_note(comparison).map_or(String::new(), |note| format!(" {}.", sentence(&note)));
    let caption = format!(
        "Medians of the measured steps; × is the value over that of the baseline at the same sizes, whose own is \
         1{samplers}.{sizes}"
    );
    let columns = [
        "forward_s_median",
        "backward_s_median",
        "optimizer_s_median",
        "tokens_per_second",
        "live_peak_bytes",
        "forward_vs_baseline",
        "backward_vs_baseline",
        "step_vs_baseline",
        "live_peak_vs_baseline",
    ];
    with_status(comparison, &caption, &columns)
}

/// A table of all cells, with how each of them ended.
pub(super) fn with_status(comparison: &Comparison, caption: &str, columns: &[&str]) -> Table {
    let texts = |i: usize| {
        let mut texts = comparison.naming(i);
        texts.push(("status", comparison.lines[i].status().into()));
        (texts, i)
    };
    let lines = (0..comparison.lines.len()).map(texts);
    Table::new(caption, lines, &comparison.frame, columns).expect("a recipe has a cell")
}

/// Every size of each shape, where the labels leave some out.
fn sizes(comparison: &Comparison) -> Option<Table> {
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

/// Published numbers beside ours, and both as a ratio to the baseline.
fn published(comparison: &Comparison) -> Option<Table> {
    let source = match comparison.recipe.report.published_source.trim() {
        "" => String::new(),
        source => format!(" ({source})"),
    };
    let caption = format!(
        "Published results{source} beside ours. × is the value over that of the baseline at the same sizes. On \
         other hardware the ratios compare, the seconds do not."
    );
    let lines = (0..comparison.lines.len()).filter(|&i| comparison.lines[i].published.is_some());
    let columns = [
        "published_forward_s",
        "forward_s_median",
        "published_backward_s",
        "backward_s_median",
        "published_memory",
        "memory",
        "published_backward_vs_baseline",
        "backward_vs_baseline",
        "published_memory_vs_baseline",
        "live_peak_vs_baseline",
    ];
    comparison.table(&caption, lines, &columns)
}

fn estimates(comparison: &Comparison) -> Option<Table> {
    let columns = [
        "weights_bytes",
        "gradients_bytes",
        "optimizer_bytes",
        "activations_bytes",
        "workspace_bytes",
        "estimate_bytes",
        "live_peak_bytes",
        "estimate_over_measured",
    ];
    let caption = "Bytes estimated from the settings alone, by what holds them at the highest moment, the measured \
                   peak, and the estimate over it.";
    comparison.table(caption, comparison.having("weights_bytes"), &columns)
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
    Table::new("Cells that did not run to their end.", lines.map(texts), &comparison.frame, &[])
}

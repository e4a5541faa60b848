//! What the report says, in its order: the blocks of a [`super::document::Document`].

use super::charts::Chart;
use super::document::{Block, Table};
use super::swiglu;
use super::table::{Comparison, Line, Quantity, Shape};
use super::timelines::{self, Timelines};
use super::{conclusion, environment, labels, ladder, learning, loading, offload, precision};
use crate::measure::Measurement;
use crate::recipe::matches;
use crate::words::Bytes;
use crate::words::text::{rate, ratio, seconds, sentence, significant};

pub fn blocks(comparison: &Comparison, charts: &[Chart], timelines: &Timelines) -> Vec<Block> {
    let heading = |text: &str| Block::Heading { text: text.into() };
    let mut out = Vec::new();
    if !comparison.recipe.question.is_empty() {
        out.push(Block::Paragraph { text: comparison.recipe.question.clone() });
    }
    // A number stays with its percent sign.
    let together = |sentence: String| sentence.replace(" %", "\u{a0}%");
    out.push(Block::Summary { items: conclusion::sentences(comparison).into_iter().map(together).collect() });

    out.push(heading("Results"));
    out.push(results(comparison));
    out.extend(sizes(comparison));
    out.extend(ladder::blocks(comparison, timelines));
    if let Some(table) = loading::table(comparison) {
        out.extend([heading("What loading cost"), Block::Table(table)]);
    }
    if let Some(table) = learning::table(comparison) {
        out.extend([heading("What was learned"), Block::Table(table)]);
    }
    out.extend(precision::blocks(comparison));
    if !charts.is_empty() {
        out.push(heading("Charts"));
        out.extend(charts.iter().map(figure));
    }
    out.extend(offload::blocks(comparison));
    out.extend(timelines::blocks(comparison, timelines));
    out.extend(swiglu::blocks(comparison));
    if let Some(table) = published(comparison) {
        out.extend([heading("Beside published results"), table]);
    }
    if let Some(table) = estimates(comparison) {
        out.extend([heading("Estimate against measured memory"), table]);
    }
    if let Some(table) = failures(comparison) {
        out.extend([heading("Cells without a result"), table]);
    }
    out.push(heading("How it was measured"));
    out.push(Block::List { items: environment::items(comparison) });
    out.push(heading("To make it again"));
    out.push(Block::Code { text: format!("runner run {}", comparison.recipe.path.display()) });
    out.push(heading("The recipe"));
    out.push(Block::Code { text: comparison.recipe.text.trim_end().into() });
    out
}

pub(super) fn figure(chart: &Chart) -> Block {
    let size = |name: &str| -> Option<f64> {
        chart.svg.split_once(&format!("{name}=\""))?.1.split('"').next()?.parse().ok()
    };
    let aspect = match (size("height"), size("width")) {
        (Some(height), Some(width)) if width > 0.0 => height / width,
        _ => 1.0,
    };
    Block::Figure { caption: chart.caption.clone(), svg: chart.svg.clone(), aspect }
}

/// Columns that name a cell: sizes and method, those of them that vary.
pub(super) fn naming(comparison: &Comparison) -> (Vec<String>, impl Fn(&Line) -> Vec<String>) {
    let shapes = comparison.shapes.len() > 1;
    let methods = comparison.methods.len() > 1 || !shapes;
    let pick = move |shape: String, method: String| {
        let both = [(shapes, shape), (methods, method)];
        both.into_iter().filter(|(shown, _)| *shown).map(|(_, text)| text).collect::<Vec<_>>()
    };
    let labels = move |line: &Line| {
        pick(comparison.shapes[line.shape].label.clone(), comparison.methods[line.method].clone())
    };
    (pick("sizes".into(), "method".into()), labels)
}

pub(super) fn strings(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| item.to_string()).collect()
}

pub(super) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".into())
}

fn results(comparison: &Comparison) -> Block {
    let (mut header, names) = naming(comparison);
    let text_columns: Vec<usize> = (0..=header.len()).collect();
    let optimizer = comparison.lines.iter().filter_map(Line::measured).any(|m| m.optimizer.is_some());
    header.push("status".into());
    header.extend(strings(&["forward", "backward"]));
    header.extend(optimizer.then(|| "optimizer".to_string()));
    header.extend(strings(&["tokens/s", "peak memory", "× forward", "× backward", "× step", "× memory"]));
    let row = |(i, line): (usize, &Line)| {
        let m = line.measured();
        let time = |of: fn(&Measurement) -> Option<f64>| or_dash(m.and_then(of).map(seconds));
        let versus = |quantity| match comparison.is_baseline(i) && m.is_some() {
            true => "1".into(),
            false => or_dash(comparison.ratio(i, quantity).map(|r| format!("{r:.2}"))),
        };
        let mut row = names(line);
        row.push(line.status().into());
        row.extend([time(|m| Some(m.forward.median)), time(|m| Some(m.backward.median))]);
        row.extend(optimizer.then(|| time(|m| m.optimizer.as_ref().map(|s| s.median))));
        row.push(or_dash(m.map(|m| rate(m.tokens_per_second))));
        row.push(or_dash(m.map(|m| Bytes(m.memory.live_peak).to_string())));
        row.extend([Quantity::Forward, Quantity::Backward, Quantity::Step, Quantity::Peak].map(versus));
        row
    };
    let sizes = labels::size_note(comparison).map_or(String::new(), |note| format!(" {}.", sentence(&note)));
    Block::Table(Table {
        caption: format!(
            "Medians of the measured steps; × is the value over that of the baseline at the same sizes, \
             whose own is 1{}.{sizes}",
            if comparison.with_samplers() {
                "; with a sampler it compares the time of all steps for each real token"
            } else {
                ""
            }
        ),
        header,
        rows: comparison.lines.iter().enumerate().map(row).collect(),
        text_columns,
    })
}

/// Every size of each shape, where the labels leave some out.
fn sizes(comparison: &Comparison) -> Option<Block> {
    let sizes = &comparison.sizes;
    if sizes.len() == comparison.label_sizes.len() || comparison.shapes.len() < 2 {
        return None;
    }
    let row = |shape: &Shape| {
        let value = |key: &String| or_dash(labels::size_value(key, &shape.settings));
        std::iter::once(shape.label.clone()).chain(sizes.iter().map(value)).collect()
    };
    Some(Block::Table(Table {
        caption: "The sizes in full.".into(),
        header: std::iter::once("sizes".into())
            .chain(sizes.iter().map(|key| labels::size_name(key)))
            .collect(),
        rows: comparison.shapes.iter().map(row).collect(),
        text_columns: vec![0],
    }))
}

/// Published numbers beside ours, and both as a ratio to the baseline.
fn published(comparison: &Comparison) -> Option<Block> {
    let config = &comparison.recipe.report;
    let of_line =
        |i: usize| config.published.iter().find(|p| matches(&comparison.lines[i].settings, &p.cell));
    let (mut header, names) = naming(comparison);
    let text_columns = (0..header.len()).collect();
    header.extend(strings(&[
        "forward published",
        "ours",
        "backward published",
        "ours",
        "memory published",
        "ours",
        "× backward published",
        "ours",
        "× memory published",
        "ours",
    ]));
    let rows: Vec<Vec<String>> = comparison
        .lines
        .iter()
        .enumerate()
        .filter_map(|(i, line)| {
            let theirs = of_line(i)?;
            let base = line.baseline.and_then(of_line);
            let over = |own: Option<f64>, base: Option<f64>| own.zip(base).map(|(o, b)| ratio(o / b));
            let m = line.measured();
            let gigabytes = |bytes: u64| format!("{} GB", significant(bytes as f64 / 1e9));
            let mut row = names(line);
            row.extend(
                [
                    theirs.forward.map(seconds),
                    m.map(|m| seconds(m.forward.median)),
                    theirs.backward.map(seconds),
                    m.map(|m| seconds(m.backward.median)),
                    theirs.memory.map(|gb| format!("{} GB", significant(gb))),
                    m.map(|m| gigabytes(m.memory.live_peak)),
                    over(theirs.backward, base.and_then(|p| p.backward)),
                    comparison.ratio(i, Quantity::Backward).map(ratio),
                    over(theirs.memory, base.and_then(|p| p.memory)),
                    comparison.ratio(i, Quantity::Peak).map(ratio),
                ]
                .map(or_dash),
            );
            Some(row)
        })
        .collect();
    let source = match config.published_source.trim() {
        "" => "Published results beside ours".to_string(),
        source => format!("Published results ({source}) beside ours"),
    };
    (!rows.is_empty()).then(|| {
        Block::Table(Table {
            caption: format!(
                "{source}. × is the value over that of the baseline at the same sizes. On other hardware \
                 the ratios compare, the seconds do not."
            ),
            header,
            rows,
            text_columns,
        })
    })
}

fn estimates(comparison: &Comparison) -> Option<Block> {
    let (mut header, names) = naming(comparison);
    let text_columns = (0..header.len()).collect();
    header.extend(strings(&[
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "workspace",
        "estimate",
        "measured",
        "estimate / measured",
    ]));
    let rows: Vec<Vec<String>> = comparison
        .lines
        .iter()
        .filter_map(|line| {
            let e = line.row?.estimate;
            let bytes = |n: u64| Bytes(n).to_string();
            let mut row = names(line);
            row.extend(
                [e.weights, e.gradients, e.optimizer, e.activations, e.workspace, e.total()].map(bytes),
            );
            row.push(or_dash(line.measured().map(|m| bytes(m.memory.live_peak))));
            row.push(or_dash(line.estimate_over_measured().map(ratio)));
            Some(row)
        })
        .collect();
    (!rows.is_empty()).then(|| {
        Block::Table(Table {
            caption:
                "Bytes estimated from the settings alone, by what holds them at the highest moment, and \
                      the measured peak."
                    .into(),
            header,
            rows,
            text_columns,
        })
    })
}

fn failures(comparison: &Comparison) -> Option<Block> {
    let (mut header, names) = naming(comparison);
    header.extend(strings(&["status", "reason"]));
    let rows: Vec<Vec<String>> = comparison
        .lines
        .iter()
        .filter(|line| line.measured().is_none())
        .map(|line| {
            let reason = match line.row {
                None => "it has not run yet; the same command runs it",
                Some(row) if row.reason.is_empty() => "no reason was recorded",
                Some(row) => &row.reason,
            };
            let mut row = names(line);
            row.extend(strings(&[line.status(), reason]));
            row
        })
        .collect();
    (!rows.is_empty()).then(|| {
        Block::Table(Table {
            caption: "Cells that did not run to their end.".into(),
            text_columns: (0..header.len()).collect(),
            header,
            rows,
        })
    })
}

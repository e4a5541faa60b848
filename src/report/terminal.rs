//! The results table as text: for the terminal and, with the same content, as Markdown.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};

use super::learning::{self, Learned, perplexity};
use super::table::{Comparison, Quantity};
use super::{document, labels};
use crate::recipe::Recipe;
use crate::row::Row;
use crate::words::Bytes;
use crate::words::text::{rate, ratio, seconds, significant};

/// One line below the header; every column of a terminal counts.
pub const RULED: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Text columns stand left, numbers right.
struct Column {
    header: &'static str,
    number: bool,
    cells: Vec<String>,
}

/// A readable table of a recipe's rows, with notes on its labels and on the cells without numbers.
pub fn terminal_table(recipe: &Recipe, rows: &[Row]) -> String {
    let comparison = Comparison::new(recipe, rows);
    let mut out = table(&comparison, false);
    for note in notes(&comparison) {
        out.push_str(&format!("\n{note}"));
    }
    out.push('\n');
    out
}

/// The same as a Markdown document.
pub fn markdown_table(comparison: &Comparison) -> String {
    let mut out = format!("# {}\n\n{}\n", escape(&comparison.recipe.title), table(comparison, true));
    for note in notes(comparison) {
        out.push_str(&format!("\n- {}", escape(&note)));
    }
    out.push('\n');
    if let Some(learned) = learning::table(comparison) {
        out.push_str(&format!("\n## What was learned\n\n{}\n\n{}\n", of_document(&learned), learned.caption));
    }
    out
}

/// A table of the documents in Markdown.
fn of_document(content: &document::Table) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let cells = |row: &[String]| -> Vec<Cell> {
        let of_column = |(i, text): (usize, &String)| {
            let cell = Cell::new(escape(text));
            if content.text_columns.contains(&i) { cell } else { cell.set_alignment(CellAlignment::Right) }
        };
        row.iter().enumerate().map(of_column).collect()
    };
    table.set_header(cells(&content.header));
    for row in &content.rows {
        table.add_row(cells(row));
    }
    table.trim_fmt()
}

fn table(comparison: &Comparison, markdown: bool) -> String {
    let columns = columns(comparison);
    let mut table = Table::new();
    table.load_style(if markdown { ASCII_MARKDOWN } else { RULED });
    table.set_header(columns.iter().map(|column| {
        let cell = Cell::new(column.header);
        if column.number { cell.set_alignment(CellAlignment::Right) } else { cell }
    }));
    for i in 0..comparison.lines.len() {
        table.add_row(columns.iter().map(|column| {
            let text = &column.cells[i];
            let cell = Cell::new(if markdown { escape(text) } else { text.clone() });
            if column.number { cell.set_alignment(CellAlignment::Right) } else { cell }
        }));
    }
    if !markdown {
        for column in table.column_iter_mut() {
            column.set_padding((0, 1));
        }
    }
    table.trim_fmt()
}

fn columns(comparison: &Comparison) -> Vec<Column> {
    let lines = &comparison.lines;
    let text = |header, of: &dyn Fn(usize) -> String| Column {
        header,
        number: false,
        cells: (0..lines.len()).map(of).collect(),
    };
    let number = |header, of: &dyn Fn(usize) -> Option<String>| Column {
        header,
        number: true,
        cells: (0..lines.len()).map(|i| of(i).unwrap_or_else(|| "-".into())).collect(),
    };
    let mut columns = Vec::new();
    if comparison.shapes.len() > 1 {
        columns.push(text("sizes", &|i| comparison.shapes[lines[i].shape].label.clone()));
    }
    if comparison.methods.len() > 1 || columns.is_empty() {
        columns.push(text("method", &|i| comparison.methods[lines[i].method].clone()));
    }
    columns.push(text("status", &|i| lines[i].status().into()));
    columns.push(number("forward", &|i| Some(seconds(lines[i].measured()?.forward.median))));
    columns.push(number("backward", &|i| Some(seconds(lines[i].measured()?.backward.median))));
    if lines.iter().any(|line| line.measured().is_some_and(|m| m.optimizer.is_some())) {
        columns
            .push(number("optimizer", &|i| Some(seconds(lines[i].measured()?.optimizer.as_ref()?.median))));
    }
    columns.push(number("tokens/s", &|i| Some(rate(lines[i].measured()?.tokens_per_second))));
    columns.push(number("peak", &|i| Some(Bytes(lines[i].measured()?.memory.live_peak).to_string())));
    columns.push(number("est.", &|i| Some(format!("{}x", significant(lines[i].estimate_over_measured()?)))));
    let learned: Vec<Option<Learned>> = lines.iter().map(Learned::of).collect();
    let end = |i: usize| learned[i].as_ref()?.end();
    if (0..lines.len()).any(|i| end(i).is_some()) {
        columns.push(number("ppl.", &|i| Some(perplexity(end(i)?.perplexity()))));
    }
    columns.push(text("vs baseline", &|i| versus(comparison, i)));
    columns
}

/// `0.74x memory, 1.31x backward`
fn versus(comparison: &Comparison, line: usize) -> String {
    if comparison.is_baseline(line) {
        return "baseline".into();
    }
    let of = |quantity| comparison.ratio(line, quantity).map(ratio);
    match (of(Quantity::Peak), of(Quantity::Backward)) {
        (Some(memory), Some(backward)) => format!("{memory} memory, {backward} backward"),
        _ if comparison.lines[line].measured().is_some() => "no baseline".into(),
        _ => "-".into(),
    }
}

/// What the labels mean, and why cells have no numbers.
fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(labels::size_note(comparison));
    notes.extend(shape_details(comparison));
    notes.push("est.: estimated over measured peak".into());
    if comparison.lines.iter().filter_map(Learned::of).any(|learned| learned.end().is_some()) {
        notes.push("ppl.: held-out perplexity after the last step".into());
    }
    for line in &comparison.lines {
        if let Some(row) = line.row.filter(|_| line.measured().is_none()) {
            let reason = if row.reason.is_empty() { "no reason was recorded" } else { &row.reason };
            notes.push(format!("{}: {}: {reason}", comparison.name(line), line.status()));
        }
    }
    let missing = comparison.lines.iter().filter(|line| line.row.is_none()).count();
    if missing > 0 {
        notes.push(format!("{missing} of {} cells have not run", comparison.lines.len()));
    }
    notes
}

/// Swept sizes that the labels leave out: `16×128, 512: intermediate size 2048, layers 2`.
fn shape_details(comparison: &Comparison) -> Vec<String> {
    let hidden: Vec<&String> =
        comparison.sizes.iter().filter(|key| !comparison.label_sizes.contains(key)).collect();
    if hidden.is_empty() {
        return Vec::new();
    }
    let detail = |shape: &super::table::Shape| {
        let values: Vec<String> = hidden
            .iter()
            .filter_map(|key| {
                Some(format!("{} {}", labels::size_name(key), labels::size_value(key, &shape.settings)?))
            })
            .collect();
        format!("{}: {}", shape.label, values.join(", "))
    };
    comparison.shapes.iter().map(detail).collect()
}

/// Text that stays text in Markdown.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' => out.extend(['\\', c]),
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::{STUDY, bad_row, ok_row, recipe, rows};
    use super::*;
    use crate::row::Status;

    #[test]
    fn a_line_shows_its_numbers_and_ratios() {
        let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
        let rows = [
            ok_row(&recipe.cells[0], 0.010, 0.020, 400 << 20),
            ok_row(&recipe.cells[1], 0.010, 0.0262, 296 << 20),
        ];
        let table = terminal_table(&recipe, &rows);
        let line = table.lines().find(|l| l.contains("level 1")).expect("a line for level 1");
        for part in
            ["ok", "10.0 ms", "26.2 ms", "1.00 ms", "55054", "296 MiB", "0.74x memory, 1.31x backward"]
        {
            assert!(line.contains(part), "{part} is missing in {line}");
        }
        assert!(table.lines().any(|l| l.contains("level 0") && l.contains("baseline")), "{table}");
    }

    #[test]
    fn the_study_fits_120_columns() {
        let recipe = recipe(STUDY);
        let table = terminal_table(&recipe, &rows(&recipe));
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|w| w <= 120), "{widest:?} columns:\n{table}");
    }

    #[test]
    fn cells_without_numbers_are_shown_with_their_reason() {
        let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 0.5, 1]\n");
        let rows = [
            bad_row(&recipe.cells[0], Status::Oom, "needs 9 GiB of 8 GiB | really"),
            ok_row(&recipe.cells[2], 0.01, 0.02, 1 << 20),
        ];
        let table = terminal_table(&recipe, &rows);
        assert!(table.contains("level 0: oom: needs 9 GiB of 8 GiB | really"), "{table}");
        assert!(table.contains("not run") && table.contains("1 of 3 cells have not run"), "{table}");
        assert!(table.contains("no baseline"), "{table}");
        let markdown = markdown_table(&Comparison::new(&recipe, &rows));
        assert!(markdown.contains("8 GiB \\| really"), "{markdown}");
    }
}

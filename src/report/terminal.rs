//! The results table as text for the terminal and, with the same content, as Markdown.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use super::prelude::*;
use super::{content, document};
use crate::recipe::Recipe;

/// A line below the header and no others: a terminal has few columns.
const RULED: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A readable table of a recipe's rows, with notes on its labels and on the cells without numbers.
pub fn terminal_table(recipe: &Recipe, rows: &[Row]) -> String {
    let comparison = Comparison::new(recipe, rows);
    let results = comparison.table("summary").expect("every cell has an estimate");
    let notes: String = notes(&comparison, &results.header).iter().map(|note| format!("\n{note}")).collect();
    let sizes = content::sizes(&comparison).map_or(String::new(), |sizes| format!("\n\n{}", ruled(&sizes)));
    format!("{}{notes}{sizes}\n", ruled(&results))
}

/// The same as a Markdown document.
pub fn markdown_table(comparison: &Comparison) -> String {
    let title = escape(&comparison.recipe.title);
    let results = comparison.table("summary").expect("every cell has an estimate");
    let notes: String =
        notes(comparison, &results.header).iter().map(|note| format!("\n- {}", escape(note))).collect();
    let mut out = format!("# {title}\n\n{}\n{notes}\n", markdown(&results));
    let more = [("The sizes", content::sizes(comparison)), ("What was learned", comparison.table("learned"))];
    for (heading, table) in more.into_iter().filter_map(|(heading, table)| Some((heading, table?))) {
        out.push_str(&format!("\n## {heading}\n\n{}\n\n{}\n", markdown(&table), table.caption));
    }
    out
}

/// A table for a terminal.
pub fn ruled(content: &document::Table) -> String {
    let mut table = table(content, RULED, String::clone);
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table.trim_fmt()
}

fn markdown(content: &document::Table) -> String {
    table(content, ASCII_MARKDOWN, |text| escape(text)).trim_fmt()
}

fn table(content: &document::Table, style: TableStyle, text: fn(&String) -> String) -> Table {
    let mut table = Table::new();
    table.load_style(style);
    table.set_header(content.header.iter().map(text));
    table.add_rows(content.rows.iter().map(|row| row.iter().map(text)));
    for column in table.column_iter_mut().skip(content.texts) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The meaning of the labels and of a table's columns, and why cells have no numbers.
fn notes(comparison: &Comparison, header: &[String]) -> Vec<String> {
    let lines = || comparison.lines.iter();
    let mut ratio = "×: ratio to the baseline".to_string();
    if comparison.with_samplers() {
        // Their steps do unequal work.
        ratio += ", of times for each real token";
    }
    if lines().any(|line| line.nearest) {
        ratio += "; of several, the one with the most equal settings";
    }
    let columns = [("×", ratio.as_str()), ("est./peak", "est./peak: estimated over measured peak")];
    let is_there = |(begin, _): &&(&str, &str)| header.iter().any(|heading| heading.starts_with(begin));
    let columns = columns.iter().filter(is_there).map(|(_, note)| *note).join("; ");
    let perplexity = comparison.having("eval_perplexity").next();
    let perplexity = perplexity.map(|_| "perplexity: held-out, after the last step".to_string());
    let lost = lines().filter(|line| line.row.is_some() && line.measured().is_none());
    let lost = lost.map(|line| format!("{}: {}: {}", comparison.title(line), line.status(), line.reason()));
    let unsaved = lines().flat_map(|line| {
        let why = line.rows.iter().flat_map(|row| row.unsaved()).unique();
        why.map(|why| format!("{}: {why}", comparison.title(line)))
    });
    let missing = lines().filter(|line| line.row.is_none()).count();
    let missing = (missing > 0).then(|| format!("{missing} of {} cells have not run", lines().count()));
    let columns = Some(columns).filter(|columns| !columns.is_empty());
    let notes = comparison.size_note().into_iter().chain(columns).chain(perplexity);
    notes.chain(lost).chain(unsaved).chain(missing).collect()
}

/// Text without markup in Markdown.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '$' | '~' | '&' => out.extend(['\\', c]),
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
        for part in ["10.0 ms", "26.2 ms", "1.00 ms", "55,054", "296 MiB", "1.31x", "0.74x"] {
            assert!(line.contains(part), "{part} is missing in {line}");
        }
        assert!(table.lines().any(|l| l.contains("level 0") && l.contains("1.00x     1.00x")), "{table}");
        assert!(!table.contains("status"), "all ended well: {table}");
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
        assert!(
            !table.contains("× memory") && !table.contains("×: ratio"),
            "nothing to compare with: {table}"
        );
        let markdown = markdown_table(&Comparison::new(&recipe, &rows));
        assert!(markdown.contains("8 GiB \\| really"), "{markdown}");
    }
}

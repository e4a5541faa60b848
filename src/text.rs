//! Tables of text for the terminal.

use comfy_table::{CellAlignment, Table, presets};

/// A table whose first `left` columns hold words (left-aligned) and the others numbers.
pub fn table(header: &[&str], lines: Vec<Vec<String>>, left: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header).add_rows(lines);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if index < left { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.to_string()
}

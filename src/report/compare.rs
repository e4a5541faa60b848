//! `runner compare A B`: two result folders side by side, cell by cell.

use std::collections::BTreeSet;

use comfy_table::{Cell, CellAlignment, Table};
use miette::miette;

use super::table::{Comparison, Quantity};
use super::terminal::RULED;
use crate::recipe::keys::{is_repetition, is_size};
use crate::recipe::{Recipe, matches};
use crate::row::Row;
use crate::words::text;
use crate::words::text::{ratio, seconds};
use crate::words::{Bytes, Settings};

/// One side: its name, what it holds, and the settings each cell was measured with.
struct Side<'a> {
    name: &'a str,
    comparison: Comparison<'a>,
    settings: Vec<Settings>,
}

/// A table of the cells that both sides have, with both values and `b`'s over `a`'s, and the cells
/// that only one side has. Cells are the same when their settings are, those apart that differ
/// between every two cells of the sides, such as the device.
///
/// # Errors
/// When the two have no cell in common.
pub fn compare(a: (&str, &Recipe, &[Row]), b: (&str, &Recipe, &[Row])) -> miette::Result<String> {
    let (a, b) = (Side::new(a), Side::new(b));
    let ignored = ignored_keys(&a.settings, &b.settings);
    let pairs = pairs(&a, &b, &ignored);
    if pairs.is_empty() {
        return Err(miette!(
            help = "compare results of the same recipe, or of recipes with the same sizes",
            "no cell of {} has the settings of a cell of {}",
            a.name,
            b.name
        ));
    }

    let mut table = Table::new();
    table.load_style(RULED);
    table.set_header(["cell", "forward a, b, b/a", "backward", "step", "peak memory"]);
    for &(i, j) in &pairs {
        let quantities = [Quantity::Forward, Quantity::Backward, Quantity::Step, Quantity::Peak];
        let values = quantities
            .iter()
            .map(|&quantity| Cell::new(both(&a, i, &b, j, quantity)).set_alignment(CellAlignment::Right));
        table.add_row(std::iter::once(Cell::new(a.cell_name(i))).chain(values));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let mut out = format!("a: {}\nb: {}\n", a.describe(), b.describe());
    for key in &ignored {
        out.push_str(&format!("{key}: {} in a, {} in b\n", a.values(key), b.values(key)));
    }
    out.push_str(&table.trim_fmt());
    out.push('\n');
    let only = |side: &Side, name: &str, paired: &BTreeSet<usize>| -> String {
        (0..side.settings.len())
            .filter(|i| !paired.contains(i))
            .map(|i| format!("only in {name}: {}\n", side.cell_name(i)))
            .collect()
    };
    out.push_str(&only(&a, "a", &pairs.iter().map(|p| p.0).collect()));
    out.push_str(&only(&b, "b", &pairs.iter().map(|p| p.1).collect()));
    Ok(out)
}

impl<'a> Side<'a> {
    fn new((name, recipe, rows): (&'a str, &'a Recipe, &'a [Row])) -> Self {
        let comparison = Comparison::new(recipe, rows);
        let measured: Vec<Option<Settings>> =
            comparison.lines.iter().map(|line| line.row.map(Row::settings)).collect();
        // The recipe's `auto` means this machine's device; the rows know where they were measured.
        let device = measured.iter().flatten().find_map(|s| s.get("device")).cloned();
        let swept = comparison.swept.iter().any(|key| key == "device");
        let planned = |line: &super::table::Line| {
            let mut settings = line.settings.clone();
            if let Some(device) = device.clone().filter(|_| !swept) {
                settings.insert("device".into(), device);
            }
            settings
        };
        let settings = comparison
            .lines
            .iter()
            .zip(measured)
            .map(|(line, measured)| measured.unwrap_or_else(|| planned(line)))
            .collect();
        Self { name, comparison, settings }
    }

    /// The folder and the devices it was measured on.
    fn describe(&self) -> String {
        let rows = self.comparison.lines.iter().filter_map(|line| line.row);
        let devices: BTreeSet<&str> = rows.map(|row| row.environment.device.name.as_str()).collect();
        let devices: Vec<&str> = devices.into_iter().collect();
        if devices.is_empty() { self.name.into() } else { format!("{} ({})", self.name, devices.join(", ")) }
    }

    fn cell_name(&self, i: usize) -> String {
        let line = &self.comparison.lines[i];
        format!("{}: {}", self.comparison.shapes[line.shape].label, self.comparison.methods[line.method])
    }

    /// The values a key takes, in the order of the cells.
    fn values(&self, key: &str) -> String {
        let mut seen: Vec<String> = Vec::new();
        for settings in &self.settings {
            let value = settings.get(key).map_or_else(|| "none".into(), text::value);
            if !seen.contains(&value) {
                seen.push(value);
            }
        }
        seen.join(" or ")
    }
}

/// Keys whose value in any cell of `a` is in no cell of `b`. Sizes are never left out: cells of
/// other sizes are other problems.
fn ignored_keys(a: &[Settings], b: &[Settings]) -> Vec<String> {
    let keys: BTreeSet<&String> = a.iter().chain(b).flat_map(Settings::keys).collect();
    let differs = |key: &str| a.iter().all(|a| b.iter().all(|b| a.get(key) != b.get(key)));
    keys.into_iter().filter(|key| (!is_size(key) || is_repetition(key)) && differs(key)).cloned().collect()
}

/// Indices of the same cells; each cell is used once.
fn pairs(a: &Side, b: &Side, ignored: &[String]) -> Vec<(usize, usize)> {
    let kept = |settings: &Settings| -> Settings {
        settings.iter().filter(|(k, _)| !ignored.contains(k)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let of_b: Vec<Settings> = b.settings.iter().map(kept).collect();
    let mut used = BTreeSet::new();
    let mut pairs = Vec::new();
    for (i, settings) in a.settings.iter().map(kept).enumerate() {
        let same = |j: &usize| of_b[*j].len() == settings.len() && matches(&of_b[*j], &settings);
        if let Some(j) = (0..of_b.len()).filter(|j| !used.contains(j)).find(same) {
            used.insert(j);
            pairs.push((i, j));
        }
    }
    pairs
}

/// `12.3 ms  10.1 ms  0.82x`, with the status where there is no value.
fn both(a: &Side, i: usize, b: &Side, j: usize, quantity: Quantity) -> String {
    let (left, right) = (&a.comparison.lines[i], &b.comparison.lines[j]);
    let value = |line: &super::table::Line| line.measured().map(|m| quantity.of(m));
    let text = |line: &super::table::Line| match value(line) {
        None => line.status().to_string(),
        Some(v) if quantity == Quantity::Peak => Bytes(v as u64).to_string(),
        Some(v) => seconds(v),
    };
    let change = match (value(left), value(right)) {
        (Some(l), Some(r)) if l > 0.0 => ratio(r / l),
        _ => "-".into(),
    };
    format!("{}  {}  {change}", text(left), text(right))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bad_row, ok_row, recipe};
    use super::*;
    use crate::row::Status;

    #[test]
    fn cells_are_matched_by_settings_without_the_device() {
        let a = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
        let b = recipe("[grid]\n\"checkpoint.level\" = [0.5, 1, 0]\n");
        let rows_a =
            [ok_row(&a.cells[0], 0.010, 0.020, 100 << 20), ok_row(&a.cells[1], 0.010, 0.030, 80 << 20)];
        let mut rows_b =
            vec![bad_row(&b.cells[1], Status::Oom, "full"), ok_row(&b.cells[2], 0.005, 0.008, 90 << 20)];
        for row in &mut rows_b {
            row.cell["device"] = "cuda:0".into();
            row.environment.device.name = "A GPU".into();
        }
        let text = compare(("old", &a, &rows_a), ("new", &b, &rows_b)).expect("cells in common");
        let line = |needle: &str| {
            text.lines().find(|l| l.contains(needle)).unwrap_or_else(|| panic!("{needle}: {text}"))
        };
        assert!(line(": level 0 ").contains("10.0 ms  5.00 ms  0.50x"), "{text}");
        assert!(line(": level 0 ").contains("20.0 ms  8.00 ms  0.40x"), "{text}");
        assert!(line(": level 0 ").contains("100 MiB  90.0 MiB  0.90x"), "{text}");
        assert!(line(": level 1 ").contains("30.0 ms  oom  -"), "{text}");
        assert!(text.contains("b: new (A GPU)"), "{text}");
        line("only in b: 16×128, 512: level 0.5");
    }

    #[test]
    fn other_sizes_are_no_match() {
        let a = recipe("");
        let b = recipe("[grid]\n\"model.hidden_size\" = 256\n");
        assert!(compare(("a", &a, &[]), ("b", &b, &[])).is_err());
    }
}

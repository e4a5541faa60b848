//! The table as files hold it: one line a cell, as CSV and as Parquet.

use itertools::Itertools;
use miette::{IntoDiagnostic, WrapErr};
use polars::prelude::*;
use serde_json::Value;

use super::columns::{CELLS, RATIOS};
use super::line::Line;
use super::table::Comparison;
use crate::common::text;
use crate::row::Row;

/// The files' table: one line a cell, in recipe order.
///
/// # Errors
/// When Polars cannot hold it.
pub fn table(comparison: &Comparison) -> miette::Result<DataFrame> {
    let lines = &comparison.lines;
    let text = |name: &str, of: fn(&Row) -> &str| {
        let values: Vec<Option<&str>> = lines.iter().map(|line| line.row.map(of)).collect();
        Column::new(name.into(), values)
    };
    let mut columns: Vec<Column> = comparison.recipe.swept.iter().map(|key| setting(key, lines)).collect();
    columns.push(Column::new("status".into(), lines.iter().map(Line::status).collect::<Vec<_>>()));
    columns.push(text("reason", |row| &row.reason));
    let numbers = CELLS.iter().map(|column| column.name).chain(RATIOS.iter().map(|(name, ..)| *name));
    let crossings = comparison.frame.crossings.iter().map(String::as_str);
    columns.extend(numbers.chain(crossings).map(|name| comparison.frame.exported(name)));
    columns.extend([
        text("device", |row| &row.environment.device.id),
        text("device_name", |row| &row.environment.device.name),
        text("runner_version", |row| &row.environment.runner_version),
        text("commit", |row| &row.environment.commit),
        text("build", |row| &row.environment.build),
        text("date", |row| &row.environment.date),
    ]);
    // A swept device has a column already, with its setting.
    let columns = columns.into_iter().unique_by(|column| column.name().clone()).collect();
    DataFrame::new(lines.len(), columns).into_diagnostic()
}

/// A swept setting, in the narrowest type that holds its values.
fn setting(key: &str, lines: &[Line]) -> Column {
    let values = lines.iter().map(|line| line.settings.get(key));
    let all = |is: fn(&Value) -> bool| values.clone().flatten().all(is);
    let name: PlSmallStr = key.into();
    if all(Value::is_i64) {
        Column::new(name, values.map(|v| v?.as_i64()).collect_vec())
    } else if all(Value::is_number) {
        Column::new(name, values.map(|v| v?.as_f64()).collect_vec())
    } else if all(Value::is_boolean) {
        Column::new(name, values.map(|v| v?.as_bool()).collect_vec())
    } else {
        Column::new(name, values.map(|v| v.map(text::value)).collect_vec())
    }
}

/// The table as CSV and as Parquet.
///
/// # Errors
/// When Polars cannot write it.
pub fn written(mut frame: DataFrame) -> miette::Result<[Vec<u8>; 2]> {
    let (mut csv, mut parquet) = (Vec::new(), Vec::new());
    let mut write = |frame: &mut DataFrame| -> PolarsResult<()> {
        CsvWriter::new(&mut csv).finish(frame)?;
        ParquetWriter::new(&mut parquet).finish(frame).map(|_| ())
    };
    write(&mut frame).into_diagnostic().wrap_err("cannot write the table")?;
    Ok([csv, parquet])
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bad_row, ok_row, recipe};
    use super::*;
    use crate::row::Status;

    #[test]
    fn csv_has_every_cell_with_its_values() {
        let recipe = recipe("[grid]\n\"train.batch_size\" = [1, 2]\n\"checkpoint.level\" = [0, 1]\n");
        let mut last = ok_row(&recipe.cells[3], 0.5, 1.5, 600);
        last.estimate.workspace = 300;
        let rows = [
            ok_row(&recipe.cells[0], 0.25, 0.75, 1000),
            bad_row(&recipe.cells[1], Status::Failed, "killed, by \"signal\" 9"),
            ok_row(&recipe.cells[2], 0.5, 1.0, 2000),
            last,
        ];
        let frame = table(&Comparison::new(&recipe, &rows)).expect("a frame");
        let [csv, parquet] = written(frame).expect("files");
        let text = String::from_utf8(csv).expect("UTF-8");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let column = |name: &str| {
            lines[0].iter().position(|header| *header == name).unwrap_or_else(|| panic!("no column {name}"))
        };
        let value = |line: usize, name: &str| lines[line][column(name)];
        assert_eq!(lines.len(), 5);
        assert_eq!(&lines[0][..4], ["checkpoint.level", "train.batch_size", "status", "reason"]);
        assert_eq!(value(4, "checkpoint.level"), "1");
        assert_eq!(value(4, "train.batch_size"), "2");
        assert_eq!(value(4, "forward_s_median"), "0.5");
        assert_eq!(value(4, "optimizer_s_median"), "0.05");
        assert_eq!(value(4, "live_peak_bytes"), "600");
        // 300 + 300 + 300 bytes estimated over 600 measured.
        assert_eq!(value(4, "estimate_bytes"), "900");
        assert_eq!(value(4, "estimate_over_measured"), "1.5");
        assert_eq!(value(4, "backward_vs_baseline"), "1.5");
        assert_eq!(value(4, "live_peak_vs_baseline"), "0.3");
        // 50 of 100 GFLOP/s.
        assert_eq!(value(4, "tflops"), "0.05");
        assert_eq!(value(4, "share_of_matmul_rate"), "0.5");
        assert_eq!(value(4, "loss_first"), "2.0");
        assert_eq!(value(4, "loss_last"), "1.25");
        assert!(text.lines().nth(2).is_some_and(|l| l.contains("failed,\"killed, by \"\"signal\"\" 9\",,,")));
        assert!(!parquet.is_empty());
    }
}

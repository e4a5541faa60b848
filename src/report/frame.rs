//! The table as a Polars DataFrame: one line a cell, in recipe order, one column a quantity.

use miette::{IntoDiagnostic, WrapErr};
use polars::prelude::*;
use serde_json::Value;

use super::learning::Learned;
use super::table::{Comparison, Line, Quantity};
use crate::measure::{Crossing, Direction};
use crate::measure::{Loading, Measurement, Phase, Samples};
use crate::measure::{SMALLEST, SMALLEST_NORMAL};
use crate::row::Row;
use crate::words::text;

/// Times in seconds, memory in bytes, losses in nats a token; a cell without the quantity has null.
pub fn frame(comparison: &Comparison) -> miette::Result<DataFrame> {
    let lines = &comparison.lines;
    let mut columns: Vec<Column> = comparison.swept.iter().map(|key| setting(key, lines)).collect();

    let text = |name: &str, of: &dyn Fn(&Row) -> &str| {
        let values: Vec<Option<&str>> = lines.iter().map(|line| line.row.map(of)).collect();
        Column::new(name.into(), values)
    };
    let number = |name: &str, of: &dyn Fn(&Measurement) -> Option<f64>| {
        let values: Vec<Option<f64>> = lines.iter().map(|line| of(line.measured()?)).collect();
        Column::new(name.into(), values)
    };
    let bytes = |name: &str, of: &dyn Fn(&Measurement) -> Option<u64>| {
        let values: Vec<Option<u64>> = lines.iter().map(|line| of(line.measured()?)).collect();
        Column::new(name.into(), values)
    };
    let per_line = |name: &str, of: &dyn Fn(usize) -> Option<f64>| {
        let values: Vec<Option<f64>> = (0..lines.len()).map(of).collect();
        Column::new(name.into(), values)
    };

    let status: Vec<&str> = lines.iter().map(Line::status).collect();
    columns.push(Column::new("status".into(), status));
    columns.push(text("reason", &|row| &row.reason));
    type Phase = (&'static str, fn(&Measurement) -> Option<&Samples>);
    let phases: [Phase; 4] = [
        ("forward_s", |m| Some(&m.forward)),
        ("backward_s", |m| Some(&m.backward)),
        ("optimizer_s", |m| m.optimizer.as_ref()),
        ("step_s", |m| Some(&m.step)),
    ];
    for (name, samples) in phases {
        columns.push(number(&format!("{name}_median"), &|m| Some(samples(m)?.median)));
        columns.push(number(&format!("{name}_min"), &|m| Some(samples(m)?.min)));
        columns.push(number(&format!("{name}_max"), &|m| Some(samples(m)?.max)));
    }
    columns.push(number("host_update_s_median", &|m| Some(m.host_update.as_ref()?.median)));
    columns.push(number("host_update_hidden", &|m| Some(m.hidden_update()?.0)));
    columns.push(number("host_update_hidden_ceiling", &|m| Some(m.hidden_update()?.1)));
    columns.push(number("tokens_per_second", &|m| Some(m.tokens_per_second)));
    let loading = |name: &str, of: &dyn Fn(&Loading) -> f64| number(name, &|m| m.loading.as_ref().map(of));
    columns.push(loading("run_s", &|l| l.run_seconds));
    columns.push(loading("real_tokens", &|l| l.tokens() as f64));
    columns.push(loading("padding_share", &Loading::padding_share));
    columns.push(loading("stall_share", &Loading::stall_share));
    columns.push(loading("stall_s_median", &|l| l.stall.median));
    columns.push(loading("dropped_samples", &|l| l.dropped_samples as f64));
    columns.push(loading("cut_tokens", &|l| l.cut_tokens as f64));
    columns.push(number("loss_first", &|m| m.loss.first().copied()));
    columns.push(number("loss_last", &|m| m.loss.last().copied()));
    let learned: Vec<Option<Learned>> = lines.iter().map(Learned::of).collect();
    let of_learned = |name: &str, of: &dyn Fn(&Learned) -> Option<f64>| {
        per_line(name, &|i| learned[i].as_ref().and_then(of))
    };
    columns.push(of_learned("train_loss_final", &|l| Some(l.train_last)));
    columns.push(of_learned("eval_loss", &|l| Some(l.end()?.loss)));
    columns.push(of_learned("eval_perplexity", &|l| Some(l.end()?.perplexity())));
    columns.push(of_learned("eval_accuracy", &|l| Some(l.end()?.accuracy)));
    columns.push(number("skipped_steps", &|m| Some(m.scaler.as_ref()?.skipped as f64)));
    columns.push(number("final_scale", &|m| Some(m.scaler.as_ref()?.final_scale)));
    columns.push(number("smallest_scale", &|m| Some(m.scaler.as_ref()?.smallest_scale)));
    let below =
        |m: &Measurement, exponent| Some(m.gradient_histogram.as_ref()?.activations.share_below(exponent));
    columns.push(number("gradients_below_2^-24", &|m| below(m, SMALLEST)));
    columns.push(number("gradients_below_2^-14", &|m| below(m, SMALLEST_NORMAL)));
    columns.push(bytes("live_peak_bytes", &|m| Some(m.memory.live_peak)));
    columns.push(bytes("forward_peak_bytes", &|m| Some(m.memory.forward_peak)));
    columns.push(bytes("backward_peak_bytes", &|m| Some(m.memory.backward_peak)));
    columns.push(bytes("optimizer_peak_bytes", &|m| Some(m.memory.optimizer_peak)));
    columns.push(bytes("after_forward_bytes", &|m| Some(m.memory.after_forward)));
    columns.push(bytes("reserved_peak_bytes", &|m| m.memory.reserved_peak));
    columns.push(bytes("driver_peak_bytes", &|m| m.memory.driver_peak));
    columns.push(bytes("pinned_bytes", &|m| m.memory.pinned));
    columns.push(bytes("host_bytes", &|m| m.memory.host));
    columns.push(bytes("process_rss_peak_bytes", &|m| m.memory.process_rss_peak));
    columns.extend(crossings(lines));
    let estimates: Vec<u64> = lines.iter().map(Line::estimate).collect();
    columns.push(Column::new("estimate_bytes".into(), estimates));
    columns.push(per_line("estimate_over_measured", &|i| lines[i].estimate_over_measured()));
    columns.push(number("tflops", &|m| Some(m.flops_per_second / 1e12)));
    columns.push(per_line("share_of_matmul_rate", &|i| {
        let ceiling = lines[i].row?.environment.ceilings.matmul(lines[i].cell.precision.compute)?;
        Some(lines[i].measured()?.flops_per_second / ceiling)
    }));
    for (name, quantity) in [
        ("forward_vs_baseline", Quantity::Forward),
        ("backward_vs_baseline", Quantity::Backward),
        ("step_vs_baseline", Quantity::Step),
        ("live_peak_vs_baseline", Quantity::Peak),
    ] {
        columns.push(per_line(name, &|i| comparison.ratio(i, quantity)));
    }
    columns.push(text("device", &|row| &row.environment.device.id));
    columns.push(text("device_name", &|row| &row.environment.device.name));
    columns.push(text("runner_version", &|row| &row.environment.runner_version));
    columns.push(text("commit", &|row| &row.environment.commit));
    columns.push(text("build", &|row| &row.environment.build));
    columns.push(text("date", &|row| &row.environment.date));
    // A swept device has a column already, with its setting.
    let mut seen = std::collections::HashSet::new();
    columns.retain(|column| seen.insert(column.name().clone()));
    DataFrame::new(lines.len(), columns).into_diagnostic()
}

/// What crossed the bus, a column a phase, direction and quantity, of those that any cell has.
fn crossings(lines: &[Line]) -> Vec<Column> {
    type Quantity = (&'static str, fn(&Crossing) -> f64);
    let quantities: [Quantity; 6] = [
        ("bytes", |c| c.bytes as f64),
        ("bytes_per_s", Crossing::rate),
        ("copy_s", |c| c.copy_seconds),
        ("compute_s", |c| c.compute_seconds),
        ("hidden_share", Crossing::hidden_share),
        ("hidden_ceiling", Crossing::ceiling),
    ];
    let mut columns = Vec::new();
    for phase in [Phase::Forward, Phase::Backward, Phase::Optimizer] {
        for direction in [Direction::ToDevice, Direction::ToHost] {
            let of = |line: &Line| {
                let crossings = &line.measured()?.crossings;
                crossings.iter().find(|c| c.phase == phase && c.direction == direction).copied()
            };
            let found: Vec<Option<Crossing>> = lines.iter().map(of).collect();
            if found.iter().any(Option::is_some) {
                let prefix = format!(
                    "{}_{}",
                    phase.name(),
                    direction.name().replace("to the", "to").replace(' ', "_")
                );
                columns.extend(quantities.iter().map(|(name, quantity)| {
                    let values: Vec<Option<f64>> = found.iter().map(|c| c.as_ref().map(quantity)).collect();
                    Column::new(format!("{prefix}_{name}").into(), values)
                }));
            }
        }
    }
    columns
}

/// A swept setting, in the narrowest type that holds its values.
fn setting(key: &str, lines: &[Line]) -> Column {
    let values: Vec<Option<&Value>> = lines.iter().map(|line| line.settings.get(key)).collect();
    let all = |is: fn(&Value) -> bool| values.iter().flatten().all(|v| is(v));
    let values = values.iter().copied();
    let name: PlSmallStr = key.into();
    if all(Value::is_i64) {
        Column::new(name, values.map(|v| v.and_then(Value::as_i64)).collect::<Vec<_>>())
    } else if all(Value::is_number) {
        Column::new(name, values.map(|v| v.and_then(Value::as_f64)).collect::<Vec<_>>())
    } else if all(Value::is_boolean) {
        Column::new(name, values.map(|v| v.and_then(Value::as_bool)).collect::<Vec<_>>())
    } else {
        Column::new(name, values.map(|v| v.map(text::value)).collect::<Vec<_>>())
    }
}

pub fn csv(frame: &mut DataFrame) -> miette::Result<Vec<u8>> {
    let mut out = Vec::new();
    CsvWriter::new(&mut out).finish(frame).into_diagnostic().wrap_err("cannot write the table as CSV")?;
    Ok(out)
}

pub fn parquet(frame: &mut DataFrame) -> miette::Result<Vec<u8>> {
    let mut out = Vec::new();
    ParquetWriter::new(&mut out)
        .finish(frame)
        .into_diagnostic()
        .wrap_err("cannot write the table as Parquet")?;
    Ok(out)
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
        let mut frame = frame(&Comparison::new(&recipe, &rows)).expect("a frame");
        let text = String::from_utf8(csv(&mut frame).expect("CSV")).expect("UTF-8");
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
        assert!(!parquet(&mut frame).expect("Parquet").is_empty());
    }
}

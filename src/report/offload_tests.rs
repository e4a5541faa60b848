//! Copies, floors and host updates of made-up rows.

use super::super::parts;
use super::super::table::Comparison;
use super::super::testing::{environment, language_recipe, ok_row};
use super::*;
use crate::measure::{Crossing, Direction, Phase, Samples};
use crate::row::Ceilings;
use crate::row::Row;

/// Naive, overlap and function at one shape.
#[test]
fn tables_by_hand() {
    let recipe = language_recipe(
        "[grid]\n\"offload.strategy\" = [\"naive\", \"overlap\", \"function\"]\n\
         [report]\nbaseline = { \"offload.strategy\" = \"naive\" }\n",
    );
    let rates = Ceilings { host_to_device: Some(1e9), both_ways: Some(0.5e9), ..Ceilings::default() };
    let row = |(cell, time): (_, f64)| {
        let mut row: Row = ok_row(cell, time, time, 1 << 20);
        row.environment.ceilings = rates;
        assert_eq!(row.environment.date, environment().date);
        let crossing = |phase, direction, copies, hidden_seconds| Crossing {
            phase,
            direction,
            copies,
            bytes: 30_000_000,
            copy_seconds: 0.03,
            hidden_seconds,
            compute_seconds: 0.012,
        };
        row.measurement.as_mut().expect("a measured row").crossings = vec![
            crossing(Phase::Forward, Direction::ToDevice, 2, 0.0),
            crossing(Phase::Backward, Direction::ToHost, 2, 0.0108),
        ];
        row
    };
    let rows: Vec<Row> = recipe.cells.iter().zip([0.002, 0.001, 0.002]).map(row).collect();
    let comparison = Comparison::new(&recipe, &rows);
    let floor = comparison.table("floor").expect("blocks move");
    let crossed = parts::crossings(&comparison).expect("blocks move");
    assert_eq!(
        crossed.rows[0].join(" | "),
        "offload naive | forward | 2 to the device | 28.6 MiB | 1.00 | 30.0 ms | 12.0 ms | 0 % | 40 % | 0 %"
    );
    assert_eq!(crossed.rows[1][6..], ["12.0 ms", "36 %", "40 %", "90 %"]);
    // 12 · 64² weights, 576 biases and 256 numbers of norms, of 4 bytes, a block: 200 kB. After an update both
    // blocks are loaded in forward, 0.400 ms at 1 GB/s; backward sends two, 0.800 ms at 0.5 GB/s.
    assert_eq!(
        floor.rows[0],
        ["offload naive", "400 µs", "2.00 ms", "5.00x", "800 µs", "2.00 ms", "2.50x", "3.33x"]
    );
}

/// Each pass copies one of two blocks in, of 12 · 64² weights, 576 biases, 256 numbers of norms and 512 of an adapter, of 4
/// bytes: 202.0 kB; the gradients of both blocks' adapters leave, 4.1 kB, while as many bytes come in.
#[test]
fn frozen_weights_have_one_way_to_themselves() {
    let recipe = language_recipe(
        "[grid]\n\"offload.strategy\" = [\"naive\"]\n[tuning]\nmethod = \"lora\"\nrank = 2\n\
         target_modules = \"c_attn\"\n",
    );
    let mut row: Row = ok_row(&recipe.cells[0], 0.002, 0.002, 1 << 20);
    row.environment.ceilings =
        Ceilings { host_to_device: Some(1e9), both_ways: Some(0.5e9), ..Ceilings::default() };
    // Another process measured lower rates: something else ran then.
    let mut busy = row.clone();
    busy.repeat = 2;
    busy.environment.ceilings = Ceilings { both_ways: Some(0.3e9), ..row.environment.ceilings };
    let rows = [busy, row];
    let comparison = Comparison::new(&recipe, &rows);
    let [forward, backward] = floor(&comparison.lines[0]).expect("blocks move");
    let (block, adapters) = (4.0 * (12.0 * 4096.0 + 576.0 + 256.0 + 512.0), 2.0 * 4.0 * 512.0);
    assert!((forward - block / 1e9).abs() < 1e-12, "{forward}");
    assert!((backward - adapters / 0.5e9 - (block - adapters) / 1e9).abs() < 1e-12, "{backward}");
}

/// Of an update of 4 ms, 2.5 ms are left after 2 ms of backward: 38 % are hidden, of at most 50 %. With two micro-batches
/// updates begin in the second half of backward, so 25 % could be hidden: no less than what was.
#[test]
fn updates_on_the_host_by_hand() {
    for (micro_batches, shares) in [(1, ["38 %", "50 %", "75 %"]), (2, ["38 %", "38 %", "100 %"])] {
        updates_on_the_host(micro_batches, shares);
    }
}

fn updates_on_the_host(micro_batches: usize, [hidden, most, of_most]: [&str; 3]) {
    let grid = "[grid]\n\"offload.optimizer\" = [\"host\", \"device\"]\n";
    let recipe = language_recipe(&format!("{grid}\"train.accumulation_steps\" = {micro_batches}\n"));
    let row = |cell| {
        let mut row = ok_row(cell, 0.001, 0.002, 1 << 20);
        let m = row.measurement.as_mut().expect("a measured row");
        if cell.settings()["offload.optimizer"] == "host" {
            m.host_update = Some(Samples::new(vec![0.004]));
            m.optimizer = Some(Samples::new(vec![0.0025]));
            (m.memory.pinned, m.memory.host) = (Some(2 << 20), Some(12 << 20));
        }
        row
    };
    let rows: Vec<Row> = recipe.cells.iter().map(row).collect();
    let table = Comparison::new(&recipe, &rows).table("host_updates").expect("an update on the host");
    let [only] = table.rows.as_slice() else { panic!("{:?}", table.rows) };
    assert_eq!(only[2..], ["4.00 ms", "2.50 ms", hidden, most, of_most, "2.00 MiB", "12.0 MiB"]);
}

#[test]
fn resident_blocks_have_no_table() {
    let recipe = language_recipe("");
    let rows: Vec<Row> = recipe.cells.iter().map(|cell| ok_row(cell, 0.1, 0.1, 1)).collect();
    let comparison = Comparison::new(&recipe, &rows);
    let tables = [comparison.table("floor"), comparison.table("host_updates"), parts::crossings(&comparison)];
    assert!(tables.iter().all(Option::is_none));
}

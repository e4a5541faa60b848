//! Profiles of made-up traces.

use super::super::testing::{recipe, rows, write_traces};
use super::*;
use crate::measure::trace::{ActivityKind, Mark};
use crate::row::{Ceilings, Derived};

const MS: u64 = 1_000_000;

fn kernel(name: &str, operator: Option<&str>, [start, end]: [u64; 2]) -> Activity {
    Activity {
        kind: ActivityKind::Kernel,
        name: name.into(),
        operator: operator.map(String::from),
        stream: 7,
        start: start * MS,
        end: end * MS,
        bytes: 0,
    }
}

fn end(phase: Phase, time: u64) -> Activity {
    let kind = ActivityKind::Mark;
    Activity { kind, name: Mark::End(phase).name().into(), ..kernel("", None, [time, time]) }
}

/// A step of 1 s: forward for 400 ms, backward for 550 ms and an update for 50 ms.
fn step() -> Vec<Activity> {
    vec![
        kernel("nvjet_tst_1a2b3c4d", Some("swiglu"), [0, 200]),
        kernel("nvjet_tst_1a2b3c4d", Some("swiglu"), [200, 308]),
        kernel("mean_square", Some("loss"), [310, 311]),
        end(Phase::Forward, 400),
        kernel("nvjet_ntt", Some("swiglu"), [420, 936]),
        kernel("binop", None, [936, 940]),
        end(Phase::Backward, 950),
        kernel("sgd", Some("update"), [950, 990]),
        end(Phase::Optimizer, 1000),
    ]
}

/// One cell, and the same with its row's trace in a folder.
fn traced(grid: &str, trace: &[Activity]) -> (tempfile::TempDir, Recipe, Vec<Row>) {
    let recipe = recipe(grid);
    let rows = rows(&recipe);
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_traces(folder.path(), rows.iter().map(|row| (row, trace)));
    (folder, recipe, rows)
}

/// 2 layers of 512 by 2048 and 2048 tokens take 25.77 GFLOP forward and twice that backward, on a device with
/// 100 GFLOP/s: 258 and 515 ms. The loss reads 2048 · 512 numbers of 4 bytes at 10 GB/s: 419 µs.
#[test]
fn a_table_by_hand() {
    let (_, _, rows) = traced("", &[]);
    let profile = StepProfile::new(&rows[0], &step()).expect("a profile");
    let table = profile.table("level 0");
    assert!(
        table.caption.starts_with("level 0: the time of a traced step by operator."),
        "{}",
        table.caption
    );
    assert_eq!(
        table.header,
        ["phase", "operator", "bound by", "count", "time", "floor", "× floor", "of the step"]
    );
    let expected = [
        ["forward", "swiglu", "operations", "2", "308 ms", "258 ms", "1.20x", "31 %"],
        ["forward", "loss", "bytes", "1", "1.00 ms", "419 µs", "2.38x", "0.1 %"],
        ["forward", "outside of operators", "–", "–", "91.0 ms", "–", "–", "9 %"],
        ["backward", "swiglu", "operations", "1", "516 ms", "515 ms", "1.00x", "52 %"],
        ["backward", "other kernels", "–", "1", "4.00 ms", "–", "–", "0.4 %"],
        ["backward", "outside of operators", "–", "–", "30.0 ms", "–", "–", "3 %"],
        ["optimizer", "update", "–", "1", "40.0 ms", "–", "–", "4 %"],
        ["optimizer", "outside of operators", "–", "–", "10.0 ms", "–", "–", "1 %"],
        ["step", "all", "–", "6", "1.00 s", "774 ms", "1.29x", "100 %"],
    ];
    assert_eq!(table.rows, expected, "no optimizer: an update has no floor");
    assert!(profile.top_kernels(5).is_none(), "operators are all that the CPU records");
}

#[test]
fn the_longest_kernels_by_operator_and_phase() {
    let (_, recipe, mut rows) = traced("", &[]);
    rows[0].environment.device.id = "cuda:0".into();
    rows[0].environment.ceilings = Ceilings::default();
    rows[0].derived =
        Some(Derived::new(&recipe.cells[0], &rows[0].environment, rows[0].measurement.as_ref()));
    let profile = StepProfile::new(&rows[0], &step()).expect("a profile");
    let table = profile.top_kernels(2).expect("kernels");
    assert_eq!(table.header, ["kernel", "operator", "phase", "count", "time", "each", "of the step"]);
    assert_eq!(
        table.rows,
        [
            ["nvjet_ntt", "swiglu", "backward", "1", "516 ms", "516 ms", "52 %"],
            ["nvjet_tst", "swiglu", "forward", "2", "308 ms", "154 ms", "31 %"],
        ]
    );
    let operators = profile.table("level 0");
    assert!(operators.rows.iter().any(|row| row[1] == "idle"));
    assert!(!operators.header.contains(&"floor".to_string()), "a rate of the device is missing");
}

#[test]
fn the_cell_that_is_meant_is_found_or_those_that_there_are_are_named() {
    let text = |key: Option<&str>, folder: &Path, recipe: &Recipe, rows: &[Row]| {
        profile(folder, recipe, rows, key, 3).map_err(|e| format!("{e}; {}", e.help().expect("advice")))
    };
    let (folder, recipe, rows) = traced("", &step());
    let folder = folder.path();
    let found = text(None, folder, &recipe, &rows).expect("the only one");
    assert!(
        found.starts_with("precision fp32: the time") && found.contains("outside of operators"),
        "{found}"
    );
    assert_eq!(text(Some(&rows[0].key), folder, &recipe, &rows), Ok(found));
    let wrong = text(Some("0123"), folder, &recipe, &rows).expect_err("no such row");
    assert!(wrong.contains("no cell of") && wrong.contains(&rows[0].key), "{wrong}");
    let file = folder.join(format!("traces/{}.json.gz", rows[0].key));
    std::fs::write(&file, "{").expect("a written file");
    let damaged = text(None, folder, &recipe, &rows).expect_err("a damaged trace");
    assert!(damaged.contains("cannot be used: it is not compressed by gzip"), "{damaged}");
    std::fs::remove_file(file).expect("it is there");
    let missing = text(Some(&rows[0].key), folder, &recipe, &rows).expect_err("no trace");
    assert!(
        missing.contains("has no trace; `runner run` of its recipe, levels.toml, with --trace"),
        "{missing}"
    );
    assert!(!missing.contains("recipes/"), "it may lie elsewhere: {missing}");
    assert!(text(None, folder, &recipe, &rows).expect_err("no trace").contains("no cell of"));

    let (folder, recipe, rows) = traced("[grid]\n\"checkpoint.level\" = [0, 1]\n", &step());
    let several = text(None, folder.path(), &recipe, &rows).expect_err("two");
    assert!(
        several.contains("2 cells of") && several.contains(&format!("{}: level 1", rows[1].key)),
        "{several}"
    );
    assert!(text(Some(&rows[1].key), folder.path(), &recipe, &rows).expect("it").starts_with("level 1: "));
}

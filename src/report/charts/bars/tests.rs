//! Bars of made-up rows.

use super::super::super::testing::{bad_row, ok_row, recipe, rows};
use super::super::tests::assert_labels_are_apart;
use super::*;
use crate::row::{Row, Status};

#[test]
fn bars_say_what_was_measured() {
    let recipe =
        recipe("[grid]\n\"checkpoint.level\" = [0, 0.5, 1]\n\"precision.compute\" = [\"fp32\", \"bf16\"]\n");
    let ok = |cell: usize| ok_row(&recipe.cells[cell], 0.010, 0.020, 100 << 20);
    let rows = [ok(0), ok(1), bad_row(&recipe.cells[2], Status::Oom, "too large")];
    let charts = bars(&Comparison::new(&recipe, &rows)).expect("charts");
    // 10 + 20 + 1 ms of forward, backward and optimizer.
    for text in ["31.0 ms", "oom", "not run", "level 0.5"] {
        assert!(charts[0].svg.contains(text), "{text} is missing in the chart of times");
    }
    assert!(charts[1].svg.contains("100 MiB"));
}

/// Forward and backward of a graph have one time, and its update another.
#[test]
fn the_bar_of_a_graph_is_drawn_undivided() {
    let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
    let mut rows = rows(&recipe);
    let bars_of = |rows: &[Row]| {
        let chart = bars(&Comparison::new(&recipe, rows)).expect("charts").swap_remove(0);
        // Parts of bars that are no forward, in the legend too.
        let is_undivided = chart.svg.contains("a graph or a pipeline, undivided");
        (chart.svg.matches("fill=\"#61A8CF\"").count(), is_undivided)
    };
    assert_eq!(bars_of(&rows), (3, false));
    for optimizer in [rows[1].measurement.as_ref().expect("a measured row").optimizer.clone(), None] {
        let graph = rows[1].measurement.as_mut().expect("a measured row");
        (graph.forward, graph.backward, graph.optimizer) = (None, None, optimizer);
        assert_eq!(bars_of(&rows), (2, true));
    }
}

#[test]
fn a_bar_far_longer_than_the_others_is_broken_off() {
    let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 0.5, 1]\n");
    let of = |slowest: f64| {
        let row = |(i, cell): (usize, &crate::recipe::Cell)| {
            ok_row(cell, if i == 2 { slowest } else { 0.1 }, 0.1, 1 << 30)
        };
        let rows: Vec<Row> = recipe.cells.iter().enumerate().map(row).collect();
        let charts = bars(&Comparison::new(&recipe, &rows)).expect("charts");
        let chart = &charts[0];
        assert_labels_are_apart(chart, "broken");
        (chart.caption.contains("A broken bar is longer"), chart.svg.contains("33.1 s"))
    };
    assert_eq!(of(30.0), (true, true));
    assert_eq!(of(1.0), (false, false));
}

//! Conclusions of hand-made rows; every expected number was worked out by hand.

use super::super::testing::{STUDY, bad_row, ok_row, on_gpu, recipe};
use super::*;
use crate::measure::Samples;
use crate::recipe::Recipe;
use crate::row::Row;

const TWO_LEVELS: &str = "[grid]\n\"checkpoint.level\" = [0, 1]\n";
const TWO_SHAPES: &str = "[grid]\n\"train.batch_size\" = [8, 16]\n\"checkpoint.level\" = [0, 1]\n";

fn of(recipe: &Recipe, rows: &[Row]) -> Vec<String> {
    let rows = on_gpu(rows);
    let comparison = Comparison::new(recipe, &rows);
    sentences(&comparison, &Differences::new(&comparison))
}

#[test]
fn a_saving_with_its_price() {
    let recipe = recipe(TWO_LEVELS);
    let rows = [
        ok_row(&recipe.cells[0], 1.0, 2.0, 1000),
        // 740 of 1000 bytes; 2.62 of 2 s; step 1.1 + 2.62 = 3.72 of 3.1 s, 20 % more.
        ok_row(&recipe.cells[1], 1.0, 2.62, 740),
    ];
    assert_eq!(
        of(&recipe, &rows),
        [
            "Against level 0, level 1 has 20 % more step time, 26 % less peak memory, 31 % more backward time and no clear \
             difference in forward time.",
            "On the Pareto front of step time and peak memory: level 0 and level 1.",
            "The memory estimate was 1.00x the measured peak at 2 cells.",
        ]
    );
}

#[test]
fn every_sign_has_its_words() {
    let recipe = recipe(TWO_LEVELS);
    let first = |forward: f64, backward: f64, peak: u64| {
        let rows =
            [ok_row(&recipe.cells[0], 1.0, 2.0, 1000), ok_row(&recipe.cells[1], forward, backward, peak)];
        of(&recipe, &rows)[0].split(", ").skip(1).take(3).collect::<Vec<_>>().join(", ")
    };
    let expected = [
        (
            2.62,
            740,
            "20 % more step time, 26 % less peak memory, 31 % more backward time and no clear difference in",
        ),
        (
            1.5,
            740,
            "16 % less step time, 26 % less peak memory, 25 % less backward time and no clear difference in",
        ),
        (
            2.5,
            1200,
            "16 % more step time, 20 % more peak memory, 25 % more backward time and no clear difference in",
        ),
        (
            40.0,
            1200,
            "13 times the step time, 20 % more peak memory, 20 times the backward time and no clear",
        ),
        (
            2.5,
            1001,
            "16 % more step time, 25 % more backward time and no clear difference in peak memory and forward",
        ),
        (2.0, 1000, "no clear difference in step time, peak memory, backward time and forward time."),
    ];
    for (backward, peak, words) in expected {
        let said = first(1.0, backward, peak);
        assert!(said.starts_with(&format!("level 1 has {words}")), "{said}");
    }
}

#[test]
fn one_slow_step_hides_nothing_and_a_noisy_run_claims_nothing() {
    let recipe = recipe(TWO_LEVELS);
    let mut rows = [ok_row(&recipe.cells[0], 1.0, 2.0, 1000), ok_row(&recipe.cells[1], 1.0, 2.2, 740)];
    let backward = |rows: &mut [Row; 2], seconds: &[f64]| {
        let m = rows[1].measurement.as_mut().expect("a measured row");
        m.backward = Some(Samples::new(seconds.to_vec()));
    };
    backward(&mut rows, &[2.2, 2.2, 2.2, 2.2, 9.0]);
    assert!(of(&recipe, &rows)[0].contains("10 % more backward time"));
    backward(&mut rows, &[1.5, 1.6, 2.2, 2.8, 2.9]);
    let said = &of(&recipe, &rows)[0];
    assert!(said.contains("no clear difference in step time, backward time and forward time"), "{said}");
}

#[test]
fn ranges_over_shapes() {
    let recipe = recipe(TWO_SHAPES);
    let rows = [
        ok_row(&recipe.cells[0], 1.0, 2.0, 1000),
        ok_row(&recipe.cells[1], 1.0, 2.5, 850),
        ok_row(&recipe.cells[2], 1.0, 2.0, 1000),
        ok_row(&recipe.cells[3], 1.0, 2.7, 690),
    ];
    // Memory -15 % and -31 %; backward +25 % and +35 %; step (1.1 + 2.5)/3.1 = +16.1 % and (1.1 + 2.7)/3.1 = +22.6 %.
    assert_eq!(
        of(&recipe, &rows)[0],
        "Against level 0, level 1 has 16 to 23 % more step time at both shapes, 15 to 31 % less peak memory at both shapes, \
         25 to 35 % more backward time at both shapes and no clear difference in forward time."
    );
    let mixed = [
        rows[0].clone(),
        ok_row(&recipe.cells[1], 1.0, 2.5, 900),
        rows[2].clone(),
        ok_row(&recipe.cells[3], 1.0, 2.7, 1060),
    ];
    assert!(
        of(&recipe, &mixed)[0]
            .contains("6 % more peak memory at 1 of 2 shapes, 10 % less peak memory at 1 of 2 shapes, "),
        "{}",
        of(&recipe, &mixed)[0]
    );
}

#[test]
fn what_does_not_fit_is_said() {
    let recipe = recipe(STUDY);
    let rows: Vec<Row> = recipe
        .cells
        .iter()
        .enumerate()
        .map(|(i, cell)| match (i % 3, i / 3) {
            (0, 2..) => bad_row(cell, Status::Oom, "too large"),
            (1, 4) => bad_row(cell, Status::Failed, "killed"),
            _ => ok_row(cell, 1.0, 2.0, 1000),
        })
        .collect();
    let sentences = of(&recipe, &rows);
    assert!(
        sentences
            .contains(&"Level 0 does not fit at 3 of 5 shapes; level 1 fits at every shape.".to_string()),
        "{sentences:#?}"
    );
    assert!(
        sentences.contains(&"Of 15 cells 3 ran out of memory and 1 failed.".to_string()),
        "{sentences:#?}"
    );
}

#[test]
fn without_a_baseline_or_any_result() {
    let recipe = recipe(TWO_LEVELS);
    let rows =
        [bad_row(&recipe.cells[0], Status::Oom, "too large"), ok_row(&recipe.cells[1], 1.0, 2.0, 1000)];
    assert_eq!(
        of(&recipe, &rows)[..2],
        ["Level 1 has no baseline measurement to be compared with.", "Level 0 does not fit; level 1 fits."]
    );
    assert_eq!(
        of(&recipe, &[]),
        ["No cell ran to its end, so there is nothing to compare.", "Of 2 cells 2 did not run."]
    );
}

#[test]
fn a_beaten_method_is_not_on_the_front() {
    let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 0.5, 1]\n");
    let rows = [
        ok_row(&recipe.cells[0], 1.0, 2.0, 1000),
        ok_row(&recipe.cells[1], 1.0, 3.0, 1100),
        ok_row(&recipe.cells[2], 1.0, 2.5, 700),
    ];
    assert!(
        of(&recipe, &rows)
            .contains(&"On the Pareto front of step time and peak memory: level 0 and level 1.".to_string())
    );
}

#[test]
fn methods_of_which_the_same_is_found_share_a_sentence() {
    let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 0.5, 1]\n");
    let rows: Vec<Row> = recipe.cells.iter().map(|cell| ok_row(cell, 1.0, 2.0, 1000)).collect();
    assert_eq!(
        of(&recipe, &rows)[0],
        "Level 0.5 and level 1 each have no clear difference in step time, peak memory, backward time and forward time, \
         against level 0."
    );
}

/// On a CPU equal work in single processes is a third apart.
#[test]
fn single_processes_on_a_cpu_claim_no_small_difference() {
    let recipe = recipe(TWO_LEVELS);
    let said = |backward: f64| {
        let rows = [ok_row(&recipe.cells[0], 1.0, 2.0, 1000), ok_row(&recipe.cells[1], 1.0, backward, 740)];
        let comparison = Comparison::new(&recipe, &rows);
        sentences(&comparison, &Differences::new(&comparison)).remove(0)
    };
    assert!(said(2.6).contains("no clear difference in step time, backward time"), "{}", said(2.6));
    assert!(said(2.8).contains("40 % more backward time"), "{}", said(2.8));
}

//! Tables of made-up rows.

use super::super::testing::{environment, language_recipe, learned_row, ok_row, recipe};
use super::*;
use crate::measure::{GradientHistogram, Magnitudes, ScalerRecord};
use crate::row::{Ceilings, Row};

#[test]
fn gradients_by_hand() {
    let recipe = language_recipe(
        "[precision]\ncompute = \"fp16\"\n[grid]\n\
         \"precision.scaler\" = [{ kind = \"static\", scale = 1024 }, { kind = \"dynamic\" }]\n",
    );
    let mut rows = [0, 1].map(|i| learned_row(&recipe.cells[i], vec![5.0; 40], &[]));
    let tables = |comparison: &Comparison| [comparison.table("scalers"), gradients(comparison)];
    assert!(tables(&Comparison::new(&recipe, &rows)).iter().all(Option::is_none));
    let measurement = rows[1].measurement.as_mut().unwrap();
    let config = recipe.cells[1].precision.scaler.unwrap();
    measurement.scaler = Some(ScalerRecord::new(
        config.first_scale(),
        &[vec![1.0, 65536.0], vec![0.0, 48.0], vec![1.0, 64.0]],
    ));
    let mut magnitudes = Magnitudes::default();
    // Of four values, times 4: 0, 2^-25, 2^-13 and 1.
    magnitudes.add(&[0.0, 2f32.powi(-25), 2f32.powi(-13), 1.0]);
    let activations = magnitudes.clone();
    measurement.gradient_histogram =
        Some(GradientHistogram { scale: 4.0, activations, parameters: Magnitudes::default() });
    let comparison = Comparison::new(&recipe, &rows);
    let [Some(scalers), Some(gradients)] = tables(&comparison) else { panic!("two tables") };
    assert_eq!(scalers.rows, [["scaler dynamic", "40", "1", "2⁶", "48.0"]]);
    let shares = ["25.0 %", "25.0 %", "25.0 %", "25.0 %", "50.0 %"];
    assert_eq!(gradients.rows[0][..3], ["scaler dynamic", "activations", "2²"]);
    assert_eq!(gradients.rows[0][3..], shares);
    assert_eq!(gradients.rows[1][3..], ["0"; 5]);
}

#[test]
fn each_device_has_the_highest_of_its_rates() {
    let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
    let row = |(cell, matmul): (_, f64)| {
        let mut row: Row = ok_row(cell, 0.1, 0.1, 1);
        let copy = environment().ceilings.copy;
        row.environment.ceilings = Ceilings { matmul_fp32: Some(matmul), copy, ..Ceilings::default() };
        row.environment.ceilings.launch = Some(30.2e-6);
        row
    };
    let rows: Vec<Row> = recipe.cells.iter().zip([50e12, 51.3e12]).map(row).collect();
    let table = ceilings(&Comparison::new(&recipe, &rows)).expect("a table");
    assert_eq!(table.header, ["device", "fp32 TFLOP/s", "copy GB/s", "launch"]);
    assert_eq!(table.rows, [["Test CPU @ 2.00GHz", "51.3", "10.0", "30.2 µs"]]);
}

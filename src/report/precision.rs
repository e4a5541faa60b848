//! The gradients that fp16 loses.

use super::columns::GRADIENTS;
use super::document::Table;
use super::table::Comparison;

/// The shares of gradients that are lost in fp16, with the scale and without; `None` where no cell counted its gradients.
pub fn gradients(comparison: &Comparison) -> Option<Table> {
    let counted = comparison.lines.iter().enumerate().filter_map(|(i, line)| {
        let of = line.measured()?.gradient_histogram.as_ref()?;
        let row = |name: &str, sizes| (i, vec![("of", name.to_string())], (of.scale, sizes));
        Some([row("activations", &of.activations), row("parameters", &of.parameters)])
    });
    let caption = "Shares of the gradients of one step after the last, by size. fp16's smallest number is 2⁻²⁴: \
                   what lies below it becomes zero there, and below 2⁻¹⁴ digits are lost. Gradients that were computed in \
                   fp16 and lost count as zeros.";
    comparison.table_of(caption, GRADIENTS, counted.flatten())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, learned_row};
    use super::*;
    use crate::measure::{GradientHistogram, Magnitudes, ScalerRecord};

    #[test]
    fn the_tables_by_hand() {
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
}

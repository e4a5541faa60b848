//! What the report says of few bits: what the gradient scalers did, and which gradients fp16 loses.

use super::content::{naming, strings};
use super::document::{Block, Table};
use super::labels::power_of_two;
use super::table::{Comparison, Line};
use crate::measure::Magnitudes;
use crate::measure::{SMALLEST, SMALLEST_NORMAL};
use crate::words::text::significant;

/// Nothing where no cell has a scaler or counted its gradients.
pub fn blocks(comparison: &Comparison) -> Vec<Block> {
    let tables: Vec<Table> = scalers(comparison).into_iter().chain(gradients(comparison)).collect();
    let heading = Block::Heading { text: "Gradients in few bits".into() };
    let heading = (!tables.is_empty()).then_some(heading);
    heading.into_iter().chain(tables.into_iter().map(Block::Table)).collect()
}

/// What each scaler did.
fn scalers(comparison: &Comparison) -> Option<Table> {
    let (mut header, names) = naming(comparison);
    let text_columns = (0..header.len()).collect();
    header.extend(strings(&["steps", "skipped steps", "final scale", "smallest scale"]));
    let row = |line: &Line| {
        let record = line.measured()?.scaler.as_ref()?;
        let mut row = names(line);
        row.extend([record.scales.len().to_string(), record.skipped.to_string()]);
        row.extend([record.final_scale, record.smallest_scale].map(power_of_two));
        Some(row)
    };
    let rows: Vec<_> = comparison.lines.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table {
        caption: "Gradient scalers: a step is skipped where a gradient is not finite.".into(),
        header,
        rows,
        text_columns,
    })
}

/// The shares of gradients that are lost in fp16, as they were and without the scale.
fn gradients(comparison: &Comparison) -> Option<Table> {
    let (mut header, names) = naming(comparison);
    header.push("of".into());
    let text_columns = (0..header.len()).collect();
    header.extend(strings(&["scale", "zero", "< 2^-24", "< 2^-14", "unscaled < 2^-24", "unscaled < 2^-14"]));
    let rows = |line: &Line| -> Option<Vec<Vec<String>>> {
        let histogram = line.measured()?.gradient_histogram.as_ref()?;
        let shift = histogram.scale.log2().round() as i32;
        let row = |of: &str, magnitudes: &Magnitudes| {
            let below = |exponent: i32| share(magnitudes.share_below(exponent));
            let mut row = names(line);
            row.extend([of.to_string(), power_of_two(histogram.scale), share(magnitudes.zeros())]);
            row.extend(
                [0, shift].into_iter().flat_map(|by| [SMALLEST + by, SMALLEST_NORMAL + by]).map(below),
            );
            row
        };
        Some(vec![row("activations", &histogram.activations), row("parameters", &histogram.parameters)])
    };
    let rows: Vec<_> = comparison.lines.iter().filter_map(rows).flatten().collect();
    (!rows.is_empty()).then(|| Table {
        caption: "Shares of the gradients of one step after the last, by size. fp16's smallest number is \
                  2^-24: what lies below it becomes zero there, and below 2^-14 digits are lost. Of gradients \
                  computed in fp16, those that it lost are among the zeros."
            .into(),
        header,
        rows,
        text_columns,
    })
}

/// `0`, `0.032 %`, `33 %`
fn share(share: f64) -> String {
    if share == 0.0 { "0".into() } else { format!("{} %", significant(share * 100.0)) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, learned_row};
    use super::*;
    use crate::measure::{GradientHistogram, ScalerRecord};

    #[test]
    fn the_tables_by_hand() {
        let recipe = language_recipe(
            "[precision]\ncompute = \"fp16\"\n[grid]\n\
             \"precision.scaler\" = [{ kind = \"static\", scale = 1024 }, { kind = \"dynamic\" }]\n",
        );
        let mut rows = [0, 1].map(|i| learned_row(&recipe.cells[i], vec![5.0; 40], &[]));
        assert!(blocks(&Comparison::new(&recipe, &rows)).is_empty());
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
        let blocks = blocks(&comparison);
        let [Block::Heading { .. }, Block::Table(scalers), Block::Table(gradients)] = blocks.as_slice()
        else {
            panic!("{} blocks", blocks.len())
        };
        assert_eq!(scalers.rows, [["dynamic scale", "3", "1", "2^6", "48.0"]]);
        let shares = ["25.0 %", "25.0 %", "25.0 %", "25.0 %", "50.0 %"];
        assert_eq!(gradients.rows[0][..3], ["dynamic scale", "activations", "2^2"]);
        assert_eq!(gradients.rows[0][3..], shares);
        assert_eq!(gradients.rows[1][3..], ["0"; 5]);
    }
}

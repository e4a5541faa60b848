//! The lengths of samples: a histogram of what was trained on.

use super::super::texts::distinct;
use super::prelude::*;
use crate::common::text::grouped;

/// A chart of the first cell with samples of texts of several lengths.
pub fn lengths(comparison: &Comparison) -> Result<Vec<Chart>> {
    let all = distinct(comparison);
    let Some((_, texts)) = all.into_iter().find(|(_, texts)| texts.histogram.len() > 1) else {
        return Ok(Vec::new());
    };
    let (least, most) = (texts.lengths[0] as f64, texts.lengths[5] as f64 + 1.0);
    let width = (most - least) / texts.histogram.len() as f64;
    let counts = texts.histogram.iter().map(|count| *count as f64);
    let x = Axis::level("length of a sample in tokens", (least, most));
    let y = Axis::new("samples", from_zero(counts.clone()));
    let plot =
        Plot::new("lengths", "Lengths of samples", Legend::default(), 260).panel(x, y, |canvas, area| {
            for (class, count) in counts.clone().enumerate().filter(|(_, count)| *count > 0.0) {
                let from = least + class as f64 * width;
                let (left, top) = area.at(from, count);
                let (right, _) = area.at(from + width, count);
                // A gap keeps one class and the next apart.
                canvas.rect((left, top), ((right - 1).max(left + 1), area.bottom), method_color(0))?;
                let tokens = format!("{:.0} to {:.0} tokens", from.ceil(), (from + width).ceil() - 1.0);
                canvas.hover(
                    (left, top),
                    (right, area.bottom),
                    &format!("{tokens}: {} samples", grouped(count)),
                );
            }
            Ok(())
        });
    Ok(vec![plot.chart("The lengths of the training split's samples in tokens, uncut.")?])
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{language_recipe, loading_row};
    use super::*;
    use crate::measure::Texts;

    #[test]
    fn a_bar_says_how_many_samples_it_has() {
        let recipe = language_recipe("");
        let mut row = loading_row(&recipe.cells[0], 10.0, &[100, 80], 20, 0);
        let mut drawn = |lengths: [u64; 6], histogram: Vec<u64>| {
            let texts = Texts { lengths, histogram, ..Texts::default() };
            row.measurement.as_mut().unwrap().loading.as_mut().unwrap().texts = Some(texts);
            let charts = super::lengths(&Comparison::new(&recipe, std::slice::from_ref(&row))).unwrap();
            charts.into_iter().map(|chart| chart.svg).collect::<String>()
        };
        // Classes of two lengths each: 10 and 11, 12 and 13, 14 and 15.
        let svg = drawn([10, 10, 11, 14, 15, 15], vec![1200, 0, 7]);
        for part in
            ["length of a sample in tokens", "10 to 11 tokens: 1,200 samples", "14 to 15 tokens: 7 samples"]
        {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("12 to 13 tokens"), "{svg}");
        assert_eq!(drawn([5; 6], vec![9]), "", "one length has no histogram");
    }
}

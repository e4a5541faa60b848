//! Charts of a comparison, drawn by Plotters as SVG. Each kind of chart is a file of this folder and a line of [`CHARTS`].

mod axis;
mod bar;
mod bars;
mod canvas;
mod curves;
mod growth;
mod lanes;
mod legend;
mod lengths;
mod lines;
mod look;
mod magnitudes;
mod methods;
mod pipeline;
mod plot;
mod png;
mod quality;
mod scales;
mod scatter;
mod tags;
mod timeline;

use prelude::{Chart, Comparison};

pub use canvas::font_files;
pub use png::png;
pub use timeline::compared;

/// What charts are made of.
mod prelude {
    pub use plotters::style::{RGBColor, WHITE};

    pub use super::super::prelude::*;
    pub use super::axis::{Scale, extent, from_zero, padded, tick_label};
    pub use super::canvas::*;
    pub use super::legend::{FEW, Legend, Sign};
    pub use super::look::{PHASES, method_color, tint};
    pub use super::plot::{Area, Axis, BELOW, MARGIN, Plot, Room, Ticks};
    pub use super::tags::{Taken, room};
}

/// Draws the charts of a kind; none where the rows do not allow it.
type Draw = fn(&Comparison) -> canvas::Result<Vec<Chart>>;

/// Every kind of chart, in the order of the report: a sweep before the bars of all its cells.
const CHARTS: &[Draw] = &[
    lines::lines,
    bars::bars,
    scatter::scatter,
    curves::curves,
    quality::quality,
    scales::scales,
    growth::growth,
    magnitudes::magnitudes,
    lengths::lengths,
    methods::methods,
    pipeline::pipelines,
];

/// Every chart that the rows allow; none when nothing was measured.
///
/// # Errors
/// When Plotters cannot draw.
pub fn draw(comparison: &Comparison) -> miette::Result<Vec<Chart>> {
    if comparison.lines.iter().all(|line| line.measured().is_none()) {
        return Ok(Vec::new());
    }
    let charts: Vec<Vec<Chart>> =
        CHARTS.iter().map(|chart| chart(comparison)).collect::<miette::Result<_>>()?;
    Ok(charts.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests;

//! Charts of a comparison, drawn by Plotters as SVG.

mod axis;
mod bars;
mod basis;
mod canvas;
mod curves;
mod growth;
mod legend;
mod lines;
mod magnitudes;
mod png;
mod scales;
mod scatter;
mod timeline;

use super::table::Comparison;

pub use canvas::font_files;
pub use png::png;
pub use timeline::timeline;

/// A drawn chart.
pub struct Chart {
    /// The file's name without its ending.
    pub name: String,
    /// What it shows, for the text below it.
    pub caption: String,
    pub svg: String,
}

/// Every chart that the rows allow: bars, the scatter where methods were measured at equal sizes,
/// lines where a size is swept, curves where language models trained, losses over static scales,
/// dynamic ones over the steps, and the sizes of gradients where they were counted. None when nothing was measured.
///
/// # Errors
/// When Plotters cannot draw.
pub fn draw(comparison: &Comparison) -> miette::Result<Vec<Chart>> {
    if comparison.lines.iter().all(|line| line.measured().is_none()) {
        return Ok(Vec::new());
    }
    let mut charts = vec![bars::time(comparison)?, bars::memory(comparison)?];
    charts.extend(scatter::scatter(comparison)?);
    charts.extend(lines::lines(comparison)?);
    charts.extend(curves::curves(comparison)?);
    charts.extend(scales::scales(comparison)?);
    charts.extend(growth::growth(comparison)?);
    charts.extend(magnitudes::magnitudes(comparison)?);
    Ok(charts)
}

#[cfg(test)]
mod tests;

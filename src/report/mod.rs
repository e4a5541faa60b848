//! From rows to tables, charts and documents.
//!
//! `columns` defines every quantity once, `frame` holds the quantities in Polars, `table` compares the cells, and `tables.toml`
//! lists the columns of each table. A chart is a file of `charts`. The same rows give the same bytes, so no part of the report
//! may ask for the time or depend on an order that is not fixed.

mod alike;
mod answers;
mod charts;
mod columns;
mod compare;
mod content;
mod continuations;
mod document;
mod environment;
mod files;
mod frame;
mod interval;
mod labels;
mod latex;
mod learning;
mod limits;
mod line;
mod offload;
mod operators;
mod outcome;
mod page;
mod pareto;
mod parts;
mod pipeline;
mod profile;
mod side_by_side;
mod statistics;
mod table;
mod terminal;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod texts;
mod timelines;
mod tried;
mod typeset;
mod units;
mod verdict;

/// What most files of the report use.
mod prelude {
    pub use itertools::Itertools;

    pub use super::document::{Chart, Element, Table};
    pub use super::line::Line;
    pub use super::table::{Comparison, Group};
    pub use super::units::Unit;
    pub use crate::keys::Settings;
    pub use crate::row::{Row, Status};
}

use std::path::{Path, PathBuf};

use miette::miette;
use rayon::prelude::*;

use crate::common::files::write_whole;
use crate::recipe::Recipe;
use crate::row::Record;
use prelude::{Chart, Comparison, Row};
use timelines::Timelines;

pub use compare::compare;
pub use profile::profile;
pub use terminal::terminal_table;

/// The formats of each chart.
const PICTURES: [&str; 3] = ["svg", "png", "pdf"];

const HTML: &str = "report.html";

/// Rows of a table in the HTML file, which a browser still sorts at once.
const ROWS: usize = 500;

/// Writes the tables, the charts and the documents of a recipe's rows into `folder`, which is made
/// when it is missing. Rows may be missing or not `ok`: their cells are shown as such. Traces that
/// lie in the folder as `traces/<row key>.json.gz` are drawn too.
///
/// Returns the files written, in the order table, charts, documents.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, recipe: &Recipe, rows: &[Row]) -> miette::Result<Vec<PathBuf>> {
    let (comparison, timelines) = compared(folder, recipe, rows)?;
    let charts = charts::draw(&comparison)?;
    let [csv, parquet] = files::written(files::table(&comparison)?)?;
    let tex = latex::tables(&content::for_latex(&comparison));
    let mut files = vec![
        ("table.csv".to_string(), csv),
        ("table.parquet".to_string(), parquet),
        ("table.md".to_string(), terminal::markdown_table(&comparison).into_bytes()),
    ];
    let drawn: Vec<&Chart> = charts.iter().chain(&timelines.compared).collect();
    let pictures: miette::Result<Vec<_>> = drawn.into_par_iter().map(pictures).collect();
    files.extend(pictures?.into_iter().flatten());
    let mut document = content::document(&comparison, charts, timelines);
    document.shorten(ROWS);
    let (html, pdf) = rayon::join(|| typeset::html(&document), || typeset::pdf(document.clone()));
    files.push(("table.tex".to_string(), tex.into_bytes()));
    files.extend([(HTML.to_string(), html?.into_bytes()), ("report.pdf".to_string(), pdf?)]);
    let written = files.into_iter().map(|(name, bytes)| write_file(folder, &name, &bytes));
    let written = written.collect::<miette::Result<Vec<PathBuf>>>()?;
    remove_undrawn(&folder.join("charts"), &written);
    Ok(written)
}

/// Writes report.html alone, for who follows a run whose rows are not all there yet.
///
/// # Errors
/// As [`write`].
pub fn write_html(folder: &Path, recipe: &Recipe, rows: &[Row]) -> miette::Result<()> {
    let (comparison, timelines) = compared(folder, recipe, rows)?;
    let mut document = content::document(&comparison, charts::draw(&comparison)?, timelines);
    document.shorten(ROWS);
    write_file(folder, HTML, typeset::html(&document)?.as_bytes()).map(drop)
}

/// The comparison of the rows, with what lies in their folder.
fn compared<'r>(
    folder: &Path,
    recipe: &'r Recipe,
    rows: &'r [Row],
) -> miette::Result<(Comparison<'r>, Timelines)> {
    let mut comparison = Comparison::new(recipe, rows);
    let timelines = Timelines::read(folder, &comparison)?;
    timelines.add_to(&mut comparison);
    comparison.verified = Record::all(folder).map_err(|e| {
        miette!(
            help = "remove verify.json, and run `runner verify --save` again",
            "cannot read what `runner verify` left in {}: {e}",
            folder.display()
        )
    })?;
    Ok((comparison, timelines))
}

/// The files of a chart.
fn pictures(chart: &Chart) -> miette::Result<[(String, Vec<u8>); 3]> {
    let [svg, png, pdf] = PICTURES.map(|format| format!("charts/{}.{format}", chart.name));
    Ok([
        (svg, chart.svg.clone().into_bytes()),
        (png, charts::png(&chart.svg)?),
        (pdf, typeset::chart_pdf(chart)?),
    ])
}

/// Removes pictures that an earlier report drew and this one did not. One that cannot be removed stays, and so does one that
/// is not there in every format: it is not a report's.
fn remove_undrawn(charts: &Path, written: &[PathBuf]) {
    let entries = std::fs::read_dir(charts).into_iter().flatten();
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let formats = |path: &PathBuf| PICTURES.map(|format| path.with_extension(format));
    let is_old = |path: &&PathBuf| formats(path).iter().all(|of| paths.contains(of) && !written.contains(of));
    for path in paths.iter().filter(is_old).flat_map(formats) {
        let _ = std::fs::remove_file(path);
    }
}

/// A reader sees the old file or the new one, never a half.
fn write_file(folder: &Path, name: &str, bytes: &[u8]) -> miette::Result<PathBuf> {
    let path = folder.join(name);
    let (parent, file) = (path.parent().unwrap_or(folder), path.file_name().and_then(|name| name.to_str()));
    let written = std::fs::create_dir_all(parent).and_then(|()| write_whole(parent, file, bytes));
    written.map_err(|e| {
        miette!(
            help = "check that the folder can be written to and that the disk has room",
            "cannot write {}: {e}",
            path.display()
        )
    })?;
    Ok(path)
}

//! [`Results`]: the contents of a results folder, whichever builds and devices measured its rows.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use itertools::Itertools;
use miette::{Result, miette};

use super::row_files::{Files, other_notices, read_rows};
use super::store::{RECIPE, ROWS};
use crate::common::DeviceId;
use crate::recipe::{Cell, Recipe, Source, Train};
use crate::row::Row;

/// The recipe and rows of a results folder, as `runner report` and `runner compare` read them.
#[derive(Debug)]
pub struct Results {
    /// If several devices have measured the recipe, it has each cell once for each device with a row of it.
    pub recipe: Recipe,
    /// In the order of the recipe's cells, and of the processes of a cell; cells without a row are missing.
    pub rows: Vec<Row>,
    /// Notices about files that were not read as rows.
    pub notices: Vec<String>,
}

/// The copy of the recipe in a results folder.
///
/// # Errors
/// When it is not a results folder, or the copy cannot be read.
pub(super) fn recipe_of(folder: &Path) -> Result<Source> {
    let path = folder.join(RECIPE);
    if path.is_file() {
        return Ok(Source::read(&path)?);
    }
    Err(miette!(
        help = "a results folder is <results>/<recipe>/<device>, with recipe.toml and rows/ in it",
        "{} is not a results folder: it has no {RECIPE}",
        folder.display()
    ))
}

impl Results {
    /// Reads a results folder without writing to it.
    ///
    /// # Errors
    /// When it is not a results folder, or its recipe is not valid.
    pub fn open(folder: &Path) -> Result<Self> {
        recipe_of(folder)?;
        Self::of(folder, read_rows(&folder.join(ROWS))?)
    }

    /// The results of a folder with these of its row files.
    pub(super) fn of(folder: &Path, files: Files) -> Result<Self> {
        let source = recipe_of(folder)?;
        let on_cpu = files.rows.iter().all(Row::is_on_cpu);
        let mut recipe = Recipe::parse_finished(&source, on_cpu)?;
        // The copy is always called recipe.toml; the parent folder has the recipe's name.
        let absolute = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        if let Some(name) = absolute.parent().and_then(Path::file_name) {
            recipe.path = Path::new("recipes").join(name).with_added_extension("toml");
        }
        let left_out = |(path, why): &(PathBuf, String)| format!("{} is left out: {why}", path.display());
        let mut notices: Vec<String> = files.damaged.iter().map(left_out).collect();
        let mut found = files.rows;
        found.sort_by(|a, b| b.worth().cmp(&a.worth()));
        let count = found.len();
        resolve_graphs(&mut recipe, &found);
        let rows = arrange(&mut recipe, found);
        resolve_auto(&mut recipe, &rows);
        notices.extend(other_notices(&files.other_versions, files.others + count - rows.len()));
        Ok(Self { recipe, rows, notices })
    }
}

/// Gives cells on the device `"auto"` the one of the rows: what they would need there does not depend on where it is read.
pub fn resolve_auto(recipe: &mut Recipe, rows: &[Row]) {
    let mut devices = rows.iter().map(|row| DeviceId::named(&row.environment.device.id));
    let device = devices.find(|id| *id != DeviceId::Cpu).unwrap_or(DeviceId::Cpu);
    // Cells on "cpu" beside those on "auto" stay apart from them.
    if rows.is_empty() || device == DeviceId::Cpu && recipe.mixes_devices() {
        return;
    }
    for cell in recipe.cells.iter_mut().filter(|cell| cell.device == "auto") {
        cell.device = device.to_string();
    }
}

/// Gives cells whose recipe leaves `train.graph` open what the first of the rows has that is of them. Without one they have
/// launches, as rows of earlier versions.
pub fn resolve_graphs(recipe: &mut Recipe, rows: &[Row]) {
    let known_by = recipe.apart_from_device();
    let identity = |settings| format!("{:?}", known_by(settings));
    let is_open = |cell: &Cell| cell.train.graph_is_open;
    let told: HashSet<String> =
        recipe.cells.iter().filter(|cell| !is_open(cell)).map(|cell| identity(cell.settings())).collect();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        places.entry(identity(row.settings())).or_insert(place);
    }
    for cell in recipe.cells.iter_mut().filter(|cell| is_open(cell)) {
        let place = |graph: bool| {
            let cell = Cell { train: Train { graph, ..cell.train.clone() }, ..cell.clone() };
            let identity = identity(cell.settings());
            // Such a row is another cell's.
            (!told.contains(&identity)).then(|| places.get(&identity).copied()).flatten()
        };
        let (recorded, launched) = (place(true), place(false));
        cell.train.graph = recorded.is_some_and(|recorded| launched.is_none_or(|other| recorded < other));
    }
}

/// Chooses the rows that count from rows sorted by worth, and puts them in the order of the recipe's cells. If several
/// devices have measured the recipe, its cells are repeated for each device.
fn arrange(recipe: &mut Recipe, found: Vec<Row>) -> Vec<Row> {
    let apart = are_of_several_devices(recipe, &found);
    let first = found.first().map(|row| row.environment.device.name.clone()).unwrap_or_default();
    let known_by = recipe.apart_from_device();
    let settings_of = |settings| format!("{:?}", known_by(settings));
    let mut by_settings: HashMap<String, Vec<Row>> = HashMap::new();
    for row in found {
        by_settings.entry(settings_of(row.settings())).or_default().push(row);
    }
    let (mut rows, mut cells, mut devices) = (Vec::new(), Vec::new(), Vec::new());
    for cell in &recipe.cells {
        let of_cell = by_settings.remove(&settings_of(cell.settings())).unwrap_or_default();
        if !apart {
            rows.extend(of_one_device(of_cell));
            continue;
        }
        let name = |row: &Row| row.environment.device.name.clone();
        // If one device has measured the cell, a row that another skipped it does not count.
        let ran = of_cell.first().is_some_and(|row| row.worth().0);
        let of_cell = of_cell.into_iter().filter(|row| !ran || row.worth().0);
        let by_device = of_cell.map(|row| (name(&row), row)).into_group_map();
        let none = by_device.is_empty().then(|| (first.clone(), Vec::new()));
        for (device, of_device) in by_device.into_iter().chain(none).sorted_by(|a, b| a.0.cmp(&b.0)) {
            cells.push(cell.clone());
            devices.push(device);
            rows.extend(of_one_device(of_device));
        }
    }
    if apart {
        recipe.tell_devices_apart(cells, devices);
    }
    rows
}

/// Whether several devices of one kind, CPU or GPU, have measured cells; for a recipe without `device`, several of any kind.
fn are_of_several_devices(recipe: &Recipe, rows: &[Row]) -> bool {
    let (mixed, cpu) = (recipe.mixes_devices(), DeviceId::Cpu.to_string());
    let kind = |row: &Row| mixed && row.cell["device"] == cpu;
    let ran = rows.iter().filter(|row| row.worth().0);
    let names: BTreeSet<(bool, &str)> =
        ran.map(|row| (kind(row), row.environment.device.name.as_str())).collect();
    let kinds: HashSet<bool> = names.iter().map(|(kind, _)| *kind).collect();
    names.len() > kinds.len()
}

/// The rows of a cell on one device. If it was measured more than once, the first row counts, with the rows of the other
/// processes that have its key and its build.
fn of_one_device(rows: Vec<Row>) -> Vec<Row> {
    let Some(Row { key, environment, .. }) = rows.first().cloned() else { return rows };
    let alike = rows.into_iter().filter(|row| row.key == key && row.environment.build == environment.build);
    alike.unique_by(|row| row.repeat).sorted_by_key(|row| row.repeat).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::tests::BASE;
    use crate::row::Status;
    use crate::run::testing;

    /// A step by launches, as every step of earlier versions, and one as a graph.
    #[test]
    fn open_graphs_are_those_of_the_rows() {
        let recipe = |more: &str| {
            let text = format!("device = \"cuda:0\"\n{BASE}{more}");
            Recipe::parse_finished(&Source { path: "recipes/r.toml".into(), text }, false).expect("a recipe")
        };
        let row = |graph: bool| {
            let mut cell = recipe("").cells.remove(0);
            cell.train.graph = graph;
            Row::new(&cell, &testing::environment(), Status::Ok, String::new())
        };
        let found = |more: &str, rows: &[Row]| {
            let mut recipe = recipe(more);
            resolve_graphs(&mut recipe, rows);
            recipe.cells.iter().map(|cell| cell.train.graph).collect::<Vec<_>>()
        };
        assert_eq!(found("", &[row(false)]), [false]);
        assert_eq!(found("", &[row(true)]), [true]);
        assert_eq!(found("", &[]), [false]);
        // The first row counts, which is the newest.
        assert_eq!(found("", &[row(true), row(false)]), [true]);
        assert_eq!(found("", &[row(false), row(true)]), [false]);
        let both = "[grid]\n\"train.graph\" = [\"auto\", true]\n";
        assert_eq!(found(both, &[row(true), row(false)]), [false, true], "the other row is the other cell's");
    }
}

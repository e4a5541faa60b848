//! [`Store`]: the results folder of one recipe on one device, one file per row.
//!
//! `<root>/<recipe>/<device>/rows/<key>.json` holds a row each, `recipe.toml` beside them the
//! recipe as typed. A file is written under another name and renamed, so a row is there whole or
//! not at all, whatever happens to the runner and however many runs share the folder.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use miette::{Result, miette};

use super::row_files::{Found, move_aside, other_notice, read_row, read_rows};
use crate::device::{DeviceId, DeviceInfo};
use crate::files::{remove_stale, write_whole};
use crate::recipe::{Cell, Recipe, Source};
use crate::row::Row;

const ROWS: &str = "rows";
const TRACES: &str = "traces";
const RECIPE: &str = "recipe.toml";
/// Bytes written to prove that a row will fit: a row with a few hundred steps has about 20 KiB.
const PROOF: usize = 64 << 10;

/// The results folder of one recipe on one device, open for writing.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    device: String,
    /// The CPU's name where cells on it stand beside those of the device.
    cpu: Option<String>,
}

/// The rows of a recipe's cells that are already there.
#[derive(Debug, Default)]
pub struct Loaded {
    /// By [`Cell::key`].
    pub rows: HashMap<String, Row>,
    /// What the user should know about files that were not read as rows.
    pub notices: Vec<String>,
}

/// A results folder as it stands, for `runner report` and `runner compare`.
#[derive(Debug)]
pub struct Results {
    pub recipe: Recipe,
    /// In the order of the recipe's cells; cells without a row are left out.
    pub rows: Vec<Row>,
    pub notices: Vec<String>,
}

impl Store {
    /// Makes the folder, proves that it can be written to, and puts the recipe in it.
    ///
    /// # Errors
    /// When the folder cannot be made or written to; names the path.
    pub fn open(results_root: &Path, recipe: &Recipe, device: &DeviceInfo) -> Result<Self> {
        let folder = Self::folder_of(results_root, recipe, device);
        let cpu = recipe.mixes_devices().then(|| DeviceId::Cpu.info().name);
        let store = Self { folder, device: device.name.clone(), cpu };
        let rows = store.rows();
        let prove = || -> io::Result<()> {
            fs::create_dir_all(&rows)?;
            write_whole(&rows, None, &vec![b' '; PROOF])?;
            write_whole(&store.folder, Some(RECIPE), recipe.text.as_bytes())
        };
        prove().map_err(|e| {
            miette!(
                help = "nothing was measured yet: make the folder writable, move what is in its way, free some \
                        space, or choose another results folder",
                "cannot write results to {}: {e}",
                rows.display()
            )
        })?;
        remove_stale(&rows);
        Ok(store)
    }

    /// `<root>/<recipe>/<device>`
    pub fn folder_of(results_root: &Path, recipe: &Recipe, device: &DeviceInfo) -> PathBuf {
        results_root.join(recipe.name()).join(device.slug())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names the cell's row.
    pub fn key(&self, cell: &Cell) -> String {
        match &self.cpu {
            Some(cpu) if cell.device.0 == "cpu" => cell.key(cpu),
            _ => cell.key(&self.device),
        }
    }

    /// Reads the rows of `cells`. A damaged file is moved aside, and its cell counts as missing.
    ///
    /// # Errors
    /// When the folder cannot be read, or a damaged file cannot be moved.
    pub fn load(&self, cells: &[Cell]) -> Result<Loaded> {
        let files = read_rows(&self.rows())?;
        let mut loaded = Loaded::default();
        let mut other = files.other;
        for (path, why) in files.damaged {
            loaded.notices.push(move_aside(&path, &why)?);
        }
        let mut wanted: HashMap<String, &Cell> = cells.iter().map(|cell| (self.key(cell), cell)).collect();
        for (path, row) in files.rows {
            match wanted.remove(&row.key) {
                Some(cell) if row.cell != cell.to_json() => {
                    loaded.notices.push(move_aside(&path, "it describes another cell")?);
                }
                Some(_) => {
                    loaded.rows.insert(row.key.clone(), row);
                }
                None => other += 1,
            }
        }
        loaded.notices.extend(other_notice(other));
        Ok(loaded)
    }

    /// The row of one cell as it stands now; `None` when there is none that can be read.
    pub fn read(&self, cell: &Cell) -> Option<Row> {
        let path = self.row_path(&self.key(cell));
        match read_row(&path, &fs::read(&path).ok()?) {
            Found::Row(row) if row.cell == cell.to_json() => Some(*row),
            _ => None,
        }
    }

    /// Writes a row, replacing the cell's earlier one.
    ///
    /// # Errors
    /// When it cannot be written (full disk, quota). The caller still holds the row.
    pub fn save(&self, row: &Row) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(row).expect("a row is plain data");
        text.push('\n');
        write_whole(&self.rows(), Some(&format!("{}.json", row.key)), text.as_bytes())
    }

    /// What this build of the runner has measured of `recipe`: rows of other builds may stand beside
    /// them, and are not compared with them.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn results(&self, recipe: &Recipe) -> Result<Results> {
        let keys: HashSet<String> = recipe.cells.iter().map(|cell| self.key(cell)).collect();
        Self::read_folder(&self.folder, |row| keys.contains(&row.key))
    }

    /// Reads a results folder without writing to it, whichever builds measured it.
    ///
    /// # Errors
    /// When it is not a results folder, or its recipe is not valid.
    pub fn open_folder(folder: &Path) -> Result<Results> {
        Self::read_folder(folder, |_| true)
    }

    fn read_folder(folder: &Path, wanted: impl Fn(&Row) -> bool) -> Result<Results> {
        let recipe_path = folder.join(RECIPE);
        if !recipe_path.is_file() {
            return Err(miette!(
                help = "a results folder is <results>/<recipe>/<device>, with recipe.toml and rows/ in it",
                "{} is not a results folder: it has no {RECIPE}",
                folder.display()
            ));
        }
        let files = read_rows(&folder.join(ROWS))?;
        let on_cpu = files.rows.iter().all(|(_, row)| row.environment.device.id == "cpu");
        let mut recipe = Recipe::parse_finished(&Source::read(&recipe_path)?, on_cpu)?;
        // The copy is called recipe.toml in every folder; the folder above has the recipe's name.
        let absolute = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        if let Some(name) = absolute.parent().and_then(Path::file_name) {
            recipe.path = Path::new("recipes").join(name).with_added_extension("toml");
        }
        let mut notices: Vec<String> = files
            .damaged
            .iter()
            .map(|(path, why)| format!("{} is left out: {why}", path.display()))
            .collect();
        let (mut found, others): (Vec<Row>, Vec<Row>) =
            files.rows.into_iter().map(|(_, row)| row).partition(wanted);
        // Builds may have measured a cell each: the newest row counts.
        found.sort_by(|a, b| b.environment.date.cmp(&a.environment.date));
        let mut rows = Vec::new();
        let mut settings: Vec<_> = found.iter().map(|row| recipe.apart_from_device(row.settings())).collect();
        for cell in &recipe.cells {
            let wanted = recipe.apart_from_device(cell.settings());
            if let Some(at) = settings.iter().position(|of_row| *of_row == wanted) {
                settings.remove(at);
                rows.push(found.remove(at));
            }
        }
        notices.extend(other_notice(files.other + others.len() + found.len()));
        Ok(Results { recipe, rows, notices })
    }

    /// The file of the row with this key.
    pub fn row_path(&self, key: &str) -> PathBuf {
        self.rows().join(format!("{key}.json"))
    }

    /// Where the cell's trace goes.
    pub fn trace_path(&self, cell: &Cell) -> PathBuf {
        self.folder.join(TRACES).join(format!("{}.json", self.key(cell)))
    }

    /// Makes the folder of the traces.
    ///
    /// # Errors
    /// The system's.
    pub fn keep_traces(&self) -> io::Result<()> {
        fs::create_dir_all(self.folder.join(TRACES))
    }

    fn rows(&self) -> PathBuf {
        self.folder.join(ROWS)
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;

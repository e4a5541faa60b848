//! [`Store`]: the results folder of one recipe on one device, one file per row.
//!
//! `<root>/<recipe>/<device>/rows/<key>.json` holds a row each, `recipe.toml` beside them the
//! recipe as typed. A file is written under another name and renamed, so a row is there whole or
//! not at all, whatever happens to the runner and however many runs share the folder.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use miette::{Result, miette};
use serde_json::Value;

use crate::device::DeviceInfo;
use crate::recipe::{Cell, Recipe, Source};
use crate::row::{FORMAT, Row, Status};

const ROWS: &str = "rows";
const TRACES: &str = "traces";
const RECIPE: &str = "recipe.toml";
/// Ending of a row that is still being written.
const UNFINISHED: &str = ".tmp";
/// A file still unfinished after this long belongs to a run that is dead.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// Bytes written to prove that a row will fit: a row with a few hundred steps has about 20 KiB.
const PROOF: usize = 64 << 10;

/// The results folder of one recipe on one device, open for writing.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    device: String,
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
        let store = Self { folder, device: device.name.clone() };
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
        cell.key(&self.device)
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
        let mut recipe = Recipe::parse_finished(&Source::read(&recipe_path)?)?;
        // The copy is called recipe.toml in every folder; the folder above has the recipe's name.
        let absolute = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        if let Some(name) = absolute.parent().and_then(Path::file_name) {
            recipe.path = Path::new("recipes").join(name).with_added_extension("toml");
        }
        let files = read_rows(&folder.join(ROWS))?;
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
        for cell in &recipe.cells {
            let wanted = without_device(cell.to_json());
            if let Some(at) = found.iter().position(|row| without_device(row.cell.clone()) == wanted) {
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

/// A cell apart from the device it ran on, which `auto` names differently on each machine.
fn without_device(mut cell: Value) -> Value {
    if let Some(map) = cell.as_object_mut() {
        map.remove("device");
    }
    cell
}

/// The files of a rows folder, sorted by what they are.
#[derive(Default)]
struct Files {
    rows: Vec<(PathBuf, Row)>,
    /// With the reason.
    damaged: Vec<(PathBuf, String)>,
    /// Rows that another format or version of the runner wrote.
    other: usize,
}

/// What a file in the rows folder turned out to be.
enum Found {
    Row(Box<Row>),
    Damaged(String),
    Other,
}

fn read_rows(folder: &Path) -> Result<Files> {
    let unreadable = |e: io::Error| {
        miette!(
            help = "check that the folder exists and that you may read it",
            "cannot read the rows in {}: {e}",
            folder.display()
        )
    };
    let mut files = Files::default();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = match fs::read(&path) {
            Ok(text) => text,
            // Another run has just moved it aside.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(unreadable(e)),
        };
        match read_row(&path, &text) {
            Found::Row(row) => files.rows.push((path, *row)),
            Found::Damaged(why) => files.damaged.push((path, why)),
            Found::Other => files.other += 1,
        }
    }
    Ok(files)
}

fn read_row(path: &Path, text: &[u8]) -> Found {
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(e) => return Found::Damaged(format!("it is not a whole row: {e}")),
    };
    let version = value.pointer("/environment/runner_version").and_then(Value::as_str);
    let format = value.get("format").and_then(Value::as_u64);
    if format.is_some_and(|format| format != u64::from(FORMAT))
        || version.is_some_and(|version| version != env!("CARGO_PKG_VERSION"))
    {
        return Found::Other;
    }
    match serde_json::from_value::<Row>(value) {
        Ok(row) if path.file_stem().is_none_or(|stem| stem != row.key.as_str()) => {
            Found::Damaged(format!("its key is {}", row.key))
        }
        Ok(row) if (row.status == Status::Ok) != row.measurement.is_some() => {
            Found::Damaged(format!("its status is {} but its measurement says otherwise", row.status.name()))
        }
        Ok(row) => Found::Row(Box::new(row)),
        Err(e) => Found::Damaged(format!("it is not a row: {e}")),
    }
}

fn other_notice(count: usize) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 row of another recipe or build of the runner was left as it is".into()),
        n => Some(format!("{n} rows of another recipe or build of the runner were left as they are")),
    }
}

fn move_aside(path: &Path, why: &str) -> Result<String> {
    let aside = path.with_added_extension("damaged");
    match fs::rename(path, &aside) {
        Ok(()) => Ok(format!("{} counts as missing ({why}); kept as {}", path.display(), aside.display())),
        // Another run has moved it already.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Ok(format!("{} counts as missing ({why})", path.display()))
        }
        Err(e) => Err(miette!(
            help = "move or delete the file",
            "{} is damaged ({why}) and cannot be moved aside: {e}",
            path.display()
        )),
    }
}

/// Writes a file that is there whole or not at all; without a name, only proves that it can.
fn write_whole(folder: &Path, name: Option<&str>, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(".writing-")
        .suffix(UNFINISHED)
        // Less the umask: rows are as readable as any other file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    let Some(name) = name else { return file.close() };
    file.persist(folder.join(name)).map_err(|e| e.error)?;
    // The rename itself must survive a power cut too.
    File::open(folder)?.sync_all()
}

/// Removes what dead runs left unfinished. A run that is alive now has younger files.
fn remove_stale(rows: &Path) {
    for entry in fs::read_dir(rows).into_iter().flatten().flatten() {
        let unfinished = entry.file_name().to_string_lossy().ends_with(UNFINISHED);
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if unfinished && age.is_some_and(|age| age > STALE) {
            // Only tidiness: a file that cannot be removed disturbs nothing.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;

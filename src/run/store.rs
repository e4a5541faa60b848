//! [`Store`]: the results folder of one recipe on one device, with one file for each row.
//!
//! `<root>/<recipe>/<device>/rows/<key>.json` holds a row, and `recipe.toml` the recipe as the user wrote it. A file is
//! written under another name and then renamed, so a row is there whole or not at all, whatever happens to the runner and
//! however many runs share the folder.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use miette::{Report, Result, miette};
use rayon::prelude::*;

use super::again::TryAgain;
use super::claim::require_own;
use super::lines::lines;
use super::results::Results;
use super::row_files::{Files, move_aside, other_notices, read_row, read_rows};
use crate::common::DeviceId;
use crate::common::files::{remove_stale, write_whole};
use crate::device::{DeviceInfo, trace};
use crate::recipe::{Cell, Recipe};
use crate::row::contents::Contents;
use crate::row::{Inputs, Row, Status, key};

pub(super) const ROWS: &str = "rows";
pub(super) const RECIPE: &str = "recipe.toml";
/// Bytes written to prove that a row will fit: a row with a few hundred steps has about 20 KiB.
const PROOF: usize = 64 << 10;

/// The results folder of one recipe on one device, open for writing.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    device: DeviceInfo,
    /// The CPU's name, if the recipe also has cells on the CPU.
    cpu: Option<String>,
}

/// The rows that a recipe's cells already have.
#[derive(Debug, Default)]
pub struct Loaded {
    /// By cell and process.
    pub rows: Vec<Vec<Option<Row>>>,
    /// Notices about files that were not read as rows.
    pub notices: Vec<String>,
}

/// The rows of a folder, whichever build measured them.
struct Sorted {
    /// The newest row of each process of each cell.
    rows: Vec<Vec<Option<Row>>>,
    /// Of more processes of these cells than the recipe has now. Reports count them.
    further: Vec<Row>,
    /// The number of rows of other cells or input files.
    others: usize,
}

impl Store {
    /// Makes the folder, checks that it can be written to, and writes the recipe into it.
    ///
    /// # Errors
    /// When the folder cannot be made or written to, or is another recipe's; names the path.
    pub fn open(results_root: &Path, recipe: &Recipe, device: &DeviceInfo) -> Result<Self> {
        let store = Self::at(results_root, recipe, device);
        require_own(&store, recipe)?;
        let rows = store.rows();
        let prove = || -> io::Result<()> {
            fs::create_dir_all(&rows)?;
            write_whole(&rows, None, &vec![b' '; PROOF])?;
            write_whole(&store.folder, Some(RECIPE), recipe.text.as_bytes())
        };
        prove().map_err(|e| {
            let message = format!("cannot write results to {}: {e}", rows.display());
            let help = "nothing was measured yet: make the folder writable, move what is in its way, free some \
                        space, or choose another results folder";
            match e.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    Report::from(TryAgain { message, help: help.into() })
                }
                _ => miette!(help = help, "{message}"),
            }
        })?;
        remove_stale(&rows);
        Ok(store)
    }

    /// The folder `<root>/<recipe>/<device>`, which need not be there.
    pub fn at(results_root: &Path, recipe: &Recipe, device: &DeviceInfo) -> Self {
        let folder = results_root.join(recipe.name()).join(device.slug());
        let cpu = recipe.mixes_devices().then(|| DeviceId::Cpu.info().name);
        Self { folder, device: device.clone(), cpu }
    }

    /// The device that the results are of.
    pub fn device(&self) -> &DeviceInfo {
        &self.device
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The key of a cell's row; `inputs`: checksums of the files that it reads.
    pub fn key(&self, cell: &Cell, inputs: &Inputs) -> String {
        let device = match &self.cpu {
            Some(cpu) if cell.device_id() == DeviceId::Cpu => cpu,
            _ => &self.device.name,
        };
        key(&cell.to_json(), device, inputs)
    }

    /// Reads the rows of `cells`. A damaged file is moved aside, and its cell counts as missing. `notify` is told of input
    /// files that take long to read.
    ///
    /// # Errors
    /// When the folder cannot be read, or a damaged file cannot be moved.
    pub fn load(&self, cells: &[Cell], notify: &dyn Fn(&str)) -> Result<Loaded> {
        let mut files = read_rows(&self.rows())?;
        let moved = files.damaged.drain(..).map(|(path, why)| move_aside(&path, &why));
        let mut notices = moved.collect::<Result<Vec<String>>>()?;
        let other_versions = std::mem::take(&mut files.other_versions);
        let Sorted { rows, others, .. } = self.sort(files, cells, notify);
        notices.extend(other_notices(&other_versions, others));
        Ok(Loaded { rows, notices })
    }

    /// Reads the rows of `cells` without changing a file; the folder need not be there. `notify`: as for
    /// [`load`](Self::load).
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn peek(&self, cells: &[Cell], notify: &dyn Fn(&str)) -> Result<Vec<Vec<Option<Row>>>> {
        let files = if self.rows().is_dir() { read_rows(&self.rows())? } else { Files::default() };
        Ok(self.sort(files, cells, notify).rows)
    }

    fn sort(&self, files: Files, cells: &[Cell], notify: &dyn Fn(&str)) -> Sorted {
        let mut contents = Contents::new(notify);
        let (mut others, mut further) = (files.rows.len(), Vec::new());
        let mut by_cell: HashMap<String, Vec<Row>> = HashMap::new();
        let named = |row: Row| (key(&row.cell, &row.environment.device.name, &Inputs::new()), row);
        for (name, row) in files.rows.into_par_iter().map(named).collect::<Vec<_>>() {
            by_cell.entry(name).or_default().push(row);
        }
        let keys: Vec<String> = cells.par_iter().map(|cell| self.key(cell, &Inputs::new())).collect();
        let mut newest = |(cell, key): (&Cell, &String)| {
            let mut newest: Vec<Option<Row>> = vec![None; cell.processes()];
            let Some(found) = by_cell.remove(key) else { return newest };
            let inputs = contents.inputs(cell);
            // Of a row without inputs the contents of its files are not known.
            for row in found.into_iter().filter(|row| row.inputs.as_ref().is_none_or(|of| *of == inputs)) {
                match row.repeat.checked_sub(1).and_then(|place| newest.get_mut(place)) {
                    Some(Some(kept)) if kept.worth() > row.worth() => {}
                    Some(place) => *place = Some(row),
                    None => further.push(row),
                }
            }
            newest
        };
        let rows: Vec<Vec<Option<Row>>> = cells.iter().zip(&keys).map(&mut newest).collect();
        others -= rows.iter().flatten().flatten().count() + further.len();
        Sorted { rows, further, others }
    }

    /// Reads the row with this [`name`](crate::row::name); `None` if there is none that can be read.
    pub fn read(&self, name: &str) -> Option<Row> {
        let path = self.row_path(name);
        read_row(&path, &fs::read(&path).ok()?).ok()?
    }

    /// Writes a row in place of an earlier one of the same process. Where that is of another version, or has a measurement
    /// and the new one has none, it is kept under another name, which is returned.
    ///
    /// # Errors
    /// When it cannot be written (full disk, quota). The earlier row is then where it was.
    pub fn save(&self, row: &Row) -> io::Result<Option<PathBuf>> {
        let path = self.row_path(&row.name());
        let is_lost = |text: &Vec<u8>| match read_row(&path, text) {
            Ok(Some(earlier)) => earlier.status == Status::Ok && row.status != Status::Ok,
            Ok(None) => true,
            Err(_) => false,
        };
        let kept = match fs::read(&path).ok().filter(is_lost) {
            Some(earlier) => {
                let kept = free_name(&path);
                write_whole(&self.rows(), kept.file_name().and_then(OsStr::to_str), &earlier)?;
                Some(kept)
            }
            None => None,
        };
        write_whole(&self.rows(), Some(&format!("{}.json", row.name())), &lines(row))?;
        Ok(kept)
    }

    /// Gives the row with this [`name`](crate::row::name) another name, under which it does not count; returns its file.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn set_aside(&self, name: &str) -> io::Result<PathBuf> {
        let kept = free_name(&self.row_path(name));
        fs::rename(self.row_path(name), &kept)?;
        Ok(kept)
    }

    /// Writes the row of a skipped cell, unless the cell has a row.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub fn save_skipped(&self, row: &Row) -> io::Result<()> {
        match self.row_path(&row.name()).exists() {
            true => Ok(()),
            false => self.save(row).map(drop),
        }
    }

    /// The rows of `recipe` in the folder, without those of other devices or input files.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn results(&self, recipe: &Recipe, notify: &dyn Fn(&str)) -> Result<Results> {
        let mut files = read_rows(&self.rows())?;
        let (damaged, other_versions) =
            (std::mem::take(&mut files.damaged), std::mem::take(&mut files.other_versions));
        let Sorted { rows, further, others } = self.sort(files, &recipe.cells, notify);
        let rows = rows.into_iter().flatten().flatten().chain(further).collect();
        Results::of(&self.folder, Files { rows, damaged, other_versions, others })
    }

    /// The rows of a recipe on all devices, the newest first; files that cannot be read are left out.
    pub fn rows_of_all_devices(results_root: &Path, recipe: &Recipe) -> Vec<Row> {
        let folders = fs::read_dir(results_root.join(recipe.name())).into_iter().flatten().flatten();
        let files = folders.filter_map(|folder| read_rows(&folder.path().join(ROWS)).ok());
        let mut rows: Vec<Row> = files.flat_map(|files| files.rows).collect();
        rows.retain(|row| row.status != Status::Skipped);
        rows.sort_by(|a, b| b.environment.date.cmp(&a.environment.date));
        rows
    }

    /// The file of the row with this [`name`](crate::row::name).
    pub fn row_path(&self, name: &str) -> PathBuf {
        self.rows().join(format!("{name}.json"))
    }

    /// The file for the trace of the row with this key.
    pub fn trace_path(&self, key: &str) -> PathBuf {
        trace::path(&self.folder, key)
    }

    /// The file for a trace that is being recorded. It counts when [`take_new_trace`](Self::take_new_trace) has renamed it.
    pub fn new_trace_path(&self, key: &str) -> PathBuf {
        self.trace_path(key).with_added_extension("new")
    }

    /// Puts the trace that was recorded in the place of the earlier one, which says nothing of the new row; without one there
    /// is none then.
    pub fn take_new_trace(&self, key: &str) {
        if fs::rename(self.new_trace_path(key), self.trace_path(key)).is_err() {
            let _ = fs::remove_file(self.trace_path(key));
        }
    }

    /// Removes a trace of a row that has no measurement.
    pub fn drop_new_trace(&self, key: &str) {
        let _ = fs::remove_file(self.new_trace_path(key));
    }

    /// Makes the folder of the traces.
    ///
    /// # Errors
    /// The system's.
    pub fn keep_traces(&self) -> io::Result<()> {
        fs::create_dir_all(self.folder.join(trace::FOLDER))
    }

    pub fn has_traces(&self) -> bool {
        fs::read_dir(self.folder.join(trace::FOLDER)).is_ok_and(|mut traces| traces.next().is_some())
    }

    /// The folder with a file for each row.
    pub fn rows(&self) -> PathBuf {
        self.folder.join(ROWS)
    }
}

/// A name beside a row's that no file has.
fn free_name(row: &Path) -> PathBuf {
    let name = |n: usize| row.with_added_extension(if n == 1 { "other".into() } else { format!("other{n}") });
    (1..).map(name).find(|name| !name.exists()).expect("some name is free")
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;

//! `[save] state`: the state of training every few steps, from which an interrupted cell goes on as if it had not
//! been interrupted.
//!
//! A state is a folder `step-<n>` with the parameters (`model.safetensors`), the state of optimizer and scaler
//! (`optimizer.bin`) and everything else (`progress.toml`). A finished folder is renamed into place, and then the earlier
//! state is removed.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::build::Build;
use super::feed::Feed;
use super::training::{Standing, Training};
use crate::common::files::{remove_folder, remove_unfinished, write_folder};
use crate::measure::Measured;
use crate::optim::Kept;
use crate::params::save::WEIGHTS;
use crate::params::weights::TensorFile;
use crate::recipe::{Cell, Folders};
use crate::row::contents::Contents;
use crate::row::key;

const PROGRESS: &str = "progress.toml";
const OPTIMIZER: &str = "optimizer.bin";
/// Beginning of the name of a state's folder; the number of steps follows.
const STEP: &str = "step-";
/// Hash of the sources of this program: other sources may compute other digits.
pub const BUILD: &str = env!("RUNNER_BUILD");

/// How far a cell has come. TOML reads numbers back exactly.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// [`key`] of the cell, its device and its input files.
    pub cell: String,
    pub build: String,
    /// Steps so far, warm-up included.
    pub done: usize,
    /// Seconds of the measured ones.
    pub run_seconds: f64,
    /// Steps after which the cell was interrupted before.
    pub resumed: Vec<usize>,
    pub measured: Measured,
    pub standing: Standing,
}

/// Where the states of a cell are.
pub struct States {
    pub folder: PathBuf,
    /// Steps between two.
    pub every: usize,
    /// As in [`Progress`].
    pub cell: String,
}

/// A state that was found.
pub struct State {
    pub folder: PathBuf,
    pub progress: Progress,
}

impl States {
    /// The states of a cell that saves one every so many steps into a folder.
    pub fn of(cell: &Cell, (folder, every): (PathBuf, usize)) -> Self {
        let inputs = Contents::new(&|_| ()).inputs(cell);
        // How long it may take changes no number: a cell that was ended too early goes on with more time.
        let mut trained = cell.clone();
        trained.measure.timeout = 1.0;
        Self { folder, every, cell: key(&trained.to_json(), &cell.device_id().info().name, &inputs) }
    }

    /// The last state, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, belongs to another cell or build, or its folder holds something else that is called as a state;
    /// says what to do.
    pub fn last(&self) -> Result<Option<State>, String> {
        if let Some((_, other)) = called(&self.folder).find(|(_, path)| !is_state(path)) {
            return Err(format!(
                "{} is no state that the runner has saved, and states have such names: name another folder in save.state, \
                 or move it",
                other.display()
            ));
        }
        // Of runs that were killed while they wrote or removed a state.
        remove_unfinished(&self.folder, Duration::ZERO);
        let Some((_, folder)) = all(&self.folder).into_iter().max() else { return Ok(None) };
        let start_anew = format!("remove {} to train from the beginning", self.folder.display());
        let unread =
            |e: String| format!("the state in {} cannot be read: {e}; {start_anew}", folder.display());
        let text = fs::read_to_string(folder.join(PROGRESS)).map_err(|e| e.to_string());
        let progress = text.and_then(|text| toml::from_str(&text).map_err(|e| e.to_string()));
        let progress: Progress = progress.map_err(unread)?;
        TensorFile::open(&folder.join(WEIGHTS)).map_err(|_| unread(format!("its {WEIGHTS} is damaged")))?;
        if progress.cell != self.cell {
            return Err(format!(
                "the state in {} belongs to a cell with other settings, input files or device; name another folder in \
                 save.state, or {start_anew}",
                folder.display()
            ));
        }
        if progress.build != BUILD {
            return Err(format!(
                "the state in {} was written by another build of the runner, which may compute other digits; \
                 {start_anew}, or go on with that build",
                folder.display()
            ));
        }
        Ok(Some(State { folder, progress }))
    }

    /// Writes a state and removes those before it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write<N: Build>(
        &self,
        step: usize,
        progress: &Progress,
        training: &mut Training<'_, N>,
    ) -> io::Result<()> {
        let before = all(&self.folder);
        let folder = self.folder.join(format!("{STEP}{step}"));
        write_folder(&folder, |folder| {
            training.write_weights(folder)?;
            let mut out = BufWriter::new(File::create(folder.join(OPTIMIZER))?);
            let mut written = Ok(());
            training.visit(&mut |name, kept| {
                if written.is_ok() {
                    written = write_kept(&mut out, name, &kept);
                }
            });
            written.and_then(|()| out.flush())?;
            fs::write(folder.join(PROGRESS), toml::to_string(progress).map_err(io::Error::other)?)
        })?;
        before.into_iter().filter(|(_, path)| *path != folder).try_for_each(|(_, path)| remove_folder(&path))
    }
}

/// Removes the states of a cell, which it no longer needs once its row is there.
///
/// # Errors
/// When they cannot be removed.
pub fn remove_states(cell: &Cell) -> io::Result<()> {
    let Some((folder, _)) = Folders::of(cell).expect("checked with the cell").state else { return Ok(()) };
    all(&folder).into_iter().try_for_each(|(_, path)| remove_folder(&path))?;
    // It stays if it holds other files.
    let _ = fs::remove_dir(&folder);
    Ok(())
}

/// What is called as states are, with their steps.
fn called(folder: &Path) -> impl Iterator<Item = (usize, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let step = |path: PathBuf| Some((path.file_name()?.to_str()?.strip_prefix(STEP)?.parse().ok()?, path));
    entries.filter_map(move |entry| step(entry.path()))
}

/// The folders of states, with their steps.
fn all(folder: &Path) -> Vec<(usize, PathBuf)> {
    called(folder).filter(|(_, path)| is_state(path)).collect()
}

fn is_state(path: &Path) -> bool {
    path.join(PROGRESS).exists()
}

/// Why something that the recipe saves is not there.
pub fn unwritten(what: &str, folder: &Path, error: &io::Error) -> String {
    format!("{what} cannot be written to {}: {error}", folder.display())
}

impl State {
    /// The cell, with the state's parameters as its first weights.
    pub fn cell(&self, cell: &Cell) -> Cell {
        let mut cell = cell.clone();
        cell.model.load_from(self.folder.clone());
        cell
    }

    /// Lets the batches begin after those of the state's steps.
    pub fn resume_feed<B>(&self, feed: &mut dyn Feed<B>) {
        let Standing { position, loads, .. } = &self.progress.standing;
        feed.resume(*position, loads.clone());
    }

    /// Restores everything else into a training whose network and feed go on from this state.
    ///
    /// # Errors
    /// When the state is damaged.
    pub fn restore<N: Build>(&self, training: &mut Training<'_, N>) -> io::Result<()> {
        let mut input = BufReader::new(File::open(self.folder.join(OPTIMIZER))?);
        let mut read = Ok(());
        training.resume(&self.progress.standing, &mut |name, kept| {
            if read.is_ok() {
                read = read_kept(&mut input, name, kept);
            }
        });
        read?;
        if input.read(&mut [0])? == 0 { Ok(()) } else { Err(damaged("it is too long")) }
    }
}

/// Writes name and value, each after its length in 8 bytes.
fn write_kept(out: &mut impl Write, name: &str, kept: &Kept<'_>) -> io::Result<()> {
    let value = kept.bytes();
    for part in [name.as_bytes(), &value] {
        out.write_all(&(part.len() as u64).to_le_bytes())?;
        out.write_all(part)?;
    }
    Ok(())
}

/// Reads a value, which must have this name and length.
fn read_kept(input: &mut impl Read, name: &str, kept: Kept<'_>) -> io::Result<()> {
    let length = kept.bytes().len();
    let mut part = |expected: usize| {
        let mut size = [0; 8];
        input.read_exact(&mut size)?;
        if u64::from_le_bytes(size) != expected as u64 {
            return Err(damaged(&format!("{name} has another size")));
        }
        let mut bytes = vec![0; expected];
        input.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    if part(name.len())? != name.as_bytes() {
        return Err(damaged(&format!("there is something else in the place of {name}")));
    }
    kept.set(&part(length)?);
    Ok(())
}

fn damaged(what: &str) -> io::Error {
    io::Error::other(format!("{OPTIMIZER} is damaged: {what}"))
}

#[cfg(test)]
#[path = "saving_tests.rs"]
mod tests;

//! From what the user wrote to what will run: a TOML file becomes a [`Recipe`], a list of
//! checked [`Cell`]s plus what the report needs to compare them.
//!
//! Every error names file:line:column, shows the line and says what to change; every cell of the
//! grid is checked here, before the first one runs.

mod build;
mod cell;
mod complete;
mod diagnostic;
mod grid;
mod home;
pub mod keys;
mod ladder;
mod log;
mod overlay;
mod read;
pub mod reference;
mod report;
mod rules;
mod save;
pub mod schema;
mod sections;
mod set;
mod tagged;
pub mod whole;
mod written;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use itertools::Itertools;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::common::DeviceId;
use crate::device::Target;
use crate::keys::Settings;

pub use cell::{Cell, own_parameters};
pub use diagnostic::{RecipeError, Source};
use grid::Layer;
pub use grid::MAX_CELLS;
pub use log::Log;
pub use read::without_nulls;
pub use report::{Published, ReportConfig, Stage, matches};
pub use save::{Folders, Save};
pub use sections::{Clip, Eval, Measure, Mode, Train, WARMUP_OF_A_GRAPH};
pub use set::Setting;
use set::Written;

/// A recipe whose cells are all resolved and checked.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Where it was read from.
    pub path: PathBuf,
    /// The text as typed; copied into the results folder.
    pub text: String,
    pub title: String,
    /// What the recipe answers, in a sentence or two. May be empty.
    pub question: String,
    pub cells: Vec<Cell>,
    /// The name that the recipe gives to each cell; else empty.
    pub names: Vec<String>,
    /// By the position of a cell: why it needs hardware that is not here.
    pub elsewhere: BTreeMap<usize, String>,
    /// The name of each cell's device, in results that tell several apart; else empty.
    pub devices: Vec<String>,
    pub report: ReportConfig,
    /// Dotted keys that take more than one value over the cells, in the order of the settings.
    pub swept: Vec<String>,
    /// Those of them by which its cells are told apart: a kind or a preset stands for all that it decides.
    pub telling: Vec<String>,
}

const GRID: &str = "grid";
const LADDER: &str = "ladder";
/// The keys at the top of a recipe that are no cell's.
const NOT_OF_CELLS: [&str; 5] = ["title", "question", "report", GRID, LADDER];
const ON_CPU: &str = "on_cpu";
/// [`DeviceId::Cpu`] in a recipe.
const CPU: &str = "cpu";

impl Recipe {
    /// Reads a recipe file, with settings in place of its own, and checks it for this machine or another.
    ///
    /// # Errors
    /// A [`RecipeError`] that points at the place in the file.
    pub fn load(path: &Path, settings: &[Setting], target: &Target) -> Result<Self, RecipeError> {
        Self::parse_for(&Source::read(path)?.with(settings), target)
    }

    /// Checks a recipe that is already in memory, for this machine.
    ///
    /// # Errors
    /// As [`Recipe::load`].
    pub fn parse(source: &Source) -> Result<Self, RecipeError> {
        Self::parse_for(source, &Target::Here)
    }

    /// Checks a recipe that is already in memory.
    ///
    /// # Errors
    /// As [`Recipe::load`].
    pub fn parse_for(source: &Source, target: &Target) -> Result<Self, RecipeError> {
        let written = source.written()?;
        // A device that is not there is reported with its place, later.
        let device = target.resolve(written.device().unwrap_or("auto"));
        let on_cpu = device.is_ok_and(|device| device == DeviceId::Cpu);
        Self::checked(source, Some(target), on_cpu)
    }

    /// Reads a recipe whose cells run, or have run, here or on another machine: it need not be able to run
    /// on this one. `on_cpu`: whether they ran on a CPU.
    ///
    /// # Errors
    /// As [`Recipe::load`], apart from devices.
    pub fn parse_finished(source: &Source, on_cpu: bool) -> Result<Self, RecipeError> {
        Self::checked(source, None, on_cpu)
    }

    /// What stands under `[on_cpu]` is laid over the recipe's own sections there. Both sides are checked wherever the recipe
    /// is read.
    fn checked(source: &Source, target: Option<&Target>, on_cpu: bool) -> Result<Self, RecipeError> {
        let Written { mut root, set, on_cpu: set_on_cpu } = source.written()?;
        // With `--set` the cells are not those of the file, and what was published may be of none of them.
        let as_written = set.is_none();
        let set = set.unwrap_or_default();
        let small = root.get_mut().remove_entry(ON_CPU);
        if small.is_none() && set_on_cpu.is_empty() {
            let recipe = Self::built(root, &set, source, target)?;
            if as_written {
                recipe.report.check_published(&recipe.cells, source)?;
            }
            return Ok(recipe);
        }
        let replaced = on_a_cpu(root.clone(), small, &set_on_cpu, source)?;
        let (ours, other) = if on_cpu { (replaced, root) } else { (root, replaced) };
        let other = Self::built(other, &set, source, None)?;
        let recipe = Self::built(ours, &set, source, target)?;
        if as_written {
            recipe.report.check_published(recipe.cells.iter().chain(&other.cells), source)?;
        }
        Ok(recipe)
    }

    /// The recipe's short name: the file name without `.toml`. Names its results folder.
    pub fn name(&self) -> String {
        let stem = self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        // These are folders.
        stem.filter(|stem| ![".", ".."].contains(&stem.as_str())).unwrap_or_else(|| "recipe".into())
    }

    /// The device the recipe is about: the GPU where a cell can run on one, else the CPU.
    pub fn device(&self) -> DeviceId {
        let here = (0..self.cells.len()).filter(|position| !self.elsewhere.contains_key(position));
        let mut devices = here.map(|position| self.cells[position].device_id());
        devices.find(|id| *id != DeviceId::Cpu).unwrap_or(DeviceId::Cpu)
    }

    /// `2 cells need other hardware: the device "cuda:0" is not there`; `None` where every cell can run.
    pub fn elsewhere_notice(&self) -> Option<String> {
        let cells = match self.elsewhere.len() {
            0 => return None,
            1 => "1 cell needs".to_string(),
            n => format!("{n} cells need"),
        };
        Some(format!("{cells} other hardware: {}", self.elsewhere.values().unique().join("; ")))
    }

    /// Whether some cells run on the CPU and others do not.
    pub fn mixes_devices(&self) -> bool {
        let on_cpu = |cell: &Cell| cell.device == CPU;
        self.cells.iter().any(on_cpu) && !self.cells.iter().all(on_cpu)
    }

    /// Puts these cells in the place of its own, each once or several times and in their order, with the name of the device
    /// that measured each.
    pub fn tell_devices_apart(&mut self, cells: Vec<Cell>, devices: Vec<String>) {
        let mut own = self.cells.iter().zip(&self.names).peekable();
        let name = |cell: &Cell| {
            while own.next_if(|(other, _)| *other != cell).is_some() {}
            own.peek().map_or_else(String::new, |(_, name)| (*name).clone())
        };
        self.names = cells.iter().map(name).collect();
        (self.cells, self.devices) = (cells, devices);
    }

    /// Leaves the settings by which a row is recognised as a cell's. On another machine `auto` means another device, so all that counts
    /// of the device is whether it is the CPU, in recipes where some cells run there and others do not.
    pub fn apart_from_device(&self) -> impl Fn(Settings) -> Settings + use<> {
        let mixed = self.mixes_devices();
        move |mut settings| {
            let device = settings.remove("device");
            if mixed {
                settings.insert("on_cpu".into(), (device == Some(CPU.into())).into());
            }
            settings
        }
    }
}

/// The recipe with what its `[on_cpu]` says, and what is set of that.
fn on_a_cpu<'i>(
    mut root: Spanned<DeTable<'i>>,
    small: Option<(Spanned<DeString<'i>>, Spanned<DeValue<'i>>)>,
    set: &[Layer<'i>],
    source: &Source,
) -> Result<Spanned<DeTable<'i>>, RecipeError> {
    let mut small = match small.map(|(name, small)| (name.span(), small.into_inner())) {
        None => DeTable::new(),
        Some((_, DeValue::Table(small))) => small,
        Some((place, _)) => {
            return Err(source.at(
                Some(place),
                format!("`{ON_CPU}` must be a table of sections"),
                format!("write [{ON_CPU}.model], [{ON_CPU}.train] and so on"),
            ));
        }
    };
    let table = root.get_mut();
    // What says which cells there are takes the place of the recipe's own, in either form.
    if [GRID, LADDER].iter().any(|key| small.contains_key(*key)) {
        [GRID, LADDER].iter().for_each(|key| _ = table.remove(*key));
    }
    for key in NOT_OF_CELLS {
        table.extend(small.remove_entry(key));
    }
    overlay::lay(table, &overlay::layer(small), source)?;
    set.iter().try_for_each(|layer| overlay::lay(table, layer, source))?;
    Ok(root)
}

/// The first part of a dotted key.
fn head(key: &str) -> &str {
    key.split_once('.').map_or(key, |(head, _)| head)
}

#[cfg(test)]
mod ladder_tests;
#[cfg(test)]
pub mod tests;

//! What each command does; `main.rs` is the flow between them.

pub mod advise;
pub mod data;
pub mod devices;
pub mod generate;
pub mod init;
pub mod join;
pub mod keys;
pub mod memory;
pub mod plan;
pub mod profile;
pub mod recipes;
pub mod run;
mod timelines;
pub mod verify;

use std::path::Path;

use clap::Args;
use itertools::Itertools;
use miette::{Result, miette};

use crate::common::DeviceId;
use crate::common::streams::tell;
use crate::data::{Data, TextSource};
use crate::device::Target;
use crate::model::Model;
use crate::params::hub::{self, Needs};
use crate::recipe::{Recipe, Setting};
use crate::run::Results;

/// Settings of recipe keys
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Use this value for a recipe key, in every cell, as train.batch_size=4; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Setting>,
}

/// The results in a folder. The user is told which of its files are left out.
///
/// # Errors
/// When it is not a results folder, or its recipe is not valid.
pub fn open_results(folder: &Path) -> Result<Results> {
    let results = Results::open(folder)?;
    results.notices.iter().for_each(tell);
    Ok(results)
}

/// Fetches the models and data sets of the Hub that the cells of a recipe read, each once: before the processes that measure.
///
/// # Errors
/// When one cannot be had.
pub fn fetch_from_hub(recipe: &Recipe) -> Result<()> {
    let folders = recipe.cells.iter().filter_map(|cell| cell.model.weights_folder()).unique();
    let models = folders.map(|folder| hub::fetched(folder, Needs::Weights));
    let corpora = recipe.cells.iter().filter_map(|cell| match &cell.data {
        Data::Text { corpus: TextSource::Path(path), reading, .. } => Some((path, reading)),
        _ => None,
    });
    let corpora = corpora.unique_by(|(path, reading)| (*path, &reading.subset));
    let data_sets = corpora.map(|(path, reading)| hub::fetched(path, reading.needs()));
    models.chain(data_sets).try_for_each(|found| found.map(|_| ()).map_err(|why| miette!("{why}")))
}

/// What the user should know of the folders of weights of a recipe, each once.
pub fn tell_of_models(recipe: &Recipe) {
    let models = recipe.cells.iter().filter_map(|cell| {
        let folder = cell.model.weights_folder()?;
        Some((folder, &cell.model, cell.train.mode.trains()))
    });
    let models = models.unique_by(|(folder, _, trains)| (*folder, *trains));
    let notices = models.flat_map(|(folder, model, trains)| notices(folder, model, trains));
    notices.unique().for_each(tell);
}

/// What the user should know of a model's folder.
fn notices(folder: &Path, model: &Model, trains: bool) -> Vec<String> {
    let file = hub::local(folder).join("config.json");
    let of = |notice: String| format!("{}: {notice}", file.display());
    model.notices(trains).into_iter().map(of).collect()
}

/// The device of this name on this machine.
///
/// # Errors
/// When it is not there.
fn device(name: &str) -> Result<DeviceId> {
    DeviceId::resolve(name).map_err(|rule| miette!(help = rule.help, "{}", rule.message))
}

/// What a recipe is checked with
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub settings: SetArgs,
    /// For this device, which need not be here: "rtx 3060", "h100, 20 GiB", "cuda, 11 GiB, sm_75" or "cpu, 8 GiB"
    #[arg(long = "for", value_name = "DEVICE")]
    pub target: Option<Target>,
}

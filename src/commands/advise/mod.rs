//! `runner advise`: how to train what a recipe trains within so much memory, the fastest ways first; and how near such
//! predictions are to rows.

mod against;
mod compared;
mod located;
mod measured;
mod text;

use std::path::PathBuf;

use clap::Args;
use miette::{Result, miette};

use self::located::Located;
use super::CheckArgs;
use crate::advise::{AXES, Limits, Plan, Rates, advise, with_optimizer};
use crate::device::Target;
use crate::recipe::{Cell, Recipe, keys};
use crate::words::{Bytes, Compute};

#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// The recipe (a TOML file)
    pub recipe: PathBuf,
    /// Memory of the device to live within, such as 11GiB; else that of `measure.memory_limit`, or what is free
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<Bytes>,
    /// Memory of the host to live within; else that of `measure.host_memory_limit`, or any
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub host_memory: Option<Bytes>,
    #[command(flatten)]
    pub checked: CheckArgs,
    /// The cell that `runner plan` gives this number, of a recipe with a grid
    #[arg(long, value_name = "K")]
    pub cell: Option<usize>,
    /// A key, or a section, that stays as the recipe has it, such as precision; may be repeated
    #[arg(long, value_name = "KEY")]
    pub keep: Vec<String>,
    /// Kinds of optimizers to choose among, such as adamw,adamw8bit, with the recipe's values; else its own alone
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub optimizers: Vec<String>,
    /// How many ways to list
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top: usize,
    /// Run the best three, and compare what they take with what was predicted
    #[arg(long)]
    pub measure: bool,
    /// Compare what is predicted of every cell of the recipe with the rows of this results folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["measure", "cell", "keep", "optimizers", "memory"])]
    pub against: Option<PathBuf>,
    /// Folder for the results of --measure
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    pub results: PathBuf,
}

fn bytes(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).ok_or_else(|| "write an amount such as 11GiB or 500 MB".into())
}

/// The advice as text, after the best three ran where that is asked for.
///
/// # Errors
/// When there is no row to compare with, the recipe has more than one cell and none is chosen, a key to keep is none of those that are searched, or
/// what is to be measured cannot run.
pub fn run(args: &AdviseArgs) -> Result<String> {
    if let Some(folder) = &args.against {
        return against::against(args, folder);
    }
    let target = args.checked.target.clone().unwrap_or_default();
    let recipe = Recipe::load(&args.recipe, &args.checked.settings.set, &target)?;
    let cell = chosen(&recipe, args.cell)?;
    if !target.has(cell.device_id()) {
        let help = "take a cell that can run here, or describe its machine with --for";
        return Err(miette!(help = help, "the device {} is not here", cell.device));
    }
    for key in &args.keep {
        let known = |axis: &str| {
            axis == key.as_str()
                || axis.starts_with(&format!("{key}."))
                || key.starts_with(&format!("{axis}."))
        };
        if !AXES.iter().any(|axis| known(axis)) {
            return Err(miette!(
                help = format!("what is searched: {}; all else stays as it is", AXES.join(", ")),
                "--keep {key} is none of the keys that are searched"
            ));
        }
    }
    let limits = limits(args, cell, &target)?;
    let types = [cell.precision.compute, Compute::Bf16];
    let rates = Rates::measure(&target, cell.device_id(), &types);
    let advice = advise(&with_optimizers(cell, &args.optimizers)?, &target, limits, &rates, &args.keep);
    let command = |plan: &Plan, limits| Ok(Located::of(args, cell, &plan.cell, limits)?.command(args));
    let mut text = text::advice(&recipe.title, &advice, limits, args.top, &command)?;
    if target != Target::Here {
        text +=
            "\nTimes are those of an H200, or of two cores of a CPU: the device is not here to be measured.";
    }
    if args.measure {
        if target != Target::Here {
            return Err(miette!(help = "leave out --for", "--measure runs on this machine"));
        }
        let best: Vec<&Plan> = advice.fitting.iter().take(3).collect();
        text += &measured::measured(args, cell, &best, limits)?;
    }
    Ok(text)
}

/// The cell to advise on.
fn chosen(recipe: &Recipe, cell: Option<usize>) -> Result<&Cell> {
    let count = recipe.cells.len();
    match cell {
        None if count == 1 => Ok(&recipe.cells[0]),
        None => Err(miette!(
            help =
                "choose one by --cell K, as `runner plan` numbers them, or set the keys of the grid by --set",
            "the recipe has {count} cells, and advice is for one"
        )),
        Some(k) if (1..=count).contains(&k) => Ok(&recipe.cells[k - 1]),
        Some(k) => Err(miette!(
            help = "`runner plan` numbers them",
            "there is no cell {k}: the recipe has cells 1 to {count}"
        )),
    }
}

/// The cell with each of these kinds of optimizers; with its own where none is named.
fn with_optimizers(cell: &Cell, kinds: &[String]) -> Result<Vec<Cell>> {
    if kinds.is_empty() {
        return Ok(vec![cell.clone()]);
    }
    let with = |kind: &String| {
        with_optimizer(cell, kind.trim()).ok_or_else(|| {
            miette!(
                help = format!("the kinds: {}", keys::kinds("train.optimizer", "kind").join(", ")),
                "--optimizers {kind} is no kind of optimizer that could take the place of the recipe's"
            )
        })
    };
    kinds.iter().map(with).collect()
}

fn limits(args: &AdviseArgs, cell: &Cell, target: &Target) -> Result<Limits> {
    let free = Some(target.info(cell.device_id()).memory_available).filter(|bytes| *bytes > 0);
    let written = args.memory.or(cell.measure.memory_limit).map(|bytes| bytes.0);
    let memory = written.or(free).ok_or_else(|| {
        miette!(help = "write --memory 11GiB", "it is not known how much memory the device has")
    })?;
    let host_memory = args.host_memory.or(cell.measure.host_memory_limit).map(|bytes| bytes.0);
    Ok(Limits { memory, host_memory })
}

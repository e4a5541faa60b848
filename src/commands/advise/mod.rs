//! `runner advise`: the fastest ways to train a recipe's cell within so much memory, with --for a card by its data sheet, and
//! for another device those with the least work.

mod located;
mod measured;
mod text;

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use miette::{IntoDiagnostic, Result, miette};

use self::located::Located;
use super::CheckArgs;
use crate::advise::{AXES, Limits, Plan, Rates, advise, keeps, precisions, with_optimizer};
use crate::common::streams::print;
use crate::common::{Bytes, Compute};
use crate::device::{Capability, Feature, Target};
use crate::recipe::{Cell, Recipe, keys};
use crate::run::Options;

#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// The recipe (a TOML file)
    pub recipe: PathBuf,
    /// Device memory that may be used, such as 11GiB [default: `measure.memory_limit`, else what is free]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<Bytes>,
    /// Host memory that may be used [default: `measure.host_memory_limit`, else any amount]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub host_memory: Option<Bytes>,
    #[command(flatten)]
    pub checked: CheckArgs,
    /// The number of the cell, as `runner plan` shows it, where the recipe has several
    #[arg(long, value_name = "K")]
    pub cell: Option<usize>,
    /// A key, or a section, that stays as the recipe has it, such as precision; may be repeated
    #[arg(long, value_name = "KEY")]
    pub keep: Vec<String>,
    /// Kinds of optimizers to choose from, such as adamw,adamw8bit, with the recipe's values [default: its own kind]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub optimizers: Vec<String>,
    /// How many ways to list
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub top: usize,
    /// Run the best three, and compare their time and memory with the prediction
    #[arg(long)]
    pub measure: bool,
    /// Folder for the results of --measure
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    pub results: PathBuf,
}

fn bytes(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).ok_or_else(|| "write an amount such as 11GiB or 500 MB".into())
}

/// The advice as text; with `--measure` it is printed, and the result is the table of the best three as measured.
///
/// # Errors
/// When the recipe has several cells and none is chosen, a key to keep is not one that
/// the search varies, or the best cannot run.
pub fn run(args: &AdviseArgs) -> Result<String> {
    let target = args.checked.target.clone().unwrap_or_default();
    if args.measure && target != Target::Here {
        return Err(miette!(help = "leave out --for", "--measure runs on this machine"));
    }
    let (recipe, lacks) = loaded(args, &target)?;
    let position = chosen(&recipe, args.cell)?;
    let cell = &recipe.cells[position];
    if !target.has(cell.device_id()) {
        let help = "take a cell that can run here, or describe its machine with --for";
        return Err(miette!(help = help, "the device {} is not here", cell.device));
    }
    if let Some(key) = args.keep.iter().find(|key| !AXES.iter().any(|axis| keeps(key, axis))) {
        return Err(miette!(
            help = format!("the search varies {}; everything else stays as it is", AXES.join(", ")),
            "--keep {key}: the search does not vary this key"
        ));
    }
    let limits = limits(args, cell, &target)?;
    let types: Vec<Compute> =
        precisions(cell, &target, keeps_precision(args)).iter().map(|precision| precision.compute).collect();
    let rates = Rates::measure(&target, cell.device_id(), &types);
    let advice =
        advise(&with_optimizers(cell, &args.optimizers)?, &target, limits, rates.as_ref(), &args.keep);
    let command = |plan: &Plan, limits| Ok(Located::of(args, cell, &plan.cell, limits)?.command(args));
    let lacks = lacks.or_else(|| recipe.elsewhere.get(&position).cloned());
    let title = match lacks {
        None => recipe.title.clone(),
        Some(lacks) => format!("{}\nAs it is, the recipe cannot run there: {lacks}.", recipe.title),
    };
    let title = match target.card() {
        None => title,
        Some((card, _)) => format!("{title}\n{}", by_data_sheet(&card.name)),
    };
    let text = text::advice(&title, &advice, limits, args.top, &command)?;
    if !args.measure {
        return Ok(text);
    }
    // What is measured may take long.
    print(&text).into_diagnostic()?;
    let best: Vec<&Plan> = advice.fitting.iter().take(3).collect();
    measured::measured(args, cell, &best, limits)
}

/// What times of a card are that is not here.
fn by_data_sheet(card: &str) -> String {
    format!(
        "Times of the {card} follow from its data sheet: of each figure the share that an H200 reaches, and the host of that. Nothing \
         was measured on this card; `runner advise` on it without --for measures its rates."
    )
}

fn keeps_precision(args: &AdviseArgs) -> bool {
    args.keep.iter().any(|key| keeps(key, "precision"))
}

/// The recipe. If the target lacks the number type of every cell, and others are searched, also the reason.
fn loaded(args: &AdviseArgs, target: &Target) -> Result<(Recipe, Option<String>)> {
    let load = |target: &Target| Recipe::load(&args.recipe, &args.checked.settings.set, target);
    let lacks = match load(target) {
        Ok(recipe) => return Ok((recipe, None)),
        Err(lacks) => lacks,
    };
    match target.of_any_capability().filter(|_| !keeps_precision(args)).map(|any| load(&any)) {
        Some(Ok(mut recipe)) if recipe.cells.iter().all(|cell| has_kernels(target, cell)) => {
            for cell in &mut recipe.cells {
                cell.capability = target.capability(cell.device_id());
            }
            Ok((recipe, Some(lacks.to_string())))
        }
        _ => Err(lacks.into()),
    }
}

fn has_kernels(target: &Target, cell: &Cell) -> bool {
    Capability::may_have(target.capability(cell.device_id()), Feature::Kernels)
}

/// The position of the cell to advise on.
fn chosen(recipe: &Recipe, cell: Option<usize>) -> Result<usize> {
    let options = Options { cells: cell.into_iter().collect(), ..Options::default() };
    match options.choose(recipe.cells.len())?[..] {
        [only] => Ok(only),
        _ => Err(miette!(
            help =
                "choose one by --cell K, as `runner plan` numbers them, or set the keys of the grid by --set",
            "the recipe has {} cells, and advice is for one",
            recipe.cells.len()
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
                "--optimizers {kind}: no optimizer of this kind can replace the recipe's"
            )
        })
    };
    kinds.iter().map(with).collect()
}

fn limits(args: &AdviseArgs, cell: &Cell, target: &Target) -> Result<Limits> {
    let free = Some(target.info(cell.device_id()).memory_available).filter(|bytes| *bytes > 0);
    let written = args.memory.or(cell.measure.memory_limit).map(|bytes| bytes.0);
    let memory = written
        .or(free)
        .ok_or_else(|| miette!(help = "write --memory 11GiB", "the memory of the device is not known"))?;
    let host_memory = args.host_memory.or(cell.measure.host_memory_limit).map(|bytes| bytes.0);
    Ok(Limits { memory, host_memory })
}
